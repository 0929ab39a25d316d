"""A recording gives every request back as it came, and holds what they share once."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.core.errors import ParseError
from kimi_proxy.features.accounting import Prices
from kimi_proxy.features.recording import RecordedRequest, RecordingHead, head_line, line, read

HEAD = RecordingHead("kimi-k2", 131_072, Prices(0.6, 0.15, 0.6, 2.5))
TEXTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(["aab", "aaab", ""]),
    min_size=1,
    max_size=6,
)


def written(*bodies: str) -> list[bytes]:
    taken = [RecordedRequest(float(at), Wire.CHAT, body, 200, Usage(10, 5, 3, 2)) for at, body in enumerate(bodies)]
    return [head_line(HEAD), *(line(one, before) for one, before in zip(taken, ("", *bodies), strict=False))]


@given(TEXTS)
def test_every_request_comes_back_to_the_character(bodies: list[str]):
    recording = read(written(*bodies))

    assert [taken.body for taken in recording.requests] == bodies
    assert recording.head == HEAD
    assert recording.requests[0].usage == Usage(10, 5, 3, 2)


def test_what_two_requests_share_is_written_once():
    long = '{"messages": [' + "x" * 100_000
    lines = written(long + '], "tools": 1}', long + ', "more"], "tools": 1}')

    assert len(lines[2]) < 300


def test_an_answer_without_a_count_has_none():
    one = RecordedRequest(1.0, Wire.MESSAGES, "{}", 502, None)

    assert read([head_line(RecordingHead("m")), line(one, "")]).requests == (one,)


def test_empty_lines_and_further_heads_are_passed_over():
    lines = [head_line(HEAD), b"\n", *written("{}")]

    assert len(read(lines).requests) == 1


BAD = json.dumps({"at": 1, "api": "chat", "status": 200, "usage": None, "same_head": 5, "same_tail": 0, "body": ""})


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "not a recording"),
        ([head_line(HEAD)], "not a recording"),
        (written("{}")[1:], "not a recording"),
        ([head_line(HEAD), b"{\n"], "line 2 is not JSON"),
        ([head_line(HEAD), b"[]\n"], "line 2 is not a JSON object"),
        ([head_line(HEAD), b"{}\n"], "line 2 is not a request"),
        ([head_line(HEAD), BAD.encode()], "line 2 is not a request"),
        ([b'{"recording": 2}\n'], "version 1"),
        ([head_line(HEAD), BAD.replace("5", "0").replace("chat", "telex").encode()], "line 2 is not a request"),
    ],
)
def test_what_is_no_recording_is_refused_with_its_line(lines: list[bytes], complaint: str):
    with pytest.raises(ParseError, match=complaint):
        read(lines)


def test_a_head_with_half_a_price_list_has_no_prices():
    head = b'{"recording": 1, "model": "m", "prices": {"input": 1}, "max_context": -5}\n'

    assert read([head, *written("{}")[1:]]).head == RecordingHead("m")
