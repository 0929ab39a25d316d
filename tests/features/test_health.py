"""Where everything stands in a prompt, and whether its instructions are buried."""

import json
import time

from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.chat.context import MESSAGE_TOKENS, SLICES, Composition, Sink, composition, distribution, sink
from kimi_proxy.features.chat.memory import weigh_text


def made(*messages: tuple[str, int], **more: JsonValue) -> Composition:
    """Messages of so many tokens, with the four of each."""
    said = [{"role": role, "content": "x" * (tokens - MESSAGE_TOKENS)} for role, tokens in messages]
    body = json.dumps({"model": "m", "messages": said, **more}).encode()
    return composition(parse(body, Wire.CHAT), lambda text: weigh_text(text, len))


def test_instructions_are_buried_when_more_than_half_of_the_window_follows():
    just_not, buried = made(("system", 10), ("user", 50)), made(("system", 10), ("user", 51))

    assert sink(just_not, 100) == Sink(10, 0, 50)
    assert sink(buried, 100) == Sink(10, 10, 51)
    assert (sink(just_not, 100).is_sunk, sink(buried, 100).is_sunk) == (False, True)


def test_instructions_in_the_middle_count_where_they_stand():
    mostly_late = made(("system", 10), ("user", 60), ("developer", 15), ("user", 10))
    mostly_early = made(("system", 30), ("user", 60), ("developer", 15), ("user", 10))

    assert sink(mostly_late, 100) == Sink(25, 10, 10)
    assert not sink(mostly_late, 100).is_sunk
    assert sink(mostly_early, 100).is_sunk


def test_nobody_is_sunk_without_instructions_or_without_a_known_window():
    assert sink(made(("user", 90)), 100) == Sink(0, 0, None)
    assert not sink(made(("user", 90)), 100).is_sunk
    assert not sink(made(("system", 10), ("user", 900)), None).is_sunk


def test_what_stands_apart_is_the_farthest_away():
    body = json.dumps({"model": "m", "system": "x" * 10, "messages": [{"role": "user", "content": "y" * 56}]}).encode()
    weighed = composition(parse(body, Wire.MESSAGES), lambda text: weigh_text(text, len))

    assert sink(weighed, 100) == Sink(10, 10, 60)


def test_slices_show_what_is_read_first_and_last():
    slices = distribution(made(("system", 100), ("user", 200), ("tool", 100), tools=["x" * 96]))

    assert [each["tools"] for each in slices[:4]] == [25] * 4
    assert [each["system"] for each in slices[4:8]] == [25] * 4
    assert [each["chat"] for each in slices[8:16]] == [25] * 8
    assert sum(each["tools"] for each in slices[16:]) == 96  # what separates messages is nobody's output


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), st.integers(4, 300)), max_size=12))
def test_the_slices_add_up_to_the_whole(messages: list[tuple[str, int]]):
    weighed = made(*messages)
    slices = distribution(weighed)

    assert len(slices) == SLICES
    for kind, expected in (("system", weighed.system), ("tools", weighed.tools), ("chat", weighed.chat)):
        assert sum(each[kind] for each in slices) == expected
    assert max(sum(each.values()) for each in slices) - min(sum(each.values()) for each in slices) <= 1


def test_thousands_of_messages_of_the_system_take_no_time():
    weighed = made(*[("system", 10)] * 20_000)
    began = time.process_time()
    sink(weighed, 1000)
    distribution(weighed)

    assert time.process_time() - began < 2.0
