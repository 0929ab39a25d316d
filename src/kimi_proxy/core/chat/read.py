"""Reading untrusted JSON, and a body with the position of each value.

A value of an unexpected type reads as empty. Values are views into the body, so that one of them can be replaced while
every other byte stays: unknown fields, the order of keys, `1e400`, `-0` and the spelling of escapes.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias, TypeVar, TypeVarTuple

import msgspec
from msgspec import Raw

from kimi_proxy.core import json
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue

RawObject: TypeAlias = dict[str, Raw]

OBJECT = msgspec.json.Decoder(RawObject)
STRING = msgspec.json.Decoder(str)
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_ARRAY = msgspec.json.Decoder(list[Raw])

MAX_SMALL_BYTES = 64 * 1024


# Views into a body


class _SmallMembers(msgspec.Struct):
    """The members by which a request finds its model, its provider and its session; all others are skipped."""

    model: Raw = Raw()
    stream: Raw = Raw()
    store: Raw = Raw()
    n: Raw = Raw()
    conversation: Raw = Raw()
    previous_response_id: Raw = Raw()
    external_session_id: Raw = Raw()
    prompt_cache_key: Raw = Raw()
    metadata: Raw = Raw()


_SMALL = msgspec.json.Decoder(_SmallMembers)


def few_members(body: bytes) -> RawObject:
    """Return the small members of an object, in the memory that they take alone. Raise DecodeError if it is none."""
    found = msgspec.structs.asdict(_SMALL.decode(body))
    return {name: raw for name, raw in found.items() if 0 < len(memoryview(raw)) <= MAX_SMALL_BYTES}


def members(raw: Raw | None) -> RawObject:
    try:
        return {} if raw is None else OBJECT.decode(raw)
    except UNREADABLE:
        return {}


def array(raw: Raw | None) -> list[Raw]:
    try:
        return [] if raw is None else _ARRAY.decode(raw)
    except UNREADABLE:
        return []


def string(raw: Raw | None) -> str:
    try:
        return "" if raw is None else STRING.decode(raw)
    except UNREADABLE:
        return ""


def value(raw: Raw | None) -> JsonValue:
    try:
        read: JsonValue = None if raw is None else msgspec.json.decode(raw)
        return read
    except UNREADABLE:
        return None


def value_of(data: bytes) -> JsonValue:
    """Return the value of JSON that a provider sent; None if it is none."""
    try:
        return json.decode(data)
    except ParseError:
        return None


def json_object(data: bytes) -> RawObject | None:
    """Return the members of the JSON object that a provider sent; None if it is none."""
    try:
        json.refuse_many_values(data)
        return OBJECT.decode(data)
    except (*UNREADABLE, ParseError):
        return None


def is_string(raw: Raw) -> bool:
    return memoryview(raw)[0] == ord('"')


def is_array(raw: Raw) -> bool:
    return memoryview(raw)[0] == ord("[")


def is_true(raw: Raw | None) -> bool:
    return raw is not None and bytes(raw) == b"true"


def is_deferring(tools: Raw) -> bool:
    """Return whether tools may be deferred in a list of them."""
    return b'"defer_loading"' in bytes(tools)


def is_deferred(tool: Raw) -> bool:
    """Return whether a tool is no part of the prompt until the model has found it."""
    return is_deferring(tool) and is_true(members(tool).get("defer_loading"))


# Values


def as_object(value: JsonValue) -> JsonObject:
    return dict(value) if isinstance(value, Mapping) else {}


def as_objects(value: JsonValue) -> list[JsonObject]:
    return [dict(item) for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def as_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def as_index(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


Edit: TypeAlias = tuple[int, int, bytes]  # start and end of the replaced bytes, and the replacement
Role: TypeAlias = Literal["system", "user", "assistant", "tool", "other"]
Kind: TypeAlias = Literal["text", "tool_call", "tool_result", "thinking", "image", "other"]

PARAGRAPH = "\n\n"  # between a client's text and our addition

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_COMMA = re.compile(rb"\s*,\s*")
_BETWEEN = re.compile(rb"[\s,]*")
_WITHOUT_TEXT = frozenset({"image", "other"})

# A backslash and the escaped character; the group is half of a surrogate pair.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


Given = TypeVarTuple("Given")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Part:
    """A part of a message, and the position of its text in the bytes of that message."""

    kind: Kind
    start: int
    end: int
    body: bytes = field(repr=False, compare=False)  # of the message; of the whole request for a part that is in none
    call_id: str = ""  # of the tool call that this is, or that it answers
    name: str = ""  # of the tool that is called
    failed: bool = False  # the tool marked its own result as an error
    sealed: int = 0  # characters of a thinking that only its provider can read
    _derived: dict[object, object] = field(default_factory=dict, repr=False, compare=False)

    def derive(self, compute: Callable[["Part", *Given], Value], *args: *Given) -> Value:
        """Return what a pure function returns for this part; computed once, as long as the part is remembered."""
        known = (compute, args)
        if known not in self._derived:
            self._derived[known] = compute(self, *args)
        found: Value = self._derived[known]  # type: ignore[assignment]
        return found

    @cached_property
    def text(self) -> str:
        """Return the text that the model reads; arguments that are an object are returned as JSON."""
        raw = self.body[self.start : self.end]
        if self.kind in _WITHOUT_TEXT:
            return ""
        try:
            return STRING.decode(raw) if self.is_string else raw.decode()
        except UnicodeDecodeError as e:
            raise ParseError("not JSON: a string is not UTF-8") from e
        except msgspec.DecodeError:  # lone surrogates
            return str(json.decode(raw))

    @property
    def is_string(self) -> bool:
        """Return whether the text can be replaced."""
        return self.kind not in _WITHOUT_TEXT and self.body[self.start : self.start + 1] == b'"'


@dataclass(frozen=True, slots=True)
class Content:
    """What a message says, wherever it stands: later requests of a conversation share it."""

    role: Role
    parts: tuple[Part, ...]
    _derived: dict[object, object] = field(default_factory=dict, repr=False, compare=False)

    def derive(self, compute: Callable[["Content", *Given], Value], *args: *Given) -> Value:
        """Return what a pure function returns for this message; computed once, as long as it is remembered."""
        known = (compute, args)
        if known not in self._derived:
            self._derived[known] = compute(self, *args)
        found: Value = self._derived[known]  # type: ignore[assignment]
        return found


class Message(NamedTuple):
    """A message at its position in a body. A tuple, because a request may have thousands."""

    role: Role
    parts: tuple[Part, ...]
    start: int
    end: int
    content: Content


class Fragment:
    """Bytes of which values are read, each with its position."""

    def __init__(self, body: bytes, readable: bytes | Raw) -> None:
        """`readable` is what views look into: as long as `body`, and at another address if it had to be repaired."""
        self.body = body
        self._address = _address(readable)

    def span(self, raw: Raw) -> tuple[int, int]:
        """Return where a value begins and ends."""
        start = _address(raw) - self._address
        return start, start + len(memoryview(raw))

    def part(self, kind: Kind, raw: Raw, call_id: str = "", name: str = "", failed: bool = False) -> Part:
        return Part(kind, *self.span(raw), self.body, call_id, name, failed)

    def thinking(self, raw: Raw, sealed: Raw | None) -> Part:
        return Part("thinking", *self.span(raw), self.body, sealed=0 if sealed is None else len(memoryview(sealed)))

    def parts(
        self, content: Raw | None, kind: Kind, kinds: Mapping[str, Kind], call_id: str = "", failed: bool = False
    ) -> Iterator[Part]:
        """Return the parts of a string or of blocks: texts are of `kind`, `kinds` has what types of blocks are."""
        if content is not None and is_string(content):
            yield self.part(kind, content, call_id, failed=failed)
            return
        for raw in array(content):
            block = members(raw)
            found = kinds.get(string(block.get("type")), "other")
            text = block.get("text") or block.get("refusal")
            if found == "text" and text is not None:
                yield self.part(kind, text, call_id, failed=failed)
            else:
                yield self.part("image" if found == "image" else "other", raw, call_id)


class JsonBody(Fragment):
    """An object whose members are views; edits of it are spans with what replaces them, to be given to `splice`."""

    def __init__(self, body: bytes) -> None:
        """Raise ParseError if `body` is not a JSON object."""
        self.is_crowded = json.has_many_values(body)  # it holds too many values to be read: `members` has few of it
        readable = body
        members = few_members if self.is_crowded else OBJECT.decode
        try:
            self.members: RawObject = members(body)
        except RecursionError as e:
            raise ParseError("JSON is nested too deep") from e
        except (msgspec.DecodeError, UnicodeDecodeError):  # the latter of a key that is not UTF-8
            readable = _without_lone_surrogates(body)
            try:
                self.members = members(readable)
            except UNREADABLE as e:
                raise ParseError(f"not a JSON object: {e}") from e
        self._readable = readable  # views look into it
        super().__init__(body, readable)

    def items(self, listed: Raw | None) -> Iterator[tuple[Raw, int, int]]:
        """Return the items of an array in this body, each with where it begins and ends."""
        found = array(listed)
        if listed is None or not found:
            return
        at = self.span(listed)[0] + 1
        for raw in found:
            at = _BETWEEN.match(self.body, at).end()  # type: ignore[union-attr]  # it matches nothing, too
            end = at + len(memoryview(raw))
            yield raw, at, end
            at = end

    def has(self, name: str) -> bool:
        """Return whether this member exists and is not null; no member has an empty name."""
        raw = self.members.get(name) if name else None
        return raw is not None and bytes(raw) != b"null"

    def set(self, name: str, value: JsonValue) -> Edit:
        """Replace a member, or add it at the end of the body."""
        before = self.members.get(name)
        if before is not None:
            return (*self.span(before), json.encode(value))
        end = self.body.rindex(b"}")
        return end, end, b"," + json.encode(name) + b":" + json.encode(value)

    def remove(self, name: str) -> Edit | None:
        """Take a member out, with the comma before it, or after it if it is the first; None if there is none."""
        if (value := self.members.get(name)) is None:
            return None
        at, end = self.span(value)
        start = self.body.rindex(b'"', 0, self.body.rindex(b'"', 0, at))
        before = len(self.body[:start].rstrip())
        if self.body[before - 1 : before] == b",":
            return before - 1, end, b""
        after = _COMMA.match(self.body, end)
        return start, after.end() if after else end, b""

    def append(self, name: str, items: Sequence[JsonValue]) -> Edit:
        """Add to the end of an array; one that is missing is added to the body."""
        raw = self.members.get(name)
        if raw is None or not is_array(raw):
            return self.set(name, items)
        return self.append_to(raw, items)

    def append_to(self, held: Raw, items: Sequence[JsonValue]) -> Edit:
        """Append to an array at any position in the body."""
        end = self.span(held)[1] - 1
        return end, end, (b"," if array(held) else b"") + json.encode(items)[1:-1]

    def add_text(self, content: Raw, text: str) -> list[Edit]:
        """Add to the end of a string, or as the last of several blocks; nothing where it is neither."""
        end = self.span(content)[1] - 1
        if is_string(content):
            return [(end, end, json.encode(PARAGRAPH + text if len(bytes(content)) > 2 else text)[1:-1])]
        if is_array(content):
            return [(end, end, (b"," if array(content) else b"") + json.encode(text_block(text)))]
        return []


def role_of(raw: Raw | None) -> Role:
    return _ROLES.get(string(raw), "other")


def text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def splice(body: bytes, edits: Iterable[Edit]) -> bytes:
    """Return `body` with each span replaced; spans must not overlap."""
    pieces: list[bytes] = []
    at = 0
    for start, end, new in sorted(edits):
        pieces += (body[at:start], new)
        at = end
    return b"".join((*pieces, body[at:]))


def _address(view: bytes | Raw) -> int:
    """Return the memory address of the bytes: the addresses of a view and its body differ by the view's offset."""
    import numpy as np  # it takes longer to load than all else here, and only some requests need it

    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address


def _without_lone_surrogates(body: bytes) -> bytes:
    """Replace escapes that the parser rejects by others of the same length, so that all positions stay the same."""
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], body)
