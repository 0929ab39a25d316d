"""How the place where a line stands speaks of the goal: its block, the block around it, its stretch of text."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from kimi_proxy.features.pruning.columns import Floats, Rows, nearness, scaled
from kimi_proxy.features.pruning.matches import Matches
from kimi_proxy.features.pruning.structure.blocks import Block

# The blocks that a reader would name when asked where a line is; a paragraph or a comment is not one.
TERRITORIES = frozenset({"function", "method", "class", "type", "namespace", "file-header", "import", "section"})
STRETCH_LINES = 50  # a longer stretch is cut: far ends of it have little to do with each other
TOP_SHARE = 0.03


def measure(found: Matches, near: Floats, blocks: Sequence[Block]) -> dict[str, Floats]:
    n = len(found.lengths)
    territories = [b for b in blocks if b.kind in TERRITORIES]
    signals = _stretches(found, territories, n) | _blocks(found, near, territories, n)
    top = np.quantile(near, 1 - TOP_SHARE) if n else 0.0
    signals["place"] = np.arange(n) / max(1, n - 1)
    signals["to_hit"] = nearness(found.counts.sum(axis=1) > 0)
    signals["to_best"] = nearness((near >= top) & (near > 0))
    return signals


def _blocks(found: Matches, near: Floats, blocks: Sequence[Block], n: int) -> dict[str, Floats]:
    names = (
        "block", "block_coverage", "block_exact", "block_best", "block_lines", "block_place",
        "header", "parent", "parent_coverage",
    )  # fmt: skip
    if not blocks or not n:
        return {name: np.zeros(n) for name in names}
    starts, ends = np.array([b.start for b in blocks]), np.array([b.end for b in blocks])
    headers = np.array([max(b.start + 1, min(b.body, b.end)) for b in blocks])
    owner, parent = _owners(n, blocks)
    whole = found.over(starts, ends)
    scores, coverage = scaled(whole.bm25()), whole.coverage()
    best = np.array([near[b.start : b.end].max() for b in blocks])
    exact = np.array([found.exact[b.start : b.end].max() for b in blocks])
    here = np.arange(n)
    return {
        "block": _of(scores, owner),
        "block_coverage": _of(coverage, owner),
        "block_exact": _of(scaled(exact), owner),
        "block_best": _of(best, owner),
        "block_lines": _of(np.log1p(ends - starts) / 8, owner),
        "block_place": np.where(owner >= 0, (here - starts[owner]) / np.maximum(1, (ends - starts)[owner]), 0.0),
        "header": _of(found.over(starts, headers).coverage(), owner),
        "parent": _of(scores, parent),
        "parent_coverage": _of(coverage, parent),
    }


def _stretches(found: Matches, blocks: Sequence[Block], n: int) -> dict[str, Floats]:
    """The text cut at every border of a block: what a reader sees between two headings."""
    if not n:
        return {"stretch": np.zeros(0), "stretch_coverage": np.zeros(0)}
    borders = sorted({0, n, *(b.start for b in blocks), *(b.end for b in blocks if b.end < n)})
    cuts: list[int] = []
    for a, b in pairwise(borders):
        pieces = max(1, round((b - a) / STRETCH_LINES))
        cuts += [a + (b - a) * k // pieces for k in range(pieces)]
    starts = np.array(cuts)
    ends = np.append(starts[1:], n)
    spans = found.over(starts, ends)
    lengths = ends - starts
    return {
        "stretch": np.repeat(scaled(spans.bm25()), lengths),
        "stretch_coverage": np.repeat(spans.coverage(), lengths),
    }


def _owners(n: int, blocks: Sequence[Block]) -> tuple[Rows, Rows]:
    """For each line the innermost block that holds it and the one around that; -1 where there is none."""
    owner, parent = np.full(n, -1), np.full(n, -1)
    for i, block in enumerate(blocks):
        parent[block.start : block.end] = owner[block.start : block.end]
        owner[block.start : block.end] = i
    return owner, parent


def _of(values: Floats, owner: Rows) -> Floats:
    return np.where(owner >= 0, values[owner], 0.0)
