"""Code Assist's envelope: what is not changed within it leaves in the same bytes."""

import json

import pytest

from kimi_proxy.addons.code_assist.envelope import (
    AnswerEvents,
    close_answer,
    close_request,
    open_answer,
    open_request,
    plain_request,
)
from kimi_proxy.core.errors import InvalidParams, ParseError

ASKED = (
    b'{"model": "gemini-2.5-pro",\n "project":"p-1","user_prompt_id":"u","request":{ "contents":[{"role":"user",'
    b'"parts":[{"text":"caf\\u00e9 \\ud83d"}]}],"session_id":"s","x":1e400 },"enabled_credit_types":["A"]}'
)
COUNTED = b'{"request":{"model":"models/gemini-2.5-pro","contents":[]}}'
ANSWERED = (
    b'{"response": {"candidates":[ ],"usageMetadata":{}},"traceId":"t","remainingCredits":[{"creditAmount":"1"}]}'
)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_request_that_nothing_changed_leaves_as_it_came(is_stream: bool):
    inner = open_request(ASKED, is_stream)
    members = json.loads(inner)
    closed = close_request(inner, counts=False)

    assert (members["model"], members.get("stream", False)) == ("gemini-2.5-pro", is_stream)
    assert members["contents"][0]["role"] == "user"
    assert closed.body == ASKED
    verb = "streamGenerateContent" if is_stream else "generateContent"
    assert (closed.path, closed.query) == (f"/v1internal:{verb}", "alt=sse" if is_stream else "")


def test_what_was_changed_in_a_request_is_changed_in_its_envelope():
    inner = open_request(ASKED, is_stream=False).replace(b"caf\\u00e9", b"tea").replace(b'"gemini-2.5-pro"', b'"other"')
    inner = inner.replace(b'"model": "gemini-2.5-pro"', b'"model": "other"')

    assert close_request(inner, counts=False).body == ASKED.replace(b"caf\\u00e9", b"tea").replace(
        b'"gemini-2.5-pro"', b'"other"'
    )


def test_what_is_counted_names_its_model_inside():
    inner = open_request(COUNTED, is_stream=False)
    closed = close_request(inner, counts=True)

    assert json.loads(inner)["model"] == "gemini-2.5-pro"
    assert (closed.path, json.loads(closed.body)) == ("/v1internal:countTokens", json.loads(COUNTED))


def test_a_request_that_came_without_an_envelope_gets_one():
    closed = close_request(b'{"contents":[],"model":"m","stream":true}', counts=False)

    assert json.loads(closed.body) == {"model": "m", "request": {"contents": []}}


def test_another_provider_gets_the_request_alone():
    assert json.loads(plain_request(open_request(ASKED.replace(b"1e400", b"1"), is_stream=True))) == {
        **json.loads(ASKED.replace(b"1e400", b"1"))["request"],
        "model": "gemini-2.5-pro",
        "stream": True,
    }


@pytest.mark.parametrize("body", [b"{}", b'{"request":[]}', b'{"request":"x"}', b'{"request":{}}'])
def test_an_envelope_without_a_request_is_refused(body: bytes):
    with pytest.raises(InvalidParams, match="request"):
        open_request(body, is_stream=False)


def test_what_is_no_object_is_refused():
    with pytest.raises(ParseError):
        open_request(b"[", is_stream=False)


def test_an_answer_comes_out_of_its_envelope_and_goes_back_into_it():
    inner = open_answer(ANSWERED)

    assert json.loads(inner)["candidates"] == []
    assert close_answer(inner) == ANSWERED
    assert json.loads(close_answer(b'{"candidates":[]}')) == {"response": {"candidates": []}}


@pytest.mark.parametrize("data", [b'{"error":{"code":429}}', b"no JSON", b"[]"])
def test_an_error_passes_as_it_is(data: bytes):
    assert (open_answer(data), close_answer(data)) == (data, data)


def test_events_in_slices_of_any_size_come_out_and_go_back():
    stream = b"".join(b"data: %b\r\n\r\n" % data for data in (ANSWERED, b'{"error":{}}', ANSWERED))
    for size in range(1, len(stream) + 1):
        opened, closed = AnswerEvents(closes=False), AnswerEvents(closes=True)
        inner = b"".join(opened.feed(stream[at : at + size]) for at in range(0, len(stream), size))
        assert b"".join(closed.feed(inner[at : at + size]) for at in range(0, len(inner), size)) == stream, size
