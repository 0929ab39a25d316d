"""Words that are added where each API has a place for them, and nothing else changes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.conversations import Assistant, Call, Item, Result, User, request

from kimi_proxy.core import json as jsontext
from kimi_proxy.core.chat import Message, Request, Wire, edit, parse
from kimi_proxy.core.chat.edit import with_reminder, with_system
from kimi_proxy.core.json import JsonValue

WORDS = 'Été "quoted" \\ \n🦊'


def asked(wire: Wire, **members: JsonValue) -> Request:
    return parse(json.dumps({"model": "m", **members}).encode(), wire)


def read(changed: Request | None) -> dict[str, JsonValue]:
    assert changed is not None
    value = json.loads(changed.body)
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, WORDS),
        ("", WORDS),
        ("Be brief.", f"Be brief.\n\n{WORDS}"),
        ([], [{"type": "text", "text": WORDS}]),
        ([{"type": "text", "text": "a"}], [{"type": "text", "text": "a"}, {"type": "text", "text": WORDS}]),
    ],
)
def test_anthropics_system_gets_more_words(before: JsonValue, after: JsonValue):
    messages: JsonValue = [{"role": "user", "content": "hi"}]

    changed = with_system(asked(Wire.MESSAGES, system=before, messages=messages), WORDS)

    assert read(changed) == {"model": "m", "system": after, "messages": messages}


@pytest.mark.parametrize(("before", "after"), [(None, WORDS), ("Be brief.", f"Be brief.\n\n{WORDS}")])
def test_the_instructions_of_responses_get_more_words(before: JsonValue, after: JsonValue):
    changed = with_system(asked(Wire.RESPONSES, instructions=before, input="hi"), WORDS)

    assert read(changed) == {"model": "m", "instructions": after, "input": "hi"}


@pytest.mark.parametrize(("wire", "name"), [(Wire.MESSAGES, "system"), (Wire.RESPONSES, "instructions")])
def test_where_the_system_said_nothing_it_does_now(wire: Wire, name: str):
    changed = with_system(parse(b'{ "model":"m" }', wire), WORDS)

    assert read(changed) == {"model": "m", name: WORDS}


def test_a_chats_first_message_gets_more_words_or_a_message_before_it():
    user: JsonValue = {"role": "user", "content": "hi"}
    by_string = with_system(asked(Wire.CHAT, messages=[{"role": "developer", "content": "a"}, user]), WORDS)
    block: JsonValue = {"type": "text", "text": "a"}
    by_block = with_system(asked(Wire.CHAT, messages=[{"role": "system", "content": [block]}, user]), WORDS)
    alone = with_system(asked(Wire.CHAT, messages=[user]), WORDS)

    assert read(by_string)["messages"] == [{"role": "developer", "content": f"a\n\n{WORDS}"}, user]
    assert read(by_block)["messages"] == [
        {"role": "system", "content": [block, {"type": "text", "text": WORDS}]},
        user,
    ]
    assert read(alone)["messages"] == [{"role": "system", "content": WORDS}, user]


def test_nothing_is_added_where_there_is_no_place():
    empty, odd = asked(Wire.CHAT, messages=[]), asked(Wire.RESPONSES, instructions=7, input="hi")

    assert with_system(empty, WORDS) is empty
    assert with_system(odd, WORDS) is odd


def test_every_other_byte_stands_as_it_stood():
    body = b'{ "model":"m",  "x": 1e400,"system" : "caf\\u00e9", "messages":[ {"role":"user","content":"\\ud800"} ]}\n'

    changed = with_system(parse(body, Wire.MESSAGES), "b")

    assert changed.body == body.replace(b"caf\\u00e9", b"caf\\u00e9\\n\\nb")


def test_an_anthropic_reminder_is_the_last_block_of_the_last_message_behind_all_results():
    result: JsonValue = {"type": "tool_result", "tool_use_id": "c1", "content": "r"}
    call: JsonValue = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
    messages: list[JsonValue] = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]

    changed = read(with_reminder(asked(Wire.MESSAGES, messages=messages), WORDS))
    by_string = read(with_reminder(asked(Wire.MESSAGES, messages=[{"role": "user", "content": "hi"}]), WORDS))

    block: JsonValue = {"type": "text", "text": WORDS}
    assert changed["messages"] == [messages[0], {"role": "user", "content": [result, block]}]
    assert by_string["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}, block]}]


def test_a_chats_reminder_goes_to_the_user_or_behind_the_results():
    user: JsonValue = {"role": "user", "content": "hi"}
    call: JsonValue = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    calls: JsonValue = {"role": "assistant", "content": None, "tool_calls": [call]}
    result: JsonValue = {"role": "tool", "tool_call_id": "c1", "content": "r"}

    to_user = read(with_reminder(asked(Wire.CHAT, messages=[user]), WORDS))
    after_results = read(with_reminder(asked(Wire.CHAT, messages=[user, calls, result]), WORDS))

    assert to_user["messages"] == [{"role": "user", "content": f"hi\n\n{WORDS}"}]
    assert after_results["messages"] == [user, calls, result, {"role": "user", "content": WORDS}]


def test_a_reminder_in_responses_is_an_item_of_the_system():
    changed = read(with_reminder(asked(Wire.RESPONSES, input="hi"), WORDS))

    first, last = changed["input"]
    assert first["role"] == "user"
    assert last == {"type": "message", "role": "system", "content": [{"type": "input_text", "text": WORDS}]}


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize(
    "items",
    [
        [],
        [User("a"), Assistant("go on from here")],
        [User("a"), Assistant("", (Call("c1"),))],
        [User("a"), Assistant("", (Call("c1"), Call("c2"))), Result("c2", "r")],
    ],
)
def test_nothing_follows_on_an_answer_or_on_a_call_without_its_result(wire: Wire, items: list[Item]):
    asked_for = request(wire, items)
    if wire is Wire.CHAT and not items:
        return  # there it would follow on the system's own message

    assert with_reminder(asked_for, WORDS) is None


@st.composite
def conversations(draw: st.DrawFn) -> list[Item]:
    """Of an agent whose calls are all answered, in parallel or not, with words between or not."""
    items: list[Item] = [User(draw(st.text(max_size=5)))]
    for turn in range(draw(st.integers(0, 4))):
        calls = tuple(Call(f"t{turn}-{each}") for each in range(draw(st.integers(0, 3))))
        items.append(Assistant(draw(st.text(max_size=5)) if calls else "said", calls))
        items += [Result(call.id, draw(st.text(max_size=5))) for call in draw(st.permutations(calls))]
        if not calls or draw(st.booleans()):
            items.append(User(draw(st.text(max_size=5))))
    return items


def pairs(messages: tuple[Message, ...]) -> list[tuple[int, str, str]]:
    """Every call and result with the message that it stands in."""
    return [
        (at, part.kind, part.call_id)
        for at, message in enumerate(messages)
        for part in message.parts
        if part.kind in ("tool_call", "tool_result")
    ]


@pytest.mark.parametrize("wire", Wire)
@given(items=conversations(), words=st.text(min_size=1, max_size=20))
def test_calls_stay_with_their_results_and_all_before_the_reminder_stays(wire: Wire, items: list[Item], words: str):
    before = request(wire, items)
    after = with_reminder(before, words)
    assert after is not None

    assert pairs(after.messages) == pairs(before.messages)
    last = after.messages[-1].parts[-1]
    assert last.text.endswith(words)
    assert last.kind == "text"
    # The provider's cache knows everything up to the end of the last message.
    cut = before.messages[-1].start
    assert after.body[:cut] == before.body[:cut]
    texts = [part.text for message in before.messages for part in message.parts]
    kept = [part.text for message in after.messages for part in message.parts]
    assert kept[: len(texts) - 1] == texts[:-1]
    assert kept[len(texts) - 1].startswith(texts[-1])
    if wire is Wire.MESSAGES:
        _results_come_first(after)


def _results_come_first(request: Request) -> None:
    for message in request.messages:
        kinds = [part.kind for part in message.parts]
        results = kinds.count("tool_result")
        assert kinds[:results] == ["tool_result"] * results


def test_lone_surrogates_can_be_added_too():
    assert jsontext.decode(with_system(asked(Wire.MESSAGES, system="a"), "\ud800").body)


@pytest.mark.parametrize(
    ("wire", "result"),
    [
        (Wire.CHAT, {"role": "tool", "tool_call_id": "a"}),
        (Wire.CHAT, {"role": "tool", "tool_call_id": "a", "content": None}),
        (Wire.CHAT, {"role": "tool", "tool_call_id": "a", "content": []}),
        (Wire.MESSAGES, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}),
        (Wire.MESSAGES, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": []}]}),
        (Wire.RESPONSES, {"type": "function_call_output", "call_id": "a", "output": []}),
        (Wire.RESPONSES, {"type": "function_call_output", "call_id": "a"}),
    ],
)
def test_a_reminder_follows_a_result_that_says_nothing(wire: Wire, result: JsonValue):
    before = request(wire, [User("go"), Assistant("", (Call("a"),))])
    changed = with_reminder(edit.with_items(before, [result]), WORDS)

    assert changed is not None
    assert WORDS in [part.text for part in changed.messages[-1].parts]


def test_what_the_user_said_stands_as_it_stood_when_it_becomes_a_block():
    body = b'{"model":"m","messages":[{"role":"user","content":"half \\ud83d and \\u00e9"}]}'

    changed = with_reminder(parse(body, Wire.MESSAGES), "More.")

    assert changed is not None
    assert b'{"type":"text","text":"half \\ud83d and \\u00e9"}' in changed.body
