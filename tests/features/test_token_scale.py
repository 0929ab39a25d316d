"""The provider's tokens for one of ours, where it counts more than the text that we can read."""

import json
from collections.abc import Sequence

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User, body

from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.chat.context import Composition, composition
from kimi_proxy.features.chat.memory import weigh_text
from kimi_proxy.features.token_scale import CountedRequest, TokenScales

PLACE = ("local", "ses_1", "anthropic claude")
TEXT = "x" * 3_000  # as many tokens by our own count
OVERHEAD = 10_000  # what the provider counts in each request, and we do not see
WHOLE = 2.0  # the ratio of the counts of a whole request


def weighed(request: Request) -> Composition:
    return composition(request, lambda text: weigh_text(text, len))


def with_thinking(raw: bytes, **more: str) -> bytes:
    """Let the last answer come back with its thinking."""
    asked = json.loads(raw)
    answer = next(one for one in reversed(asked["messages"]) if one["role"] == "assistant")
    answer["content"] = [{"type": "thinking", "thinking": "", "signature": "s" * 9_000, **more}, *answer["content"]]
    return json.dumps(asked).encode()


def with_image(raw: bytes) -> bytes:
    asked = json.loads(raw)
    asked["messages"][-1]["content"].append({"type": "image", "source": {"type": "base64", "data": "x"}})
    return json.dumps(asked).encode()


BEGUN: Sequence[Item] = (User("why?"),)
READ = (*BEGUN, Assistant("", (Call("c1"),)), Result("c1", TEXT))


def send(scales: TokenScales, raw: bytes, usage: Usage, place: tuple[str, str, str] = PLACE) -> CountedRequest:
    request = parse(raw, Wire.MESSAGES)
    sent = scales.send(place, request, weighed(request))
    scales.count(sent, usage)
    return sent


def test_until_something_has_grown_it_is_the_ratio_of_the_whole_request():
    scales = TokenScales()
    send(scales, body(Wire.MESSAGES, BEGUN), Usage(OVERHEAD, 50))

    assert scales.ratio(PLACE, WHOLE) == WHOLE


def test_of_what_was_added_only_results_count_if_the_answer_came_back_with_its_thinking():
    """The provider's own count of its answer includes the thinking that we cannot read."""
    scales = TokenScales()
    send(scales, body(Wire.MESSAGES, BEGUN), Usage(OVERHEAD, 900))
    send(scales, with_thinking(body(Wire.MESSAGES, READ)), Usage(OVERHEAD + 900 + 3_600, 50))

    # 3,600 tokens for the result, against ours of 3,004; a new conversation still counts its model's usual ratio in.
    assert scales.ratio(PLACE, WHOLE) == pytest.approx((3_600 + 2_000 * 3_600 / 3_004) / (3_004 + 2_000))


@pytest.mark.parametrize(
    ("answer", "added"),
    [
        (Usage(OVERHEAD, 40), 40),  # it did not think
        (Usage(OVERHEAD, 940, reasoning_tokens=900), 40),
        (Usage(OVERHEAD, 940), 40),  # it thought, and does not say how much
    ],
)
def test_thinking_that_is_not_sent_back_is_in_no_prompt(answer: Usage, added: int):
    scales = TokenScales()
    send(scales, body(Wire.MESSAGES, BEGUN), answer)
    send(scales, body(Wire.MESSAGES, READ), Usage(OVERHEAD + added + 3_600, 50))

    assert scales.ratio(PLACE, 1.2) == pytest.approx(1.2, abs=0.02)


@pytest.mark.parametrize(
    "raw",
    [
        with_image(body(Wire.MESSAGES, READ)),
        body(Wire.MESSAGES, (User("why, though?"), *READ[1:])),
        with_thinking(body(Wire.MESSAGES, (*READ[:2], User(TEXT)))),
    ],
    ids=["with an image", "after a changed beginning", "at a new turn of the user, with thinking"],
)
def test_a_growth_that_both_sides_do_not_count_teaches_nothing(raw: bytes):
    scales = TokenScales()
    send(scales, body(Wire.MESSAGES, BEGUN), Usage(OVERHEAD, 40))
    send(scales, raw, Usage(OVERHEAD + 40 + 3_600, 50))

    assert scales.ratio(PLACE, WHOLE) == WHOLE


@pytest.mark.parametrize("grown", [-5_000, 0, 1_000, 50_000])
def test_a_growth_that_no_tokenizer_explains_teaches_nothing(grown: int):
    """The provider cleared text, for instance, or the client's tools became more."""
    scales = TokenScales()
    send(scales, body(Wire.MESSAGES, BEGUN), Usage(OVERHEAD, 40))
    send(scales, body(Wire.MESSAGES, READ), Usage(OVERHEAD + 40 + grown, 50))

    assert scales.ratio(PLACE, WHOLE) == WHOLE


def test_requests_for_a_title_do_not_come_between_two_requests_of_a_conversation():
    scales = TokenScales()
    send(scales, body(Wire.MESSAGES, BEGUN), Usage(OVERHEAD, 40))
    send(scales, body(Wire.MESSAGES, [User("Give this a title.")]), Usage(300, 10))
    send(scales, body(Wire.MESSAGES, READ), Usage(OVERHEAD + 40 + 3_600, 50))

    assert scales.ratio(PLACE, WHOLE) < 1.3


def test_an_answer_that_is_counted_after_the_next_request_was_sent_is_counted_all_the_same():
    scales = TokenScales()
    first, second = (parse(body(Wire.MESSAGES, items), Wire.MESSAGES) for items in (BEGUN, READ))
    one = scales.send(PLACE, first, weighed(first))
    other = scales.send(PLACE, second, weighed(second))
    scales.count(one, Usage(OVERHEAD, 40))
    scales.count(other, Usage(OVERHEAD + 40 + 3_600, 50))

    assert scales.ratio(PLACE, WHOLE) < 1.3


def test_a_new_conversation_begins_with_the_ratio_of_its_model():
    scales = TokenScales()
    send(scales, body(Wire.MESSAGES, BEGUN), Usage(OVERHEAD, 40))
    send(scales, body(Wire.MESSAGES, READ), Usage(OVERHEAD + 40 + 3_600, 50))

    assert scales.ratio(("local", "ses_2", PLACE[2]), WHOLE) == pytest.approx(3_600 / 3_004)
    assert scales.ratio(("local", "ses_2", "openai gpt"), WHOLE) == WHOLE


def test_a_forgotten_session_leaves_nothing():
    scales = TokenScales()
    send(scales, body(Wire.MESSAGES, BEGUN), Usage(OVERHEAD, 40))
    scales.forget("local", "ses_1")
    send(scales, body(Wire.MESSAGES, READ), Usage(OVERHEAD + 40 + 3_600, 50))

    assert scales.ratio(PLACE, WHOLE) == WHOLE


def test_requests_that_nobody_answers_do_not_hold_on_to_each_other():
    scales, items = TokenScales(), list(BEGUN)
    for number in range(20):
        request = parse(body(Wire.MESSAGES, items), Wire.MESSAGES)
        last: CountedRequest | None = scales.send(PLACE, request, weighed(request))
        items += [Assistant("", (Call(f"c{number}"),)), Result(f"c{number}", TEXT)]

    held = 0
    while last is not None:
        last, held = last.since, held + 1
    assert held <= 5


def test_messages_are_compared_as_each_api_has_them():
    found: dict[Wire, float] = {}
    for wire in Wire:
        scales = TokenScales()
        for items, usage in ((BEGUN, Usage(OVERHEAD, 40)), (READ, Usage(OVERHEAD + 40 + 3_600, 50))):
            request = parse(body(wire, items), wire)
            scales.count(scales.send(PLACE, request, weighed(request)), usage)
        found[wire] = scales.ratio(PLACE, WHOLE)

    assert all(ratio == pytest.approx(1.2, abs=0.01) for ratio in found.values()), found


def test_sealed_thinking_weighs_as_much_as_its_seal_says():
    thought: JsonObject = {"type": "thinking", "thinking": "", "signature": "s" * 5_698}
    sealed: JsonObject = {"type": "reasoning", "summary": [], "encrypted_content": "s" * 5_698}
    message = {"role": "assistant", "content": [thought, {"type": "text", "text": "So."}]}
    anthropic = parse(json.dumps({"model": "m", "messages": [message]}).encode(), Wire.MESSAGES)
    responses = parse(json.dumps({"model": "m", "input": [sealed]}).encode(), Wire.RESPONSES)

    assert weighed(anthropic).total == 1_000 + len("So.") + 4
    assert weighed(responses).total == 1_000 + 4
