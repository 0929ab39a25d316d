"""JSON with comments and trailing commas: members are changed and removed in the text itself."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.editing import newline_of

MAX_DEPTH = 200

_TRIVIA = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.S)
_SCALAR = re.compile(
    r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null', re.A | re.S
)
_REST_OF_LINE = re.compile(r"(?:[ \t]++|/\*[^*\n]*+(?:\*(?!/)[^*\n]*+)*\*/)*(?://[^\r\n]*+)?(?=[\r\n]|\Z)")
_FIRST_MEMBER = re.compile(r"\{\s*?\n([ \t]+)\S")

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A value and its span in the text, the end not included."""

    start: int
    end: int
    value: JsonValue
    members: tuple["Member", ...] | None = None  # of an object
    items: tuple["Value", ...] | None = None  # of an array

    def member(self, key: str) -> "Member | None":
        found = [member for member in self.members or () if member.key == key]
        if len(found) > 1:
            raise FileRefused(f"it contains {key!r} more than once")
        return found[0] if found else None


@dataclass(frozen=True, slots=True)
class Member:
    key: str
    start: int
    value: Value


@lru_cache(maxsize=2)  # one change reads the same text several times
def parse(text: str) -> Value:
    """Return the one value of `text`. Raise FileRefused with the position of the first error."""
    return _Parser(text).document()


def load(text: str) -> JsonValue:
    """Return the value of `text`; an empty object if there is nothing but white space and comments."""
    return {} if _is_blank(text) else parse(text).value


def merge(text: str, path: Path, values: Mapping[str, JsonValue], dropped: Sequence[str] = ()) -> str:
    """Return `text` with `values` in the object at `path`, and without the keys in `dropped`."""
    if not isinstance(get(text, path), dict):
        return put(text, path, dict(values))
    for key, value in values.items():
        if get(text, (*path, key)) != value:
            text = put(text, (*path, key), value)
    for key in dropped:  # at the end; the addition has lines of its own if the existing members do
        text = remove(text, (*path, key))
    return text


def get(text: str, path: Path) -> JsonValue:
    """Return the value at `path`; None if there is none."""
    found = None if _is_blank(text) else _find(parse(text), path)
    return found.value if found else None


def put(text: str, path: Path, value: JsonValue) -> str:
    """Return `text` with `value` at `path`; missing objects on the way are created."""
    if _is_blank(text):
        comments = text if not text.strip() or text.endswith("\n") else text + newline_of(text)
        text = comments + "{}" + newline_of(text)
    at = parse(text)
    for depth, key in enumerate(path):
        if at.members is None:
            raise FileRefused(f"{'.'.join(path[:depth]) or 'the file'} is not an object")
        member = at.member(key)
        if member is None:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            return _insert(text, at, key, value)
        at = member.value
    return text[: at.start] + _written(text, value, _indent(text, at.start)) + text[at.end :]


def remove(text: str, path: Path) -> str:
    """Return `text` without the member at `path`."""
    parent = None if _is_blank(text) else _find(parse(text), path[:-1])
    member = parent.member(path[-1]) if parent and parent.members is not None else None
    return text if parent is None or member is None else _cut(text, parent, member)


def append(text: str, path: Path, value: JsonValue) -> str:
    """Return `text` with `value` at the end of the array at `path`, which is created if it is missing."""
    found = None if _is_blank(text) else _find(parse(text), path)
    if found is None:
        return put(text, path, [value])
    if found.items is None:
        raise FileRefused(f"{'.'.join(path)} is not a list")
    if not found.items:
        return put(text, path, [value])
    last = found.items[-1]
    before = text[found.start : last.start]
    glue = before[len(before.rstrip()) :] if len(found.items) == 1 else _gap(text, found.items[-2].end, last.start)
    new = _written(text, value, _indent(text, last.start)) if "\n" in glue else _compact(value, " ")
    return text[: last.end] + "," + (glue or " ") + new + text[last.end :]


def remove_item(text: str, path: Path, value: JsonValue) -> str:
    """Return `text` without the items of the array at `path` that equal `value`."""
    found = None if _is_blank(text) else _find(parse(text), path)
    items = (found.items if found else None) or ()
    at = next((at for at, item in enumerate(items) if item.value == value), None)
    if found is None or at is None:
        return text
    if len(items) == 1:
        return text[: found.start] + "[]" + text[found.end :]
    start, end = (items[at - 1].end, items[at].end) if at else (items[0].start, items[1].start)
    return remove_item(text[:start] + text[end:], path, value)


def _gap(text: str, start: int, end: int) -> str:
    """Return the white space between a comma after `start` and `end`."""
    between = text[start:end]
    return between[len(between.rstrip()) :]


def _find(at: Value, path: Path) -> Value | None:
    for key in path:
        member = at.member(key)
        if member is None:
            return None
        at = member.value
    return at


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text

    def document(self) -> Value:
        value = self._value(_skip(self._text, 0), 0)
        if _skip(self._text, value.end) != len(self._text):
            raise self._wrong(value.end)
        return value

    def _value(self, start: int, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise FileRefused(f"it is nested deeper than {MAX_DEPTH} levels")
        match self._text[start : start + 1]:
            case "{":
                return self._object(start, depth)
            case "[":
                return self._array(start, depth)
        return self._scalar(start)

    def _scalar(self, start: int) -> Value:
        found = _SCALAR.match(self._text, start)
        if found is None:
            raise self._wrong(start)
        try:
            return Value(start, found.end(), json.loads(found[0]))
        except ValueError as e:
            raise self._wrong(start) from e

    def _array(self, start: int, depth: int) -> Value:
        items: list[Value] = []
        at = _skip(self._text, start + 1)
        while self._text[at : at + 1] != "]":
            items.append(self._value(at, depth + 1))
            at = self._after_comma(items[-1].end, "]")
        return Value(start, at + 1, [item.value for item in items], items=tuple(items))

    def _object(self, start: int, depth: int) -> Value:
        members: list[Member] = []
        at = _skip(self._text, start + 1)
        while self._text[at : at + 1] != "}":
            member = self._member(at, depth)
            members.append(member)
            at = self._after_comma(member.value.end, "}")
        return Value(start, at + 1, {member.key: member.value.value for member in members}, tuple(members))

    def _member(self, start: int, depth: int) -> Member:
        key = self._scalar(start)
        colon = _skip(self._text, key.end)
        if not isinstance(key.value, str) or self._text[colon : colon + 1] != ":":
            raise self._wrong(start)
        return Member(key.value, start, self._value(_skip(self._text, colon + 1), depth + 1))

    def _after_comma(self, at: int, closing: str) -> int:
        at = _skip(self._text, at)
        match self._text[at : at + 1]:
            case ",":
                return _skip(self._text, at + 1)
            case found if found == closing:
                return at
        raise self._wrong(at)

    def _wrong(self, at: int) -> FileRefused:
        line = self._text.count("\n", 0, at) + 1
        return FileRefused(f"line {line} is not JSON: {self._text[at : at + 20]!r}")


def _skip(text: str, at: int) -> int:
    """Return where white space and comments after `at` end."""
    found = _TRIVIA.match(text, at)
    return found.end() if found else at


def _is_blank(text: str) -> bool:
    return _skip(text, 0) == len(text)


def _insert(text: str, parent: Value, key: str, value: JsonValue) -> str:
    if not parent.members:
        return _insert_first(text, parent, key, value)
    last = parent.members[-1]
    comma = _comma_after(text, last.value.end)
    after = last.value.end if comma is None else comma + 1
    if not _spread(text, parent) and "\n" not in text[after : parent.end]:
        glue = " " if ": " in text[last.start : last.value.end] or ", " in text[parent.start : parent.end] else ""
        new = f"{json.dumps(key, ensure_ascii=False)}:{glue}{_compact(value, glue)}"
        return text[: last.value.end] + f",{glue}{new}" + text[last.value.end :]
    indent = _indent(text, last.start)
    # A comment at the end of the last member's line stays with it.
    end_of_line = _end_of_line(text, after)
    new = f"{newline_of(text)}{indent}{json.dumps(key, ensure_ascii=False)}: {_written(text, value, indent)}"
    closing = "" if comma is None else ","
    opening = "," if comma is None else ""
    return text[: last.value.end] + opening + text[last.value.end : end_of_line] + new + closing + text[end_of_line:]


def _insert_first(text: str, parent: Value, key: str, value: JsonValue) -> str:
    inside = text[parent.start + 1 : parent.end - 1]
    quoted = json.dumps(key, ensure_ascii=False)
    if "\n" not in text.strip() and inside.strip() == "" and parent.start > 0:
        return f"{text[: parent.start]}{{{quoted}:{_compact(value, '')}}}{text[parent.end :]}"
    base = _indent(text, parent.start)
    newline = newline_of(text)
    indent = base + _unit(text)
    member = f"{newline}{indent}{quoted}: {_written(text, value, indent)}{newline}{base}}}"
    return f"{text[: parent.start + 1]}{inside.rstrip()}{member}{text[parent.end :]}"


def _cut(text: str, parent: Value, member: Member) -> str:
    members = parent.members or ()
    end = member.value.end
    comma = _comma_after(text, end)
    if len(members) == 1:
        after = text[end : parent.end - 1] if comma is None else text[end:comma] + text[comma + 1 : parent.end - 1]
        inside = text[parent.start + 1 : member.start] + after
        return f"{text[: parent.start]}{{{inside if inside.strip() else ''}}}{text[parent.end :]}"
    if comma is not None:
        if text[end:comma].strip():  # a comment
            return _without(text[:comma] + text[comma + 1 :], member.start, end)
        return _without(text, member.start, comma + 1)
    # The last member without a trailing comma: remove the comma before it too.
    before = _comma_after(text, members[-2].value.end) or member.start
    if not text[before + 1 : member.start].strip():
        return text[:before] + text[end:]
    return text[:before] + _without(text, member.start, end)[before + 1 :]


def _without(text: str, start: int, end: int) -> str:
    """Return `text` without a part, and without its lines if nothing else is on them."""
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    if stop >= 0 and not text[begin:start].strip() and not text[end:stop].strip():
        return text[:begin] + text[stop + 1 :]
    while text[end : end + 1] in (" ", "\t"):
        end += 1
    return text[:start] + text[end:]


def _comma_after(text: str, at: int) -> int | None:
    at = _skip(text, at)
    return at if text[at : at + 1] == "," else None


def _end_of_line(text: str, at: int) -> int:
    """Return where the line ends if only white space and comments come before that; else `at`."""
    found = _REST_OF_LINE.match(text, at)
    return found.end() if found else at


def _spread(text: str, parent: Value) -> bool:
    """Return whether an object has its members on separate lines."""
    return bool(parent.members) and "\n" in text[parent.start : (parent.members or ())[0].start]


def _indent(text: str, at: int) -> str:
    """Return the indentation of the line around `at`."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    found = _FIRST_MEMBER.search(text)
    return found[1] if found else "  "


def _written(text: str, value: JsonValue, indent: str) -> str:
    """Return `value` in the style of the file, its second and later lines indented by `indent`."""
    if "\n" not in text.strip() and len(text.strip()) > 2:
        return _compact(value, " " if ": " in text else "")
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return (newline_of(text) + indent).join(lines)


def _compact(value: JsonValue, glue: str) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(f",{glue}", f":{glue}"))
