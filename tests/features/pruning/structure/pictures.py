"""Texts drawn with what is expected of each line in front of it."""

from kimi_proxy.core.prune import SourceType
from kimi_proxy.features.pruning.engine import outline
from kimi_proxy.features.pruning.structure.blocks import Block, Outline

SIGNS = {
    "": " ", "import": "I", "signature": "S", "signature+": "+", "header": "H", "likeness": "~", "heading": "H",
    "error": "E", "context": "c", "traceback": "T", "failure": "F", "diagnostic": "D", "no_prune": "N",
}  # fmt: skip


def lines_of(picture: str) -> list[str]:
    """The text of a picture: what stands after `X|` on each line."""
    return [line[2:] for line in picture.strip("\n").split("\n")]


def drawn(lines: list[str], source_type: SourceType) -> str:
    """The picture of `lines` as our outline sees them."""
    found = outline(lines, source_type)
    return "\n".join(f"{SIGNS[why]}|{line}" for why, line in zip(found.protected, lines, strict=True))


def redrawn(picture: str, source_type: SourceType) -> str:
    return drawn(lines_of(picture), source_type)


def expected(picture: str) -> str:
    return picture.strip("\n")


def told(found: Outline) -> list[tuple[str, str, int, int]]:
    """Kind, name, start and end of each block that has a name."""
    return [(b.kind, b.name, b.start, b.end) for b in found.blocks if b.name]


def block(found: Outline, name: str) -> Block:
    return next(b for b in found.blocks if b.name == name)
