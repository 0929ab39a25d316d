"""NO_PRUNE directives: lines that the author of a text wants kept."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from kimi_proxy.core.markers import NO_PRUNE_BEGIN, NO_PRUNE_END
from kimi_proxy.core.prune import SourceType
from kimi_proxy.features.pruning.structure import code, docs, logs
from kimi_proxy.features.pruning.structure.blocks import Block, Outline


def forbid_pruning(lines: Sequence[str], outline: Outline) -> Outline:
    """`outline` with every line between the directives protected, and the directives too.

    They nest. A begin without an end protects to the end of the text; an end without a begin only itself.
    """
    rows = _protected_rows(lines)
    if not rows:
        return outline
    protected = list(outline.protected)
    for row in rows:
        protected[row] = "no_prune"
    return replace(outline, protected=tuple(protected))


def _protected_rows(lines: Sequence[str]) -> list[int]:
    rows: list[int] = []
    depth = 0
    for row, line in enumerate(lines):
        word = line.strip() if "⟦NO_PRUNE" in line else ""
        if word == NO_PRUNE_BEGIN:
            depth += 1
        if depth or word == NO_PRUNE_END:
            rows.append(row)
        if word == NO_PRUNE_END and depth:
            depth -= 1
    return rows


__all__ = ["Block", "Outline", "outline"]


def outline(lines: Sequence[str], source_type: SourceType, check: Callable[[], None] = lambda: None) -> Outline:
    """The blocks and protected lines of a text of that type; `check` is called often and may raise to abort."""
    match source_type:
        case "code":
            found = code.outline(lines, check)
        case "logs":
            found = logs.outline(lines, check)
        case "docs":
            found = docs.outline(lines, check)
    return forbid_pruning(lines, found)
