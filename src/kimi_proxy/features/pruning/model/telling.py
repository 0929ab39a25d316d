"""What each signal has to do with a line's score: along its path through a tree, every turn raises or lowers it."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from kimi_proxy.features.pruning.columns import Floats, Rows
from kimi_proxy.features.pruning.model.trees import Forest, Tree
from kimi_proxy.features.pruning.model.walk import LEAF_STEPS, Walker, placed

Turns: TypeAlias = tuple[tuple[int, int], ...]  # a signal, and what the turn that it decided adds


def shares(forest: Forest, walker: Walker, signals: Mapping[str, Floats]) -> dict[str, Floats]:
    """For each signal what it adds to the logarithm of each line's odds."""
    total = np.zeros((len(next(iter(signals.values()))), len(forest.signals)), dtype=np.int64)
    for tree, place in zip(forest.trees, walker.places(signals), strict=True):
        total += placed(_by_leaf(tree, len(forest.signals)))[place]
    return {name: total[:, i] / LEAF_STEPS for i, name in enumerate(forest.signals)}


def _by_leaf(tree: Tree, signal_count: int) -> Rows:
    """For each leaf what the signals on the way to it add."""
    added = np.zeros((len(tree.leaves), signal_count), dtype=np.int64)
    for leaf, turns in _paths(tree, 0, ()):
        for signal, gain in turns:
            added[leaf, signal] += gain
    return added


def _paths(tree: Tree, node: int, turns: Turns) -> Iterator[tuple[int, Turns]]:
    for child in (tree.left[node], tree.right[node]):
        mean = tree.leaves[~child] if child < 0 else tree.means[child]
        taken = (*turns, (tree.signal[node], mean - tree.means[node]))
        if child < 0:
            yield ~child, taken
        else:
            yield from _paths(tree, child, taken)
