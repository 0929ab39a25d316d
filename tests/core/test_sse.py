"""Server-sent events arrive in slices of any size."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.deep import places

from kimi_proxy.core.sse import SseEvent, SseParser

STREAM = (
    "\ufeff: keep-alive\n\nid: 1\nretry: 250\ndata:\n\n"
    'event: message\r\ndata: {"a": "é\u2028"}\r\n\r\n'
    "data:no space\rdata:  two\r\rdata: last\nid: 9\n\n"
    "event: named\ndata: a\n\ndata: b\ndata: c\n\ndata: d\r\n\ndata: e\r\n\r\n"
    "data: never finished"
).encode()
EVENTS = [
    SseEvent(b"", id="1", retry_ms=250),
    SseEvent('{"a": "é\u2028"}'.encode(), "message"),
    SseEvent(b"no space\n two"),
    SseEvent(b"last", id="9"),
    SseEvent(b"a", "named"),
    SseEvent(b"b\nc"),
    SseEvent(b"d"),
    SseEvent(b"e"),
]


def read(*pieces: bytes) -> list[SseEvent]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)]


def test_every_cut_in_two_gives_the_same_events():
    for at in range(len(STREAM) + 1):
        assert read(STREAM[:at], STREAM[at:]) == EVENTS, at


def test_every_cut_in_three_gives_the_same_events():
    for first, second in itertools.combinations(places(len(STREAM), 2), 2):
        pieces = STREAM[:first], STREAM[first:second], STREAM[second:]
        assert read(*pieces) == EVENTS, pieces


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_any_slicing_gives_the_same_events(cuts: list[int]):
    places = [0, *sorted(cuts), len(STREAM)]

    assert read(*(STREAM[a:b] for a, b in itertools.pairwise(places))) == EVENTS


def test_byte_by_byte_gives_the_same_events():
    assert read(*(bytes([byte]) for byte in STREAM)) == EVENTS


@pytest.mark.parametrize(
    "block", [b": only a comment\n\n", b"\n\n\n", b"unknown: field\n\n", b"retry: soon\n\n", b"id: a\0b\n\n"]
)
def test_what_says_nothing_is_no_event(block: bytes):
    assert read(block) == []


def test_a_large_event_is_read_in_linear_time_and_its_size_is_known():
    parser = SseParser()
    piece = b"x" * 65_536
    assert list(parser.feed(b"data: ")) == []
    for _ in range(800):
        assert list(parser.feed(piece)) == []

    assert parser.waiting_bytes == 800 * len(piece) + 6
    assert [len(event.data) for event in parser.feed(b"\n\n")] == [800 * len(piece)]
    assert parser.waiting_bytes == 0


def test_a_name_without_data_names_no_later_event():
    assert read(b"event: ping\n\n", b"data: a\n\n") == [SseEvent(b"a")]


def test_what_keeps_a_connection_alive_does_not_add_up():
    parser = SseParser()
    assert list(parser.feed(b": still here\n\n" * 1000)) == []

    assert parser.waiting_bytes == 0
