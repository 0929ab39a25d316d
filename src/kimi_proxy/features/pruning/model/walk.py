"""All lines through all trees at once, in whole numbers.

A tree's leaves are bits of one number. For every signal a table says which leaves a line can still reach with that
value; what is left after all tables have been asked is a number whose lowest bit is the leaf.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kimi_proxy.features.pruning.columns import Floats, Rows
from kimi_proxy.features.pruning.model.trees import Forest, Tree

SIGNAL_STEPS = 4096  # a signal of 1 is this number; fine enough, and no fraction of small numbers falls between two
SIGNAL_MAX = 2 * SIGNAL_STEPS - 1
LEAF_STEPS = 4096  # one step of the logarithm of the odds
ODDS_STEPS = 1024
ODDS_SHIFT = 6
ODDS_ONE = 2**20

Bits: TypeAlias = NDArray[np.uint32]

_EVERY_LEAF = 0xFFFFFFFF
_DE_BRUIJN = np.uint32(0x077CB531)
_TOP_BITS = np.uint32(27)
# Where a bit lands when its number is multiplied by the above: each of the 32 in another place.
_PLACE_OF_BIT = np.array([((1 << bit) * 0x077CB531 & _EVERY_LEAF) >> 27 for bit in range(32)])


@dataclass(frozen=True, slots=True)
class Walker:
    """A forest made ready: limits of each signal, and for each tree its tables and leaves."""

    signals: Sequence[str]
    limits: Sequence[Rows]
    tables: Sequence[Sequence[tuple[int, Bits]]]
    leaves: Sequence[Rows]
    odds: Rows

    @classmethod
    def of(cls, forest: Forest) -> "Walker":
        limits = _limits(forest)
        return cls(
            forest.signals,
            [np.array(list(own), dtype=np.int64) for own in limits],
            [_tables(tree, limits) for tree in forest.trees],
            [placed(np.array(tree.leaves, dtype=np.int64)) for tree in forest.trees],
            np.array(forest.odds, dtype=np.int64),
        )

    def likely(self, signals: Mapping[str, Floats], check: Callable[[], None]) -> Floats:
        """How likely each line answers the goal, between 0 and 1; `check` may raise to abort."""
        total = np.zeros(len(next(iter(signals.values()))), dtype=np.int64)
        for leaves, place in zip(self.leaves, self.places(signals), strict=True):
            check()
            total += leaves[place]
        step = (total >> ODDS_SHIFT) + ODDS_STEPS // 2
        likely: Floats = self.odds[np.clip(step, 0, ODDS_STEPS - 1)] / ODDS_ONE
        return likely

    def places(self, signals: Mapping[str, Floats]) -> Iterator[Bits]:
        """For each tree the leaf that each line falls into, as a place in what `placed` gives."""
        steps = [
            np.searchsorted(limits, stepped(signals[name])) if len(limits) else None
            for name, limits in zip(self.signals, self.limits, strict=True)
        ]
        for tables in self.tables:
            (first, table), *others = tables
            alive = table[steps[first]]
            for signal, table in others:
                alive &= table[steps[signal]]
            lowest = alive & (~alive + np.uint32(1))
            yield (lowest * _DE_BRUIJN) >> _TOP_BITS


def stepped(values: Floats) -> Rows:
    """Signals as whole numbers, so that a last digit that differs between machines changes nothing."""
    return np.rint(np.clip(values * SIGNAL_STEPS, 0, SIGNAL_MAX)).astype(np.int64)


def _limits(forest: Forest) -> list[dict[int, int]]:
    """For each signal its limits in all trees, and the place of each in their order."""
    found: list[set[int]] = [set() for _ in forest.signals]
    for tree in forest.trees:
        for signal, limit in zip(tree.signal, tree.limit, strict=True):
            found[signal].add(limit)
    return [{limit: i for i, limit in enumerate(sorted(limits))} for limits in found]


def _tables(tree: Tree, limits: Sequence[Mapping[int, int]]) -> list[tuple[int, Bits]]:
    tables: dict[int, Bits] = {}
    below = _leaves_below(tree)
    for node, (signal, limit) in enumerate(zip(tree.signal, tree.limit, strict=True)):
        if signal not in tables:
            tables[signal] = np.full(len(limits[signal]) + 1, _EVERY_LEAF, dtype=np.uint32)
        # Above the limit the line goes right: it can no longer reach a leaf on the left.
        tables[signal][limits[signal][limit] + 1 :] &= np.uint32(_EVERY_LEAF ^ below[tree.left[node]])
    return list(tables.items())


def _leaves_below(tree: Tree) -> dict[int, int]:
    """For each node and leaf the bits of the leaves that can be reached from it."""
    below = {~leaf: 1 << leaf for leaf in range(len(tree.leaves))}
    for node in range(len(tree.signal) - 1, -1, -1):
        below[node] = below[tree.left[node]] | below[tree.right[node]]
    return below


def placed(by_leaf: NDArray[np.int64]) -> NDArray[np.int64]:
    """A row for each leaf, put where its bit lands."""
    out = np.zeros((32, *by_leaf.shape[1:]), dtype=np.int64)
    out[_PLACE_OF_BIT[: len(by_leaf)]] = by_leaf
    return out
