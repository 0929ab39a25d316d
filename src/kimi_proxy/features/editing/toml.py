"""TOML: tables are edited and removed in the text itself, statement by statement.

tomlkit was tried instead: it removes comments that follow a table together with the table, and mixes line breaks."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.editing import gap_before, newline_of

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """A header or a `key = value`, with its place in the text; blank lines and comments have no path."""

    start: int
    end: int
    path: Path = ()
    is_header: bool = False


def load(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise FileRefused(f"it is not TOML: {e}") from e


def merge(text: str, path: Path, values: Mapping[str, JsonValue], dropped: Sequence[str] = ()) -> str:
    """Return `text` with `values` in the table at `path`, and without the keys in `dropped`.

    The empty path is the beginning of the file, before the first header.
    """
    statements = list(_statements(text))
    if path and not any(_is_below(path, statement) for statement in statements):
        return _append(text, path, values)
    if path and not any(statement.is_header and statement.path == path for statement in statements):
        raise FileRefused(f"{_dotted_key(path)} is not a table with its own header: write it as [{_dotted_key(path)}]")
    for key in dropped:
        text = remove(text, (*path, key))
    for key, value in values.items():
        text = _assign(text, path, key, value)
    return text


def remove(text: str, path: Path) -> str:
    """Return `text` without the table at `path` and its subtables. Comments stay."""
    statements = list(_statements(text))
    kept = [statement for statement in statements if not _is_below(path, statement)]
    gone = [statement for statement in statements if _is_below(path, statement)]
    if gone and gone[0].is_header:
        kept = _without_gap(text, kept, gone[0].start)
    return "".join(text[statement.start : statement.end] for statement in kept)


def _statements(text: str) -> Iterator[Statement]:
    """Yield the statements, each the shortest run of lines that is valid TOML on its own."""
    section: Path = ()
    start, end = 0, 0
    for line in text.split("\n"):
        end = min(end + len(line) + 1, len(text))
        try:
            tomllib.loads(text[start:end])
        except tomllib.TOMLDecodeError:
            continue
        found = text[start:end]
        if found.lstrip().startswith("["):
            section = _names(found)
            yield Statement(start, end, section, is_header=True)
        else:
            key = _key(found)
            yield Statement(start, end, section + key if key else ())
        start = end
    if start < end:
        load(text[start:])
        raise FileRefused(f"line {text.count(chr(10), 0, start) + 1} cannot be parsed")


def _key(statement: str) -> Path:
    """Return the names before the equals sign; none in a comment."""
    for place, character in enumerate(statement):
        if character == "=":
            try:
                return _names(statement[:place] + "= 0")
            except tomllib.TOMLDecodeError:
                continue
    return ()


def _names(statement: str) -> Path:
    names: list[str] = []
    at: object = tomllib.loads(statement)
    while isinstance(at, dict) and at:
        ((name, at),) = at.items()
        names.append(name)
    return tuple(names)


def _is_below(path: Path, statement: Statement) -> bool:
    return statement.path[: len(path)] == path


def _without_gap(text: str, kept: list[Statement], at: int) -> list[Statement]:
    """Drop the blank line before a removed table if nothing or another blank line follows."""

    def is_blank(statement: Statement) -> bool:
        return not text[statement.start : statement.end].strip()

    place = next((n for n, statement in enumerate(kept) if statement.start > at), len(kept))
    follows = place == len(kept) or is_blank(kept[place])
    return kept[: place - 1] + kept[place:] if place and follows and is_blank(kept[place - 1]) else kept


def _append(text: str, path: Path, values: Mapping[str, JsonValue]) -> str:
    lines = [f"[{_dotted_key(path)}]", *(f"{key} = {_value(value)}" for key, value in values.items())]
    return text + gap_before(text) + "".join(line + newline_of(text) for line in lines)


def _assign(text: str, path: Path, key: str, value: JsonValue) -> str:
    last = None
    inside = not path
    for statement in _statements(text):
        if statement.path == (*path, key) and not statement.is_header:
            return _reassign(text, statement, value)
        if statement.is_header:
            inside = statement.path == path
        if inside and statement.path:
            last = statement
    newline = newline_of(text)
    if last is None and not path:
        # A blank line keeps the comments of the first table apart from our line.
        return f"{key} = {_value(value)}{newline}{newline if text.strip() else ''}{text}"
    if last is None:
        raise FileRefused(f"{_dotted_key(path)} is not a table with its own header: write it as [{_dotted_key(path)}]")
    before = text[: last.end] + ("" if text[: last.end].endswith("\n") else newline)
    return f"{before}{key} = {_value(value)}{newline}{text[last.end :]}"


def _reassign(text: str, statement: Statement, value: JsonValue) -> str:
    old = text[statement.start : statement.end]
    meaning = tomllib.loads(old)
    equals = next(n for n, c in enumerate(old) if c == "=" and _key(old[: n + 1] + "0"))
    return text[: statement.start] + f"{old[:equals]}= {_value(value)}{_tail(old, meaning)}" + text[statement.end :]


def _tail(statement: str, meaning: Mapping[str, object]) -> str:
    """Return what follows the value: a comment, the end of the line."""
    for place, character in enumerate(statement):
        if character == "#":
            try:
                if tomllib.loads(statement[:place]) == meaning:
                    return statement[len(statement[:place].rstrip()) :]
            except tomllib.TOMLDecodeError:
                continue
    return statement[len(statement.rstrip()) :]


def _value(value: JsonValue) -> str:
    """Return a value as TOML: JSON's strings and lists are valid TOML, except for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _dotted_key(path: Path) -> str:
    return ".".join(path)
