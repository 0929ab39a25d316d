"""The structure of a text: which blocks it is made of, and which lines must stay."""

from collections.abc import Callable, Sequence

from kimi_proxy.core.prune import SourceType
from kimi_proxy.features.pruning.structure import code, docs, logs
from kimi_proxy.features.pruning.structure.blocks import Block, Outline
from kimi_proxy.features.pruning.structure.directives import forbid_pruning

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
