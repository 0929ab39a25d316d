"""How the place where a line stands speaks of the goal: its block, the block around it, its stretch of text."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kimi_proxy.features.pruning.columns import Floats, Rows, nearness, rank, scaled
from kimi_proxy.features.pruning.matches import Matches
from kimi_proxy.features.pruning.structure.blocks import Block
from kimi_proxy.features.pruning.terms import WORD, parts

# The blocks that a reader would name when asked where a line is; a paragraph or a comment is not one.
TERRITORIES = frozenset(
    (
        *("function", "method", "class", "type", "namespace", "file-header", "import", "section"),
        *("failure", "traceback", "diagnostic", "window"),
    )
)
HOLDERS = frozenset({"class", "type", "namespace"})
CALLABLE = frozenset({"function", "method"})
STRETCH_LINES = 50  # a longer stretch is cut: far ends of it have little to do with each other
FAR_LINES = 60
TOP_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Places:
    """Blocks as columns, and for each line the innermost that holds it and the one around; -1 where there is none."""

    starts: Rows
    ends: Rows
    owner: Rows
    parent: Rows

    @classmethod
    def of(cls, blocks: Sequence[Block], line_count: int) -> "Places":
        owner, parent = np.full(line_count, -1), np.full(line_count, -1)
        for i, block in enumerate(blocks):
            parent[block.start : block.end] = owner[block.start : block.end]
            owner[block.start : block.end] = i
        starts = np.array([b.start for b in blocks], dtype=np.int64)
        return cls(starts, np.array([b.end for b in blocks], dtype=np.int64), owner, parent)

    @property
    def lengths(self) -> Rows:
        return self.ends - self.starts

    def here(self, values: Floats) -> Floats:
        """For each line the value of the block that holds it."""
        return _of(values, self.owner)

    def around(self, values: Floats) -> Floats:
        return _of(values, self.parent)

    def means(self, column: Floats) -> Floats:
        sums = np.concatenate([[0.0], column.cumsum()])
        means: Floats = (sums[self.ends] - sums[self.starts]) / np.maximum(1, self.lengths)
        return means

    def peaks(self, column: Floats) -> Floats:
        if not len(self.starts):
            return np.zeros(0)
        borders = np.stack([self.starts, self.ends], axis=1).ravel()
        highest: Floats = np.maximum.reduceat(np.append(column, 0.0), borders)[::2]
        return highest


def measure(found: Matches, near: Floats, blocks: Sequence[Block]) -> dict[str, Floats]:
    n = len(found.lengths)
    territories = [b for b in blocks if b.kind in TERRITORIES]
    signals = _stretches(found, territories, n) | _blocks(found, near, territories, n)
    top = np.quantile(near, 1 - TOP_SHARE) if n else 0.0
    signals["place"] = np.arange(n) / max(1, n - 1)
    signals["to_hit"] = nearness(found.counts.sum(axis=1) > 0)
    # What differs by a rounding error is the same.
    signals["to_best"] = nearness((near >= top - 1e-9) & (near > 0))
    return signals


def _blocks(found: Matches, near: Floats, blocks: Sequence[Block], n: int) -> dict[str, Floats]:
    held = Places.of(blocks, n)
    headers = np.array([max(b.start + 1, min(b.body, b.end)) for b in blocks], dtype=np.int64)
    whole = found.over(held.starts, held.ends)
    scores, coverage = scaled(whole.bm25()), whole.coverage()
    named, precise = _names(found, blocks)
    since = np.arange(n) - held.here(held.starts.astype(np.float64))
    until = held.here(held.ends.astype(np.float64)) - np.arange(n)
    inside = held.owner >= 0
    return {
        "block": held.here(scores),
        "block_coverage": held.here(coverage),
        "block_kin": held.here(scaled(found.kin().over(held.starts, held.ends).bm25())),
        "block_exact": held.here(scaled(held.peaks(found.exact))),
        "block_best": held.here(held.peaks(near)),
        "block_mean": held.here(scaled(held.means(near))),
        "block_rank": held.here(rank(scores)),
        "block_lines": held.here(np.log1p(held.lengths) / 8),
        "block_place": np.where(inside, since / np.maximum(1, since + until), 0.0),
        "block_since": np.where(inside, np.minimum(since, FAR_LINES) / FAR_LINES, 0.0),
        "block_until": np.where(inside, np.minimum(until, FAR_LINES) / FAR_LINES, 0.0),
        "header": held.here(found.over(held.starts, headers).coverage()),
        "name": held.here(named),
        "name_precision": held.here(precise),
        "in_function": held.here(np.array([float(b.kind in CALLABLE) for b in blocks])),
        "in_class": held.here(np.array([float(b.kind in HOLDERS) for b in blocks])),
        "parent": held.around(scores),
        "parent_coverage": held.around(coverage),
        "parent_precision": held.around(precise),
    }


def _names(found: Matches, blocks: Sequence[Block]) -> tuple[Floats, Floats]:
    """For each block how much of the goal its name says, and how much of its name the goal says."""
    weight = dict(zip(found.stems, found.idf.tolist(), strict=True))
    total = sum(weight.values()) or 1.0
    named, precise = np.zeros(len(blocks)), np.zeros(len(blocks))
    for i, block in enumerate(blocks):
        said = [piece for word in WORD.findall(block.name) for piece in _pieces(word)]
        named[i] = sum(weight.get(piece, 0.0) for piece in set(said)) / total
        precise[i] = sum(piece in weight for piece in said) / max(1, len(said))
    return named, precise


def _pieces(word: str) -> tuple[str, ...]:
    """The parts of a name; of a name of several parts, those alone."""
    found = parts(word)
    return found[1:] or found


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


def _of(values: Floats, owner: Rows) -> Floats:
    return np.where(owner >= 0, values[owner], 0.0) if len(values) else np.zeros(len(owner))
