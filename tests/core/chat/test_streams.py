"""Forty streams, cut at every byte: what passes is the same, and so is what was understood."""

import gzip
import zlib

import pytest
from tests.support.core.chat.streams import DONE, STOP, STREAMS, USAGE_ALONE, Stream, delta, line, said
from tests.support.deep import places

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.reply import MAX_HELD_BYTES, EventBuffer, ReplyFacts, ReplyReader, Usage
from kimi_proxy.core.sse import SseParser


def passed(buffer: EventBuffer, *pieces: bytes) -> bytes:
    return b"".join([*(buffer.feed(piece) for piece in pieces), buffer.end()])


def understood(wire: Wire, *pieces: bytes, encoding: str = "") -> ReplyFacts:
    reader = ReplyReader(wire, True, encoding)
    for piece in pieces:
        reader.feed(piece)
    return reader.facts


def test_there_are_forty_streams_with_names_of_their_own():
    assert len({stream.name for stream in STREAMS}) == len(STREAMS) >= 40


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_a_stream_cut_at_any_byte_passes_unchanged_and_is_understood(stream: Stream):
    for at in places(len(stream.raw)):
        pieces = stream.raw[:at], stream.raw[at:]
        assert passed(EventBuffer(), *pieces) == stream.raw
        assert understood(stream.wire, *pieces) == stream.facts


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_a_stream_in_single_bytes_passes_unchanged_and_is_understood(stream: Stream):
    pieces = [bytes((byte,)) for byte in stream.raw]

    assert passed(EventBuffer(), *pieces) == stream.raw
    assert understood(stream.wire, *pieces) == stream.facts


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_hiding_usage_hides_the_same_wherever_a_stream_is_cut(stream: Stream):
    whole = passed(EventBuffer(Wire.CHAT.format.hide_usage), stream.raw)

    for at in places(len(stream.raw)):
        shown = passed(EventBuffer(Wire.CHAT.format.hide_usage), stream.raw[:at], stream.raw[at:])
        # Half of a CRLF may be hidden with the event that it was cut from: a lone CR ends a line as well.
        assert list(SseParser().feed(shown)) == list(SseParser().feed(whole))


def test_what_is_held_is_only_what_is_not_whole():
    buffer = EventBuffer()

    assert buffer.feed(b"data: 1\n\ndata: 2") == b"data: 1\n\n"
    assert buffer.feed(b"\n") == b""
    assert buffer.feed(b"\n: hush\n:") == b"data: 2\n\n: hush\n"
    assert buffer.feed(b" now\r\n") == b": now\r\n"
    assert buffer.feed(b"event: x\n") == b""
    assert buffer.followed_by(b"data: error\n\n") == b"data: error\n\n"


def test_a_long_event_passes_in_pieces_and_is_closed_before_another():
    buffer = EventBuffer()

    assert buffer.feed(b"data: " + b"x" * MAX_HELD_BYTES) != b""
    assert buffer.feed(b"yy") == b"yy"
    assert buffer.followed_by(b"data: error\n\n") == b"\n\ndata: error\n\n"
    assert buffer.feed(b"y\n") == b"y\n"
    assert buffer.feed(b"\ndata: n") == b"\n"
    assert buffer.followed_by(b"data: error\n\n") == b"data: error\n\n"
    assert buffer.feed(b"ext\n\n") == b"data: next\n\n"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_long_event_is_found_to_end_wherever_it_is_cut(end: str):
    raw = b"data: " + b"x" * (MAX_HELD_BYTES + 10) + f"{end}{end}data: 2{end}{end}data: 3".encode()

    for at in range(len(raw) - 40, len(raw)):
        buffer = EventBuffer()
        buffer.feed(raw[: MAX_HELD_BYTES + 8])
        buffer.feed(raw[MAX_HELD_BYTES + 8 : at])
        buffer.feed(raw[at:])
        assert buffer.end() == b"data: 3"


ALONE = line(USAGE_ALONE)
HIDDEN = {
    "usage alone": (said("hi") + STOP + ALONE + DONE, said("hi") + STOP + DONE),
    "usage alone, twice": (ALONE + said("hi") + STOP + ALONE + DONE, said("hi") + STOP + DONE),
    "usage alone, with spaces": (line(USAGE_ALONE).replace(":[]", " : [ ]") + DONE, DONE),
    "usage alone, at the very end": (said("hi") + ALONE.rstrip("\n"), said("hi")),
    "usage alone, in CRLF": (
        (said("hi") + ALONE + DONE).replace("\n", "\r\n"),
        (said("hi") + DONE).replace("\n", "\r\n"),
    ),
    "usage beside a choice": (line(delta({}, "stop", usage={"prompt_tokens": 1})), None),
    "usage beside an empty delta": (line(delta({}, usage={"prompt_tokens": 1})) + DONE, None),
    "no usage and no choices": (line({"choices": [], "usage": None}) + line({"choices": []}) + DONE, None),
    "words about usage": (said('{"choices":[],"usage":{"prompt_tokens":1}}') + DONE, None),
}


@pytest.mark.parametrize(("raw", "shown"), HIDDEN.values(), ids=HIDDEN.keys())
def test_a_client_that_did_not_ask_for_usage_sees_no_event_without_a_choice(raw: str, shown: str | None):
    assert passed(EventBuffer(Wire.CHAT.format.hide_usage), raw.encode()) == (raw if shown is None else shown).encode()
    assert passed(EventBuffer(), raw.encode()) == raw.encode()


@pytest.mark.parametrize(
    ("encoding", "coded"),
    [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)],
)
def test_an_encoded_stream_is_understood_in_slices_of_any_size(encoding: str, coded):
    stream = STREAMS[1]
    raw = coded(stream.raw)

    for at in range(len(raw) + 1):
        assert understood(stream.wire, raw[:at], raw[at:], encoding=encoding) == stream.facts


@pytest.mark.parametrize(
    ("encoding", "raw"),
    [("gzip", b"this is no gzip"), ("br", b"\x8b\x01"), ("gzip", gzip.compress(bytes(64 * 1024**2), 1))],
)
def test_what_cannot_be_read_is_not_looked_at(encoding: str, raw: bytes):
    assert understood(Wire.CHAT, raw, raw, encoding=encoding) == ReplyFacts()


def test_an_endless_event_is_not_looked_at_any_longer():
    reader = ReplyReader(Wire.CHAT, True, max_bytes=1000)
    reader.feed(STOP.encode() + b"data: " + b"x" * 1001)
    reader.feed(b"\n\n" + ALONE.encode())

    assert reader.facts == ReplyFacts("kimi-k2.5", "stop")


BODIES = (
    (
        Wire.CHAT,
        b'{"model":"m","choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":2,"completion_tokens":1}}',
        ReplyFacts("m", "stop", Usage(2, 1), True),
    ),
    (
        Wire.MESSAGES,
        b'{"model":"c","stop_reason":"end_turn","usage":{"input_tokens":1,"cache_read_input_tokens":5,"output_tokens":3}}',
        ReplyFacts("c", "end_turn", Usage(6, 3, 5), True),
    ),
    (
        Wire.RESPONSES,
        b'{"model":"g","status":"completed","usage":{"input_tokens":4,"output_tokens":2}}',
        ReplyFacts("g", "completed", Usage(4, 2), True),
    ),
    (Wire.CHAT, b"<html>", ReplyFacts(unreadable=1)),
    (Wire.CHAT, b"[" * 100_000, ReplyFacts(unreadable=1)),
    (Wire.CHAT, b"{}", ReplyFacts(is_complete=True)),
)


@pytest.mark.parametrize(("wire", "body", "facts"), BODIES)
def test_a_whole_answer_is_understood_in_slices_of_any_size(wire: Wire, body: bytes, facts: ReplyFacts):
    for at in range(0, len(body) + 1, max(1, len(body) // 200)):
        reader = ReplyReader(wire, False)
        reader.feed(body[:at])
        reader.feed(body[at:])
        assert reader.facts == facts == wire.format.facts_of(body)
