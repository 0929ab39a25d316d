"""Plain ways to rank the lines of a text, to compare a pruner with."""

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from kimi_proxy.core.prune import SourceType
from kimi_proxy.features.evaluation.case import Case
from kimi_proxy.features.pruning import matches
from kimi_proxy.features.pruning.columns import Floats, Rows, scaled, spread
from kimi_proxy.features.pruning.matches import Matches
from kimi_proxy.features.pruning.outline import outline
from kimi_proxy.features.pruning.places import TERRITORIES
from kimi_proxy.features.pruning.terms import read_goal

Ranker = Callable[[Case, Sequence[str]], Floats]

CONTEXT_LINES = 3
LOG_BLOCK_LINES = 10
BLOCK_LINES = 50
LINE_SHARE = 0.5  # what the line adds to the score of its block


def at_random(case: Case, lines: Sequence[str]) -> Floats:
    rng = random.Random(f"ranker {case.id}")  # noqa: S311 - a benchmark, not a secret
    return np.array([rng.random() for _ in lines])


def ends_first(case: Case, lines: Sequence[str]) -> Floats:
    """Both ends stay, the middle goes."""
    before = np.cumsum([0, *(len(line) + 1 for line in lines)], dtype=np.float64)
    scores: Floats = -np.minimum(before[:-1], before[-1] - before[1:])
    return scores


def bm25_line(case: Case, lines: Sequence[str]) -> Floats:
    return _by_line(_found(case, lines))


def bm25_context(case: Case, lines: Sequence[str]) -> Floats:
    return spread(bm25_line(case, lines), CONTEXT_LINES)


def bm25_block(case: Case, lines: Sequence[str]) -> Floats:
    """Blocks first, lines inside them second."""
    found = _found(case, lines)
    starts, ends = _blocks(lines, case.source_type)
    blocks = np.repeat(scaled(found.over(starts, ends).bm25()), ends - starts)
    scores: Floats = blocks + LINE_SHARE * scaled(spread(_by_line(found), CONTEXT_LINES))
    return scores


RANKERS: Mapping[str, Ranker] = {
    "BM25 block, then line": bm25_block,
    "BM25 ± 3 lines": bm25_context,
    "BM25 per line": bm25_line,
    "head + tail": ends_first,
    "random": at_random,
}


def _found(case: Case, lines: Sequence[str]) -> Matches:
    return matches.find(lines, read_goal(case.goal), lambda: None)


def _by_line(found: Matches) -> Floats:
    here = np.arange(len(found.lengths))
    return found.over(here, here + 1).bm25()


def _blocks(lines: Sequence[str], source_type: SourceType) -> tuple[Rows, Rows]:
    """Where blocks begin and end: at definitions and headings, or every few lines of a log."""
    borders = {0, len(lines)}
    if source_type == "logs":
        borders.update(range(0, len(lines), LOG_BLOCK_LINES))
    else:
        held = [block for block in outline(lines, source_type).blocks if block.kind in TERRITORIES]
        borders.update(row for block in held for row in (block.start, block.end))
    cuts = [row for a, b in pairwise(sorted(borders)) for row in range(a, b, BLOCK_LINES)]
    starts = np.array(cuts, dtype=np.int64)
    return starts, np.append(starts[1:], len(lines))
