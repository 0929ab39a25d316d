"""Requests as frames of a WebSocket: later ones hold only what is new, and are completed."""

import json

import pytest

from kimi_proxy.core.chat.frames import NO_HISTORY, AnswerItems, CreateFrame, FrameHistory, read_frame
from kimi_proxy.core.errors import PreviousResponseNotFound


def frame(**members: object) -> bytes:
    return json.dumps({"type": "response.create", "model": "m", "store": False, **members}).encode()


def event(kind: str, **members: object) -> bytes:
    return json.dumps({"type": kind, **members}).encode()


def test_every_byte_of_a_value_stays():
    asked = (
        b'{"type":"response.create", "model" : "m","x":[1e400, -0],'
        b'"input":[ {"role":"user","content":"\\ud83d \\u00e9"} ]}'
    )

    assert read(asked, NO_HISTORY).body == (
        b'{"model":"m","x":[1e400, -0],"input":[{"role":"user","content":"\\ud83d \\u00e9"}],"stream":true}'
    )


def test_what_a_frame_goes_on_from_stands_before_it_in_the_same_bytes():
    before = FrameHistory("resp_1", b'{"a": 1},{"b":2 }')

    asked = read(frame(input=[{"c": 3}], previous_response_id="resp_1"), before)

    assert b'"input":[{"a": 1},{"b":2 },{"c": 3}]' in asked.body
    assert "previous_response_id" not in json.loads(asked.body)
    assert asked.items == b'{"a": 1},{"b":2 },{"c": 3}'


@pytest.mark.parametrize("given", [{}, {"input": []}])
def test_a_frame_may_hold_nothing_new(given: dict[str, object]):
    asked = read(frame(previous_response_id="r", **given), FrameHistory("r", b"{}"))

    assert json.loads(asked.body)["input"] == [{}]


def test_an_answer_that_only_the_provider_may_know_is_asked_for_by_its_id():
    asked = read(frame(previous_response_id="resp_9", store=True), FrameHistory("resp_1", b"{}"))

    assert json.loads(asked.body)["previous_response_id"] == "resp_9"


def test_an_answer_that_nobody_knows_is_refused():
    with pytest.raises(PreviousResponseNotFound, match="resp_9"):
        read_frame(frame(previous_response_id="resp_9"), FrameHistory("resp_1", b"{}"))


def test_what_holds_more_values_than_can_be_read_is_left_to_a_post():
    assert read_frame(b'{"type":"response.create","input":[%b1]}' % (b"1," * 250_000), NO_HISTORY) is None


def read(asked: bytes, before: FrameHistory) -> CreateFrame:
    found = read_frame(asked, before)
    assert found is not None
    return found


def test_an_answer_is_remembered_as_its_provider_wrote_it():
    items = AnswerItems(b'{"q":1}')
    items.feed(event("response.created", response={"id": "resp_1", "output": []}))
    items.feed(b'{"type":"response.output_item.done","output_index":1,"item":{"b" : 2}}')
    items.feed(b'{"type":"response.output_item.done","output_index":0,"item":{"a":1.0}}')
    assert not items.is_over
    items.feed(event("response.completed", response={"id": "resp_1", "output": [{"a": 9}, {"b": 9}, {"c": 3}]}))

    assert items.is_over
    assert items.history() == FrameHistory("resp_1", b'{"q":1},{"a":1.0},{"b" : 2},{"c": 3}')


def test_an_answer_that_failed_is_over_and_not_remembered():
    items = AnswerItems(b"")
    items.feed(event("response.failed", response={"id": "resp_1", "output": []}))

    assert items.is_over and items.history() is NO_HISTORY


def test_words_of_the_model_that_look_like_events_are_none():
    items = AnswerItems(b"")
    items.feed(event("response.output_text.delta", delta='{"type":"response.completed","response":{"id":"x"}}'))
    items.feed(b"no JSON, and response.completed")

    assert not items.is_over
