"""The one reader and writer of JSON.

- `decode` reads a client's JSON, limited in depth and in the number of values. `fields` reads a few of its members.
- `decode_deep` reads a server's JSON, as deep as the parser supports; `is_json` and `is_container` only check it.
- `decode_members` does the same, but leaves long or deeply nested members undecoded, so that they pass unchanged.
- `view`, `children` and `start` find the position of a value in the bytes, to replace it and keep the rest.
- `encode` writes all of them, and dataclasses too; `encode_in_pieces` does not copy unread parts.

All accept lone surrogates written as escapes, which files read by agents may contain; the parser in C does not. That
parser is also recursive, and fails at a depth of about one thousand or ten thousand, depending on Python's version.
"""

import codecs
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import isfinite
from typing import TypeAlias, TypeGuard, TypeVar

import msgspec
from msgspec import Raw

from kimi_proxy.core.errors import ParseError, UpstreamUnreadable

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
JsonObject: TypeAlias = dict[str, "JsonValue"]
OpenObject: TypeAlias = Mapping[str, object]  # of another program: whatever it holds
Children: TypeAlias = list[Raw] | dict[str, Raw]
T = TypeVar("T")

MAX_DEPTH = 128
MAX_VALUES = 200_000
MAX_READ_BYTES = 8 * 1024**2  # of a server's answer, in one go: up to 35 ms
LOOKED_AT_BYTES = 4096
COUNTED_BYTES = 1024**2  # at a time: about two milliseconds
SLICE_BYTES = 1024**2  # of an array that is checked, at a time: as much
MAX_WRONG_COMMAS = 3  # that may occur deeper, or in a string, before an array is read at once
MAX_NESTING = 12_000  # of what is passed on unread: no real answer comes near, and half a million levels take 1 s

_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)
_CHILDREN: msgspec.json.Decoder[Children] = msgspec.json.Decoder(list[Raw] | dict[str, Raw])
_BACKSLASH = ord("\\")
_ESCAPE_BYTES = 6
_HALF = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")  # the first of two escapes that are one character
_CLOSINGS = {"{": "}", "[": "]"}
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_COMMA = re.compile(rb",")
_COMMA_OF_CONTAINERS = re.compile(rb"(?<=[}\]]),(?=\s*+[{\[])")
_EMPTY_ARRAY = re.compile(rb"\[\s*+\]")
_BRACKET = ord("[")


def decode(raw: bytes, max_depth: int = MAX_DEPTH) -> JsonValue:
    """Return the value of a client's JSON. Raise ParseError if it is not strict JSON, too deep or too large."""
    refuse_many_values(raw)
    try:
        value = _decode(raw)
    except RecursionError as e:
        raise ParseError(f"JSON is nested deeper than {max_depth} levels") from e
    if _is_deeper(value, max_depth):
        raise ParseError(f"JSON is nested deeper than {max_depth} levels")
    return value


def decode_deep(raw: bytes | str) -> JsonValue:
    """Return the value of a server's JSON, of any size. Raise ParseError if it is not strict JSON, or too deep."""
    try:
        return _decode(raw)
    except RecursionError as e:
        raise ParseError("JSON is nested too deep") from e


def fields(raw: bytes, names: Collection[str]) -> JsonObject:
    """Return the members of a JSON object that have these names; the others are not built."""
    try:
        found = msgspec.json.decode(raw, type=dict[str, Raw])
    except _UNREADABLE as e:
        raise ParseError(f"not a JSON object: {e}") from e
    return {name: decode(bytes(found[name])) for name in names if name in found}


def is_json(text: str) -> bool:
    """Return whether `text` is one JSON value; many times faster than reading it.

    It is taken for one if it is too deep to know: what shortens it has to leave its brackets alone.
    """
    try:
        msgspec.json.decode(text, type=Raw)
    except RecursionError:
        return True
    except (msgspec.DecodeError, UnicodeError):
        try:
            _decode(text)
        except RecursionError:
            return True
        except ParseError:
            return False
    return True


def is_container(text: str) -> bool:
    """Return whether `text` is a JSON array or object, or too deep to know."""
    closing = _CLOSINGS.get(text.lstrip()[:1])
    return closing is not None and text.rstrip().endswith(closing) and is_json(text)


class UnreadObject(Mapping[str, JsonValue]):
    """A long object, or a value that is too deep to read: read on access, and written unchanged."""

    def __init__(self, view: Raw) -> None:
        self.view = view
        self._read: Mapping[str, JsonValue] | None = None

    def __getitem__(self, name: str) -> JsonValue:
        return self._members()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members())

    def __len__(self) -> int:
        return len(self._members())

    def _members(self) -> Mapping[str, JsonValue]:
        if self._read is None:
            try:
                value = decode_deep(bytes(self.view))
            except ParseError as e:
                raise UpstreamUnreadable(f"a server's response cannot be read: {e}") from e
            self._read = value if isinstance(value, dict) else {}
        return self._read


def decode_members(raw: bytes, whole_bytes: int = MAX_READ_BYTES, slice_bytes: int = SLICE_BYTES) -> JsonValue:
    """Return the value of a server's JSON; of an object, members that are long objects or too deep stay unread.

    To read 50 MB in one go holds everything else up for a fifth of a second. Raise ParseError if it is not JSON.
    """
    try:
        if len(raw) <= whole_bytes:
            return _decode(raw)
        members = _members_around_array(raw, slice_bytes) or msgspec.json.decode(raw, type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeError):
        return decode_deep(raw)
    except RecursionError:
        return _deep_members(raw)
    _check_encoding(raw)  # unread values are not validated
    return {name: _long_unread(view, whole_bytes) for name, view in members.items()}


def _deep_members(raw: bytes) -> JsonValue:
    """Return the members of a message, those that are too deep unread. Raise ParseError if the rest is not JSON."""
    _check_encoding(raw)
    spans = _containers(raw)
    bare = bytearray()
    done = 0
    for begin, end in spans:
        bare += raw[done:begin] + b"{}"
        done = end
    try:
        # As pairs, members of one name stay apart. Of containers only the empty ones are left, which are read as [].
        pairs = json.loads(bare + raw[done:], object_pairs_hook=list, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as e:
        raise ParseError(f"not valid JSON: {e}") from e
    if raw.lstrip()[:1] == b"[":
        return [decode_members(raw[begin:end]) for begin, end in spans]
    inside = iter(spans)
    return {name: _decoded_or_unread(raw, *next(inside)) if value == [] else value for name, value in pairs}


def _containers(raw: bytes) -> list[tuple[int, int]]:
    """Return the start and end of each array and object directly inside the outermost one."""
    found: list[tuple[int, int]] = []
    depth = begin = 0
    for token in _TOKEN.finditer(raw):
        if token[0] in b"[{":
            depth += 1
            if depth > MAX_NESTING:
                raise ParseError(f"JSON is nested deeper than {MAX_NESTING} levels")
            begin = token.start() if depth == 2 else begin
        elif token[0] in b"]}":
            if depth == 2:
                found.append((begin, token.end()))
            depth -= 1
    return found


def _decoded_or_unread(raw: bytes, begin: int, end: int) -> JsonValue:
    try:
        return _decode(raw[begin:end])
    except RecursionError:
        return UnreadObject(Raw(raw[begin:end]))


def _members_around_array(raw: bytes, slice_bytes: int) -> dict[str, Raw] | None:
    """Return the members of an object that is mostly one long array, validated slice by slice.

    The object is valid if it is with the array empty, and each slice is valid in brackets of its own. None if that is
    not so: then all of it has to be parsed at once to find out.
    """
    begin = _first_array(raw[:LOOKED_AT_BYTES])
    end = raw.rfind(b"]", max(0, len(raw) - LOOKED_AT_BYTES))
    if begin is None or end < begin or not _are_elements(raw, begin, end, slice_bytes):
        return None
    around = raw[:begin] + raw[end:]
    members = msgspec.json.decode(around, type=dict[str, Raw])
    for name, view in members.items():
        at = start(view, around)
        if at < begin < at + size(view):
            members[name] = Raw(memoryview(raw)[at : at + size(view) + end - begin])
            return members
    return None  # a later member has the same name


def _first_array(head: bytes) -> int | None:
    """Return where the elements of the outermost array begin that is still open where `head` breaks off."""
    open_: list[int] = []
    for token in _TOKEN.finditer(head):
        if token[0] in b"[{":
            open_.append(token.end())
        elif token[0] in b"]}" and open_:
            open_.pop()
    return next((at for at in open_ if head[at - 1] == _BRACKET), None)


def _are_elements(raw: bytes, at: int, last: int, slice_bytes: int) -> bool:
    """Return whether the bytes between are one or more elements of an array; False also if that is unclear."""
    begins = raw[at : at + LOOKED_AT_BYTES].lstrip()[:1]
    comma = _COMMA_OF_CONTAINERS if begins in (b"{", b"[") else _COMMA
    if comma.search(raw, at, at + LOOKED_AT_BYTES) is None:
        return False  # few long elements
    near, wrong = at + slice_bytes, 0
    while at <= last:
        found = comma.search(raw, near, last)
        end = found.start() if found else last
        array = b"".join((b"[", memoryview(raw)[at:end], b"]"))
        if view(array) is not None and not _EMPTY_ARRAY.fullmatch(array):
            at, near, wrong = end + 1, end + slice_bytes, 0
        elif found and wrong < MAX_WRONG_COMMAS:
            near = found.end()
            wrong = wrong + 1
        else:
            return False
    return True


def _check_encoding(raw: bytes) -> None:
    """Raise ParseError if `raw` is not UTF-8."""
    if raw.isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(raw), SLICE_BYTES):
            decoder.decode(raw[at : at + SLICE_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as e:
        raise ParseError(f"not UTF-8: {e.reason}") from e


def _long_unread(view: Raw, whole_bytes: int) -> JsonValue:
    is_long = size(view) > whole_bytes and memoryview(view)[0] == ord("{")
    return UnreadObject(view) if is_long else decode_deep(bytes(view))


def decode_string(view: Raw, slice_bytes: int = MAX_READ_BYTES) -> str:
    """Return the text of a string of any length, which is read slice by slice. Raise ParseError if it is none."""
    raw = bytes(view)
    pieces: list[str] = []
    at, last = 1, len(raw) - 1
    while at < last:
        end = _text_end(raw, at + slice_bytes, last)
        piece = decode_deep(b'"%b"' % raw[at:end])
        if not isinstance(piece, str):
            raise ParseError("not a string")
        pieces.append(piece)
        at = end
    return "".join(pieces)


def _text_end(raw: bytes, end: int, last: int) -> int:
    """Return a place from `end` on where the text of a string can be divided: between characters, not in an escape.

    Where there is none near, that is the end of the text.
    """
    for at in range(end, min(end + LOOKED_AT_BYTES, last)):
        if raw[at] == _BACKSLASH:
            # Behind anything but a backslash an escape begins; one that is half of a pair stays with the other half.
            if raw[at - 1] != _BACKSLASH and not _HALF.fullmatch(raw, max(0, at - _ESCAPE_BYTES), at):
                return at
        elif raw[at] & 0xC0 != 0x80 and raw.find(b"\\", max(0, at - 2 * _ESCAPE_BYTES), at) < 0:
            return at
    return last


def _write_unread(value: object) -> Raw:
    if isinstance(value, UnreadObject):
        return value.view
    raise NotImplementedError(f"{type(value).__name__} is not JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_write_unread)


def as_type(value: JsonValue, kind: type[T]) -> T | None:
    """Return JSON that we wrote ourselves as its type; None if it is something else, such as an older version's."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def as_object(answer: Mapping[str, object]) -> JsonObject:
    """Return a typed answer as plain JSON, for what passes on any."""
    plain: JsonObject = msgspec.to_builtins(answer)
    return plain


def encode(value: object) -> bytes:
    """Return `value` as UTF-8 JSON in one line; lone surrogates are written as `\\ud800` escapes."""
    if _holds_unread(value):
        # Between values a line end is a blank, and in a string there is none.
        return b"".join(encode_in_pieces(value)).replace(b"\n", b" ").replace(b"\r", b" ")
    try:
        return _encode(value)
    except RecursionError:
        # What could be read was read on a fuller stack than that of a new thread.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_encode, value).result()


def _encode(value: object) -> bytes:
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return json.dumps(_finite(value), separators=(",", ":"), default=dict).encode()


def _finite(value: object) -> object:
    """Return `value` without the infinities that numbers such as 1e400 are read as: JSON has none."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return dict(zip(value, map(_finite, value.values()), strict=True))
    return list(map(_finite, value)) if isinstance(value, list | tuple) else value


def encode_in_pieces(value: object) -> list[bytes | memoryview]:
    """Return the result of `encode` in pieces: an unread member is a view, which is not copied."""
    if not _holds_unread(value):
        return [encode(value)]
    pieces: list[bytes | memoryview] = []
    for name, inside in value.items():
        pieces += (b"," if pieces else b"{", encode(name), b":")
        pieces.append(memoryview(inside.view) if isinstance(inside, UnreadObject) else encode(inside))
    return [*pieces, b"}"]


def _holds_unread(value: object) -> TypeGuard[JsonObject]:
    return isinstance(value, dict) and UnreadObject in map(type, value.values())


def has_lone_surrogates(value: object) -> bool:
    """Return whether a text in `value` cannot be UTF-8; providers refuse its escape, too."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return True
    return False


def view(raw: bytes) -> Raw | None:
    """Return the value of a JSON text; None if it is not JSON, nests too deep or has lone surrogates."""
    try:
        return msgspec.json.decode(raw, type=Raw)
    except _UNREADABLE:
        return None


def children(raw: str | Raw) -> Children:
    """Return the members of an array or an object as views into `raw`; an empty list if it is neither."""
    try:
        return _CHILDREN.decode(raw)
    except _UNREADABLE:
        return []


def start(view: Raw, of: bytes) -> int:
    """Return where a view begins in the text that it was read from."""
    return _address(view) - _address(of)


def starts(views: Sequence[Raw], of: bytes) -> list[int]:
    """Return the places at which views into `of` begin."""
    beginning = _address(of)
    return [_address(view) - beginning for view in views]


def size(view: Raw) -> int:
    return len(memoryview(view))


def has_many_values(raw: bytes, max_values: int = MAX_VALUES, slice_bytes: int = COUNTED_BYTES) -> bool:
    """Return whether reading all values would cost too much: 32 MB of `[],[],…` take 900 MB and 4 s.

    Looks at one slice after the other: it is soon known of a body that holds too many, and while a thread looks at one
    that does not, others get their turn.
    """
    if len(raw) <= 2 * max_values or not _may_hold_more(raw, max_values, slice_bytes):
        return False
    values = quotes = at = 0
    while at < len(raw):
        end = _slice_end(raw, at + slice_bytes)
        bare = raw[at:end].replace(rb"\\", b"").replace(rb"\"", b"")  # the quotes that are left begin or end a string
        pieces = bare.split(b'"')
        values += _openings(b"".join(pieces[quotes % 2 :: 2]))
        quotes += len(pieces) - 1
        if values > max_values or quotes > 4 * max_values:
            return True
        at = end
    return False


def refuse_many_values(raw: bytes) -> None:
    """Raise ParseError if JSON holds too many values to be read; a long string is only one."""
    if has_many_values(raw):
        raise ParseError(f"JSON has more than {MAX_VALUES} values")


def _may_hold_more(raw: bytes, values: int, slice_bytes: int) -> bool:
    """Return whether there could be more values than that, ignoring strings."""
    left = values
    for at in range(0, len(raw), slice_bytes):
        left -= _openings(raw[at : at + slice_bytes])
        if left < 0:
            return True
    return False


def _slice_end(raw: bytes, end: int) -> int:
    """Return the first place from `end` on that no escape reaches across."""
    while 0 < end < len(raw) and raw[end - 1] == _BACKSLASH:
        end += 1
    return end


def _openings(raw: bytes) -> int:
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def _address(view: bytes | Raw) -> int:
    import numpy as np  # it takes longer to load than all else here, and only some requests need it

    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address


def _decode(raw: bytes | str) -> JsonValue:
    """Read strict JSON, and lone surrogates and huge numbers, which only the standard library accepts."""
    value: JsonValue
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        try:
            value = json.loads(_text(raw), parse_constant=_refuse_constant)
        except ValueError as e:
            raise ParseError(f"not valid JSON: {e}") from e
    return value


def _text(raw: bytes | str) -> str:
    try:
        return raw if isinstance(raw, str) else raw.decode("utf-8")
    except UnicodeDecodeError as e:
        raise ParseError(f"not UTF-8: {e.reason} at byte {e.start}") from e


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _is_deeper(value: JsonValue, limit: int) -> bool:
    level: list[JsonValue] = [value]
    for _ in range(limit + 1):
        below: list[JsonValue] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return False
        level = below
    return True
