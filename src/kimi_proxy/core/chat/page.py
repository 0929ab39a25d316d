"""A JSON body as it came, and where in it each value stands.

Values are read as views into the body, so that one of them can be replaced and every other byte stays: unknown
fields, the order of keys, `1e400`, `-0` and the spelling of escapes."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Literal, TypeAlias

import msgspec
import numpy as np
from msgspec import Raw

from kimi_proxy.core import json
from kimi_proxy.core.errors import ParseError


class Wire(Enum):
    CHAT = "chat"  # OpenAI, POST /v1/chat/completions
    MESSAGES = "messages"  # Anthropic, POST /v1/messages
    RESPONSES = "responses"  # OpenAI, POST /v1/responses


# A JSON body as it came, and where in it each value stands.
#
# Values are read as views into the body, so that one of them can be replaced and every other byte stays: unknown
# fields, the order of keys, `1e400`, `-0` and the spelling of escapes.

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
        json.refuse_many_values(body)
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
        return str(json.decode(raw))


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


Role: TypeAlias = Literal["system", "user", "assistant", "tool", "other"]
Kind: TypeAlias = Literal["text", "tool_call", "tool_result", "thinking", "image", "other"]

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_WORDLESS = frozenset({"image", "other"})


@dataclass(frozen=True)
class Part:
    """A piece of a message, and where its text stands in the body."""

    kind: Kind
    start: int
    end: int
    body: bytes = field(repr=False, compare=False)
    call_id: str = ""  # of the tool call that this is, or that it answers
    name: str = ""  # of the tool that is called
    failed: bool = False  # a tool said so of its own result

    @cached_property
    def text(self) -> str:
        """What the model reads; arguments that are an object are told as JSON."""
        raw = self.body[self.start : self.end]
        if self.kind in _WORDLESS:
            return ""
        return text_of(raw) if self.is_string else raw.decode()

    @property
    def is_string(self) -> bool:
        """Whether the text can be replaced by another."""
        return self.kind not in _WORDLESS and self.body[self.start : self.start + 1] == b'"'


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    parts: tuple[Part, ...]
    start: int
    end: int


def role_of(name: str) -> Role:
    return _ROLES.get(name, "other")


def part(page: Page, kind: Kind, raw: Raw, call_id: str = "", name: str = "", failed: bool = False) -> Part:
    start, end = page.span(raw)
    return Part(kind, start, end, page.body, call_id, name, failed)
