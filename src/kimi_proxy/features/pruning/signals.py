"""What can be measured of each line with respect to a goal: one named column per signal."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kimi_proxy.core.prune import SourceType
from kimi_proxy.features.pruning import matches, trouble
from kimi_proxy.features.pruning.matches import Floats, Matches
from kimi_proxy.features.pruning.structure.blocks import Block, Outline
from kimi_proxy.features.pruning.terms import read_goal

Signals = Mapping[str, Floats]
WINDOWS = (2, 5, 12)
# The blocks that a reader would name when asked where a line is; a paragraph or a comment is not one.
TERRITORIES = frozenset({"function", "method", "class", "type", "namespace", "file-header", "import", "section"})


def measure(
    lines: Sequence[str], goal: str, source_type: SourceType, outline: Outline, check: Callable[[], None]
) -> Signals:
    """Every signal, each between 0 and 1."""
    found = matches.find(lines, read_goal(goal), check)
    signals = _relevance(found)
    check()
    signals |= _blocks(found, [b for b in outline.blocks if b.kind in TERRITORIES])
    if source_type == "logs":
        signals |= trouble.measure(lines, outline, check)
    return signals


def _relevance(found: Matches) -> dict[str, Floats]:
    """How a line, and the lines around it, speak of the goal."""
    n = len(found.lengths)
    here = np.arange(n)
    line = found.over(here, here + 1).bm25()
    signals = {"line": scaled(line), "near": scaled(spread(line, 3)), "exact": scaled(spread(found.exact, 3))}
    for reach in WINDOWS:
        window = found.over(np.maximum(0, here - reach), np.minimum(n, here + reach + 1))
        signals[f"window{reach}"] = scaled(window.bm25())
    return signals


def _blocks(found: Matches, blocks: Sequence[Block]) -> dict[str, Floats]:
    """How the block that a line lives in speaks of the goal: all of it, its header, its exact strings."""
    n = len(found.lengths)
    if not blocks or not n:
        return {name: np.zeros(n) for name in ("block", "block_coverage", "header", "block_exact")}
    starts = np.array([b.start for b in blocks])
    ends = np.array([b.end for b in blocks])
    header_ends = np.array([max(b.start + 1, min(b.body, b.end)) for b in blocks])
    owner = _owners(n, blocks)
    whole = found.over(starts, ends)
    return {
        "block": _of_owner(scaled(whole.bm25()), owner),
        "block_coverage": _of_owner(whole.coverage(), owner),
        "header": _of_owner(found.over(starts, header_ends).coverage(), owner),
        "block_exact": _of_owner(scaled(np.array([found.exact[b.start : b.end].max() for b in blocks])), owner),
    }


def _owners(n: int, blocks: Sequence[Block]) -> NDArray[np.int64]:
    """For each line the innermost block that holds it, -1 where none does; parents come first."""
    owner = np.full(n, -1)
    for i, block in enumerate(blocks):
        owner[block.start : block.end] = i
    return owner


def _of_owner(values: Floats, owner: NDArray[np.int64]) -> Floats:
    return np.where(owner >= 0, values[owner], 0.0)


def scaled(values: Floats) -> Floats:
    """`values` with their greatest at 1."""
    top = float(values.max(initial=0.0))
    return values / top if top > 0 else values


def spread(values: Floats, reach: int) -> Floats:
    """Each value shared with its neighbours, less with distance."""
    out = values.copy()
    for distance in range(1, min(reach, len(values) - 1) + 1):
        share = 1 - distance / (reach + 1)
        out[:-distance] += share * values[distance:]
        out[distance:] += share * values[:-distance]
    return out
