"""The middle of a JSON text: members that can go while the text stays JSON.

Only the head and the tail are read; what lies between is skipped, not built.
"""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kimi_proxy.core import deepjson

Kind: TypeAlias = Literal["array", "object"]

# Each level is one more pass over what is inside it.
MAX_LEVELS = 32

# A string that the head breaks off runs to the end of it, an escape possibly torn.
_FORWARD = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\],]', re.DOTALL)
# Read backwards, a quote inside a string has its backslash behind it; the opening quote never has.
_BACKWARD = re.compile(r'"(?:[^"]|"(?=\\))*+(?:"|\Z)|[{}\[\],]', re.DOTALL)


@dataclass(slots=True)
class _Frame:
    """A container around the end of a part: how many of its members lie whole before, and where they end."""

    kind: Kind
    whole: int
    edge: int


def middle(text: str, head_chars: int, tail_chars: int) -> tuple[int, int, Kind] | None:
    """Where the members begin and end that neither the head nor the tail holds whole.

    They belong to the innermost container that the head enters and the tail leaves. What is left
    of it ends and begins with a comma, or with its brackets: exactly one member fits in between.
    """
    entered = _frames(text[:head_chars], _FORWARD, "{[")
    left = _frames(text[len(text) - tail_chars :][::-1], _BACKWARD, "}]")
    inside = deepjson.members(text)
    for front, back in list(zip(entered, left, strict=False))[:MAX_LEVELS]:
        last = len(inside) - 1 - back.whole
        if front.whole < last:
            return front.edge, len(text) - back.edge, front.kind
        if front.whole > last:
            return None
        inside = deepjson.members(inside[last])
    return None


def _frames(part: str, tokens: re.Pattern[str], openings: str) -> list[_Frame]:
    """The containers that are still open at the end of `part`, outermost first."""
    open_: list[_Frame] = []
    for token in tokens.finditer(part):
        character = part[token.start()]
        if token.end() == len(part):
            break
        if character == '"':
            continue
        if character == ",":
            open_[-1].whole += 1
            open_[-1].edge = token.end()
        elif character in openings:
            open_.append(_Frame("object" if character in "{}" else "array", 0, token.end()))
        elif len(open_) > 1:
            open_.pop()
    return open_
