"""How much of a text is memory."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kimi_proxy.features.memory.patterns import KINDS, segments

PREVIEW_CHARS = 80


@dataclass(frozen=True, slots=True)
class Found:
    """The memory of one kind in a text or in a whole request."""

    kind: str
    count: int
    tokens: int
    preview: str  # how the first of it begins


@dataclass(frozen=True, slots=True)
class Portion:
    """A text's tokens, and those among them that are memory."""

    tokens: int
    memory: int = 0
    found: tuple[Found, ...] = ()


def portion(text: str, count: Callable[[str], int]) -> Portion:
    """Each segment is counted by itself; together they are never more than the text."""
    counted = count(text)
    pieces = [(one.kind, text[one.start : one.end]) for one in segments(text)]
    if not pieces:
        return Portion(counted)
    found = together(Found(kind, 1, count(piece), _preview(piece)) for kind, piece in pieces)
    return Portion(counted, min(counted, sum(one.tokens for one in found)), found)


def together(found: Iterable[Found]) -> tuple[Found, ...]:
    """One for each kind."""
    by_kind: dict[str, Found] = {}
    for one in found:
        first = by_kind.get(one.kind)
        if first is not None:
            one = Found(one.kind, first.count + one.count, first.tokens + one.tokens, first.preview)
        by_kind[one.kind] = one
    return tuple(by_kind[kind] for kind in KINDS if kind in by_kind)


def _preview(piece: str) -> str:
    # A line is enough to know it again; what a database can't hold is left out.
    line = " ".join(piece[: PREVIEW_CHARS * 4].split())
    return line[:PREVIEW_CHARS].encode("utf-8", "replace").decode()
