"""Amazon's event-stream encoding: binary messages with headers and two checksums, read from slices of any size."""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from zlib import crc32

from kimi_proxy.core.errors import UpstreamUnreadable

MAX_MESSAGE_BYTES = 24 * 1024**2  # the encoding's own limit

_PRELUDE = struct.Struct(">III")  # the length of the message, that of its headers, a checksum of both
_SUM = struct.Struct(">I")
_LENGTH = struct.Struct(">H")
_STRING = 7
# Bytes of a value by its type; strings and byte arrays say their own length.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}


@dataclass(frozen=True, slots=True)
class StreamMessage:
    payload: bytes
    headers: Mapping[str, str] = field(default_factory=dict)  # those that are strings


def encode(message: StreamMessage) -> bytes:
    headers = b"".join(_encode_header(name, value) for name, value in message.headers.items())
    size = _PRELUDE.size + len(headers) + len(message.payload) + _SUM.size
    lengths = struct.pack(">II", size, len(headers))
    whole = lengths + _SUM.pack(crc32(lengths)) + headers + message.payload
    return whole + _SUM.pack(crc32(whole))


class StreamMessageParser:
    """Feed it slices, get messages; it buffers incomplete ones. Raise UpstreamUnreadable for a damaged one."""

    def __init__(self) -> None:
        self._held = bytearray()

    @property
    def waiting_bytes(self) -> int:
        return len(self._held)

    def feed(self, piece: bytes) -> Iterator[StreamMessage]:
        self._held += piece
        while len(self._held) >= _PRELUDE.size:
            size, headers_size, checksum = _PRELUDE.unpack_from(self._held)
            if crc32(self._held[:8]) != checksum or not headers_size + 16 <= size <= MAX_MESSAGE_BYTES:
                raise UpstreamUnreadable("a message of the event stream is damaged")
            if len(self._held) < size:
                return
            message = bytes(self._held[:size])
            del self._held[:size]
            yield _decode(message, headers_size)


def _decode(message: bytes, headers_size: int) -> StreamMessage:
    if crc32(message[:-4]) != _SUM.unpack(message[-4:])[0]:
        raise UpstreamUnreadable("a message of the event stream is damaged")
    body_at = _PRELUDE.size + headers_size
    try:
        headers = dict(_decode_headers(message[_PRELUDE.size : body_at]))
    except (struct.error, IndexError, KeyError, UnicodeDecodeError) as e:
        raise UpstreamUnreadable("a header of the event stream cannot be read") from e
    return StreamMessage(message[body_at:-4], headers)


def _decode_headers(raw: bytes) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(raw):
        name_end = at + 1 + raw[at]
        name = raw[at + 1 : name_end].decode()
        kind = raw[name_end]
        at = name_end + 1
        if kind in _SIZES:
            at += _SIZES[kind]
            continue
        (size,) = _LENGTH.unpack_from(raw, at)
        value = raw[at + 2 : at + 2 + size]
        at = at + 2 + size
        if kind == _STRING:
            yield name, value.decode()


def _encode_header(name: str, value: str) -> bytes:
    coded = name.encode()
    text = value.encode()
    return bytes((len(coded),)) + coded + bytes((_STRING,)) + _LENGTH.pack(len(text)) + text
