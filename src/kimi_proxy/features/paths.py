"""Which arguments of a tool call name files, so that they can be kept inside a root."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import unquote, urlsplit

from kimi_proxy.core.types import JsonValue

MAX_PATH_CHARS = 4096

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_PATH_WORDS = frozenset(
    (
        *("path", "paths", "file", "files", "filename", "filepath", "dir", "dirs", "directory", "directories"),
        *("folder", "folders", "root", "roots", "cwd", "uri", "uris", "source", "src", "destination", "dest", "dst"),
        *("target", "workspace", "repo", "repository", "location"),
    )
)
_TEXT_WORDS = frozenset(
    (
        *("content", "contents", "text", "texts", "pattern", "patterns", "query", "regex", "search", "replace"),
        *("replacement", "old", "new", "message", "description", "prompt", "thought", "body", "code", "title"),
        *("goal", "note", "notes", "summary", "comment", "data", "value", "diff", "patch", "sql", "expression"),
    )
)
_LOOKS_LIKE_PATH = re.compile(r"/(?!/)|~|\.\.?[/\\]|file:|[A-Za-z]:\\")


@dataclass(frozen=True, slots=True)
class PathArgument:
    """A path, and the name of the argument it came in."""

    name: str
    path: str


def in_arguments(arguments: JsonValue) -> Iterator[PathArgument]:
    """Every string that is a path by its argument's name, or looks like one and isn't a text by its name."""
    rest: list[tuple[str, JsonValue]] = [("", arguments)]
    while rest:
        name, value = rest.pop()
        if isinstance(value, str):
            if _is_path(name, value):
                yield PathArgument(name, _without_scheme(value))
        elif isinstance(value, Mapping):
            rest.extend((str(key), item) for key, item in value.items())
            rest.extend(("", str(key)) for key in value)  # the name of a member may be a path as well
        elif isinstance(value, list):
            rest.extend((name, item) for item in value)


def is_inside(path: str, root: str) -> bool:
    """Part by part: /a/root-evil is not in /a/root. Both are real paths already."""
    return PurePath(path).is_relative_to(root)


def _is_path(name: str, value: str) -> bool:
    word = next(reversed(_WORD.findall(name)), "").lower()
    if word in _PATH_WORDS:
        # An address on the net is no path.
        return "://" not in value or value.lower().startswith("file:")
    is_short = len(value) <= MAX_PATH_CHARS and "\n" not in value
    looks = _LOOKS_LIKE_PATH.match(value) is not None or "/../" in value or value.endswith("/..")
    return is_short and looks and word not in _TEXT_WORDS


def _without_scheme(value: str) -> str:
    if not value.lower().startswith("file:"):
        return value
    try:
        parts = urlsplit(value)
    except ValueError:
        return value
    return unquote(parts.path if parts.netloc in ("", "localhost") else f"//{parts.netloc}{parts.path}")
