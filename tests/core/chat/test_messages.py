"""Messages that are remembered from one request to the next."""

import json

import pytest

from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.chat.messages import RememberedMessages

BODIES = {
    Wire.CHAT: '{"model": "m", "messages" : [ {"role":"system","content":"s"} ,\n{"role":"user","content":"\\u00e9"}]}',
    Wire.MESSAGES: '{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}], "system":"s", "model":"m"}',
    Wire.RESPONSES: '{"model":"m","input":[{"role":"user","content":"a"},{"type":"reasoning","id":"r"}]}',
    Wire.GEMINI: '{"model":"m","contents":[{"role":"user","parts":[{"text":"a"},{"text":"b"}]}]}',
}


def _chat(*texts: str, **more: str) -> bytes:
    return json.dumps(
        {"model": "m", **more, "messages": [{"role": "user", "content": text} for text in texts]}
    ).encode()


@pytest.mark.parametrize("wire", BODIES, ids=lambda wire: wire.name)
def test_a_message_stands_where_it_says_and_its_parts_stand_in_it(wire: Wire):
    body = BODIES[wire].encode()
    request = Request(wire, body, RememberedMessages())
    for message in request.messages:
        data = body[message.start : message.end]
        assert data.startswith(b"{") and data.endswith(b"}")
        assert all(part.body == data for part in message.parts)
    assert request.messages == Request(wire, body).messages


def test_the_next_request_of_a_conversation_has_the_same_messages_wherever_they_stand():
    remembered = RememberedMessages()
    first = parse(_chat("a", "b"), Wire.CHAT, remembered)
    text = first.messages[1].parts[0].text
    following = parse(_chat("a", "b", "c", user="somebody"), Wire.CHAT, remembered)

    assert [message.content for message in following.messages[:2]] == [message.content for message in first.messages]
    assert following.messages[1].parts[0] is first.messages[1].parts[0]
    assert following.messages[1].start != first.messages[1].start
    assert (text, following.messages[2].parts[0].text) == ("b", "c")


def test_one_changed_byte_makes_it_another_message():
    remembered = RememberedMessages()
    first = parse(_chat("a"), Wire.CHAT, remembered)
    other = parse(_chat("A"), Wire.CHAT, remembered)
    assert first.messages[0].content is not other.messages[0].content
    assert other.messages[0].parts[0].text == "A"


def test_a_value_is_derived_from_a_message_once_and_again_after_it_is_forgotten():
    remembered, derived = RememberedMessages(), list[str]()

    def length(content: object, more: int) -> int:
        derived.append("length")
        return len(str(content)) + more

    def derive(more: int) -> None:
        parse(_chat("a"), Wire.CHAT, remembered).messages[0].content.derive(length, more)

    derive(1)
    derive(1)
    assert len(derived) == 1
    derive(2)
    assert len(derived) == 2
    remembered.forget()
    derive(1)
    assert len(derived) == 3


def test_lone_surrogates_are_read_as_they_are_beside_remembered_messages():
    body = b'{"model":"m","messages":[{"role":"user","content":"\\ud800 a"},{"role":"user","content":"b"}]}'
    remembered = RememberedMessages()
    for _ in range(2):
        texts = [message.parts[0].text for message in parse(body, Wire.CHAT, remembered).messages]
        assert texts == ["\ud800 a", "b"]


def test_what_is_remembered_is_limited_in_bytes():
    remembered = RememberedMessages(max_bytes=40_000)
    first = parse(_chat("a" * 3_000), Wire.CHAT, remembered).messages[0].content
    for number in range(20):
        _ = parse(_chat(str(number) * 3_000), Wire.CHAT, remembered).messages
    assert parse(_chat("a" * 3_000), Wire.CHAT, remembered).messages[0].content is not first


def test_a_request_larger_than_what_is_remembered_pushes_no_other_out():
    remembered = RememberedMessages(max_bytes=40_000)
    first = parse(_chat("a"), Wire.CHAT, remembered).messages[0].content
    _ = parse(_chat(*(str(number) * 1_000 for number in range(50))), Wire.CHAT, remembered).messages
    assert parse(_chat("a"), Wire.CHAT, remembered).messages[0].content is first
