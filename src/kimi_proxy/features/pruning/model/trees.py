"""Trees as they are stored: whole numbers only, so that they say the same on every machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST_LEAVES = 32  # a tree's leaves are the bits of one 32-bit number


@dataclass(frozen=True, slots=True)
class Tree:
    """Column i of the first four is node i. A line whose signal is at most `limit` goes left.

    A child is a node, or where it is negative the leaf ~child; leaves are numbered from left to right. `means` are
    what a line that reached the node gets on average, which is how a path is told in words.
    """

    signal: Sequence[int]
    limit: Sequence[int]
    left: Sequence[int]
    right: Sequence[int]
    means: Sequence[int]
    leaves: Sequence[int]

    def check(self, signal_count: int) -> None:
        """Refuse a tree that cannot be walked."""
        nodes = len(self.signal)
        if not all(len(column) == nodes for column in (self.limit, self.left, self.right, self.means)):
            raise ValueError("columns of different length")
        if not 1 <= nodes < MOST_LEAVES or len(self.leaves) != nodes + 1:
            raise ValueError(f"{nodes} nodes with {len(self.leaves)} leaves")
        if not all(0 <= signal < signal_count for signal in self.signal):
            raise ValueError("a signal that is not listed")
        children = sorted([*self.left, *self.right])
        if children != [*range(-nodes - 1, 0), *range(1, nodes)]:
            raise ValueError("nodes that do not make a tree")
        if any(0 <= child <= node for column in (self.left, self.right) for node, child in enumerate(column)):
            raise ValueError("a node above its parent")


@dataclass(frozen=True, slots=True)
class Forest:
    """What one kind of text is judged by. `odds` turns a sum of leaves into how likely the line answers."""

    signals: Sequence[str]
    trees: Sequence[Tree]
    odds: Sequence[int]


Forests = Mapping[str, Forest]
