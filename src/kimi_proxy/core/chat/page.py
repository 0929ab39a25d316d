"""A JSON body as it came, and where in it each value stands.

Values are read as views into the body, so that one of them can be replaced and every other byte stays: unknown
fields, the order of keys, `1e400`, `-0` and the spelling of escapes.
"""

import re
from collections.abc import Iterable
from typing import TypeAlias

import msgspec
import numpy as np
from msgspec import Raw

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import ParseError

Object: TypeAlias = dict[str, Raw]

_OBJECT = msgspec.json.Decoder(Object)
_ARRAY = msgspec.json.Decoder(list[Raw])
_STRING = msgspec.json.Decoder(str)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# A backslash and what it escapes; the group is a lone half of a surrogate pair.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


class Page:
    def __init__(self, body: bytes) -> None:
        """ParseError if `body` is not a JSON object."""
        jsontext.refuse_crowd(body)
        self.body = body
        self._readable = body
        try:
            self.members: Object = _OBJECT.decode(body)
        except RecursionError as e:
            raise ParseError("JSON is nested too deep") from e
        except msgspec.DecodeError:
            self._readable = _without_lone_surrogates(body)
            self.members = _object_or_error(self._readable)
        self._address = _address(self._readable)

    def span(self, raw: Raw) -> tuple[int, int]:
        """Where a value of this page begins and ends in the body."""
        start = _address(raw) - self._address
        return start, start + len(memoryview(raw))

    @property
    def end(self) -> int:
        """The place of the closing brace."""
        return self.body.rindex(b"}")


def object_of(raw: Raw | None) -> Object:
    """The members of an object; none if `raw` is something else."""
    try:
        return {} if raw is None else _OBJECT.decode(raw)
    except _UNREADABLE:
        return {}


def array_of(raw: Raw | None) -> list[Raw]:
    """The elements of an array; none if `raw` is something else."""
    try:
        return [] if raw is None else _ARRAY.decode(raw)
    except _UNREADABLE:
        return []


def string_of(raw: Raw | None) -> str:
    """The text of a string; none if `raw` is something else."""
    try:
        return "" if raw is None else _STRING.decode(raw)
    except _UNREADABLE:
        return ""


def text_of(raw: bytes) -> str:
    """The text of a string that is known to be one, lone surrogates included."""
    try:
        return _STRING.decode(raw)
    except msgspec.DecodeError:
        return str(jsontext.decode(raw))


def is_string(raw: Raw) -> bool:
    return memoryview(raw)[0] == ord('"')


def is_array(raw: Raw) -> bool:
    return memoryview(raw)[0] == ord("[")


def splice(body: bytes, edits: Iterable[tuple[int, int, bytes]]) -> bytes:
    """`body` with each span replaced; spans do not overlap."""
    pieces: list[bytes] = []
    at = 0
    for start, end, new in sorted(edits):
        pieces += (body[at:start], new)
        at = end
    return b"".join((*pieces, body[at:]))


def _object_or_error(body: bytes) -> Object:
    try:
        return _OBJECT.decode(body)
    except _UNREADABLE as e:
        raise ParseError(f"not a JSON object: {e}") from e


def _address(view: bytes | Raw) -> int:
    """Where in memory the bytes are: a view and its body differ by the place of the view."""
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address


def _without_lone_surrogates(body: bytes) -> bytes:
    """The parser refuses what a file may hold; a copy of the same length shows where everything stands."""
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], body)
