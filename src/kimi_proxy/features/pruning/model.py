"""The learned scorer: decision trees that turn a line's signals into the probability that it answers the goal."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from importlib import resources
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from kimi_proxy.features.pruning.structure.blocks import Floats, Rows

TREES_AT_ONCE = 16  # whose lines fit into a processor's cache together
MOST_LEAVES = 32  # a tree's leaves are the bits of a 32-bit number


@dataclass(frozen=True, slots=True)
class Tree:
    """Column i of the first four is node i. A line whose signal is at most `limit` goes left.

    A child is a node, or if negative the leaf ~child; leaves are numbered from left to right. `means` are the average
    outputs of lines that reach a node, from which the contribution of each signal is computed.
    """

    signal: Sequence[int]
    limit: Sequence[int]
    left: Sequence[int]
    right: Sequence[int]
    means: Sequence[int]
    leaves: Sequence[int]

    def check(self, signal_count: int) -> None:
        """Raise ValueError for a tree that cannot be evaluated."""
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
    """The trees for one type of text. `odds` turns a sum of leaves into a probability."""

    signals: Sequence[str]
    trees: Sequence[Tree]
    odds: Sequence[int]


Forests = Mapping[str, Forest]


SIGNAL_STEPS = 4096  # a signal of 1 is this number; fine enough, and no fraction of small numbers falls between two
SIGNAL_MAX = 2 * SIGNAL_STEPS - 1
LEAF_STEPS = 4096  # one step of the logarithm of the odds
ODDS_STEPS = 1024
ODDS_SHIFT = 6
ODDS_ONE = 2**20

Bits: TypeAlias = NDArray[np.uint32]
Places: TypeAlias = NDArray[np.int16]
Turns: TypeAlias = tuple[tuple[int, int], ...]  # a signal, and the contribution of the decision based on it

_EVERY_LEAF = 0xFFFFFFFF
_DE_BRUIJN = np.uint32(0x077CB531)
_TOP_BITS = np.uint32(27)
# Where a bit lands when its number is multiplied by the above: each of the 32 in another place.
_PLACE_OF_BIT = np.array([((1 << bit) * 0x077CB531 & _EVERY_LEAF) >> 27 for bit in range(32)])


@dataclass(frozen=True, slots=True)
class CompiledForest:
    """A forest that evaluates all lines through all trees at once, in integers.

    A tree's leaves are bits of a number. For every signal, a table gives the leaves that a line can still reach; the
    lowest bit that is left after all tables is the leaf.
    """

    forest: Forest
    places: Sequence[Places]  # of each value of each signal among its limits in all trees; empty if it has none
    tables: Sequence[Sequence[tuple[int, Bits, int]]]  # of each tree: a signal, its table, every leaf that it rules out
    leaves: Rows  # of one tree after the other, as `_by_bit` returns them
    odds: Rows

    @classmethod
    def of(cls, forest: Forest) -> "CompiledForest":
        limits = _limits(forest)
        return cls(
            forest,
            [_places(list(own)) for own in limits],
            [_tables(tree, limits) for tree in forest.trees],
            np.concatenate([_by_bit(np.array(tree.leaves, dtype=np.int64)) for tree in forest.trees] or [_NONE]),
            np.array(forest.odds, dtype=np.int64),
        )

    def probability(self, signals: Mapping[str, Floats], check: Callable[[], None]) -> Floats:
        """Return for each line the probability that it answers the goal; `check` may raise to abort."""
        total = np.zeros(len(next(iter(signals.values()))), dtype=np.int64)
        for first, reached in self._reach_leaves(signals):
            check()
            own = np.arange(first, first + len(reached), dtype=np.uint32)[:, None]
            total += self.leaves.take(own * np.uint32(MOST_LEAVES) + reached).sum(axis=0)
        step = (total >> ODDS_SHIFT) + ODDS_STEPS // 2
        probability: Floats = self.odds[np.clip(step, 0, ODDS_STEPS - 1)] / ODDS_ONE
        return probability

    def contributions(self, signals: Mapping[str, Floats]) -> dict[str, Floats]:
        """Return the contribution of each signal to the log odds of each line."""
        names = self.forest.signals
        total = np.zeros((len(next(iter(signals.values()))), len(names)), dtype=np.int64)
        leaves = (leaf for _, some in self._reach_leaves(signals) for leaf in some)
        for tree, bit in zip(self.forest.trees, leaves, strict=True):
            added = np.zeros((len(tree.leaves), len(names)), dtype=np.int64)
            for leaf, turns in _paths(tree, 0, ()):
                for signal, gain in turns:
                    added[leaf, signal] += gain
            total += _by_bit(added)[bit]
        return {name: total[:, i] / LEAF_STEPS for i, name in enumerate(names)}

    def _reach_leaves(self, signals: Mapping[str, Floats]) -> Iterator[tuple[int, Bits]]:
        """Yield the leaf of each line, as a row of the result of `_by_bit`, some trees at a time.

        A signal shared by all lines, such as the kind of goal, is looked up once for all of them; a signal is skipped
        if the shared ones rule out every leaf that depends on it.
        """
        steps = [
            places.take(_to_steps(_first_if_all_same(signals[name])), mode="clip").astype(np.intp)
            if len(places)
            else _NONE
            for name, places in zip(self.forest.signals, self.places, strict=True)
        ]
        shared = [int(step[0]) if len(step) == 1 else -1 for step in steps]
        line_count = len(next(iter(signals.values())))
        left = np.empty(line_count, dtype=np.uint32)
        for first in range(0, len(self.tables), TREES_AT_ONCE):
            some = self.tables[first : first + TREES_AT_ONCE]
            alive = np.empty((len(some), line_count), dtype=np.uint32)
            for tables, row in zip(some, alive, strict=True):
                reachable = _EVERY_LEAF
                for signal, table, _ in tables:
                    if shared[signal] >= 0:
                        reachable &= table.item(shared[signal])
                row.fill(reachable)
                for signal, table, ruled_out in tables:
                    if shared[signal] < 0 and reachable & ruled_out:
                        # "clip", for otherwise numpy takes the way through a buffer; every step is within its table.
                        np.bitwise_and(row, table.take(steps[signal], None, left, "clip"), row)
            alive &= ~alive + np.uint32(1)  # the lowest bit alone
            alive *= _DE_BRUIJN
            alive >>= _TOP_BITS
            yield first, alive


_NONE = np.zeros(0, dtype=np.intp)


def _first_if_all_same(values: Floats) -> Floats:
    return values[:1] if len(values) and (values == values[0]).all() else values


def _places(limits: Sequence[int]) -> Places:
    """Return for every value of a signal how many of its limits, in their order, are below it.

    A look-up: to search among the limits for every line took a fifth of the time of an evaluation.
    """
    ends = np.clip(np.array([-1, *limits, SIGNAL_MAX]), -1, SIGNAL_MAX)
    return np.repeat(np.arange(len(limits) + 1, dtype=np.int16), np.diff(ends) if limits else 0)


def to_steps(values: Floats) -> Rows:
    """Return signals as whole numbers, so that a last digit that differs between machines changes nothing."""
    return np.clip(_to_steps(values), 0, SIGNAL_MAX)


def _to_steps(values: Floats) -> Rows:
    return np.rint(values * SIGNAL_STEPS).astype(np.int64)


def _limits(forest: Forest) -> list[dict[int, int]]:
    """Return for each signal its limits in all trees, and the place of each in their order."""
    found: list[set[int]] = [set() for _ in forest.signals]
    for tree in forest.trees:
        for signal, limit in zip(tree.signal, tree.limit, strict=True):
            found[signal].add(limit)
    return [{limit: i for i, limit in enumerate(sorted(limits))} for limits in found]


def _tables(tree: Tree, limits: Sequence[Mapping[int, int]]) -> list[tuple[int, Bits, int]]:
    tables: dict[int, Bits] = {}
    below = _leaves_below(tree)
    for node, (signal, limit) in enumerate(zip(tree.signal, tree.limit, strict=True)):
        if signal not in tables:
            tables[signal] = np.full(len(limits[signal]) + 1, _EVERY_LEAF, dtype=np.uint32)
        # Above the limit the line goes right: leaves on the left are out of reach.
        tables[signal][limits[signal][limit] + 1 :] &= np.uint32(_EVERY_LEAF ^ below[tree.left[node]])
    # The last row of a table rules out every leaf that any row of it does.
    return [(signal, table, _EVERY_LEAF ^ int(table[-1])) for signal, table in tables.items()]


def _leaves_below(tree: Tree) -> dict[int, int]:
    """Return for each node and leaf the bits of the leaves below it."""
    below = {~leaf: 1 << leaf for leaf in range(len(tree.leaves))}
    for node in range(len(tree.signal) - 1, -1, -1):
        below[node] = below[tree.left[node]] | below[tree.right[node]]
    return below


def _by_bit(by_leaf: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a row for each leaf, put where its bit lands."""
    out = np.zeros((32, *by_leaf.shape[1:]), dtype=np.int64)
    out[_PLACE_OF_BIT[: len(by_leaf)]] = by_leaf
    return out


def _paths(tree: Tree, node: int, turns: Turns) -> Iterator[tuple[int, Turns]]:
    for child in (tree.left[node], tree.right[node]):
        mean = tree.leaves[~child] if child < 0 else tree.means[child]
        taken = (*turns, (tree.signal[node], mean - tree.means[node]))
        if child < 0:
            yield ~child, taken
        else:
            yield from _paths(tree, child, taken)


NAME = "scorer.model"
KIND = b"kimi-proxy scorer 1 "
MAX_BYTES = 1024**2
_PACKED_MAX_BYTES = 16 * 1024**2

_forests = msgspec.json.Decoder(Forests)


class ModelRefused(ValueError):
    """Bytes that are not a model of this version."""


def write(forests: Forests) -> bytes:
    packed = zlib.compress(msgspec.json.encode(forests, order="deterministic"), 9)
    return KIND + sha256(packed).hexdigest().encode() + b"\n" + packed


def read(raw: bytes) -> Forests:
    """Return the forests in a file that `write` made; raise ModelRefused if any byte differs."""
    first, _, packed = raw.partition(b"\n")
    if not first.startswith(KIND) or len(raw) > MAX_BYTES:
        raise ModelRefused("it is not a model of this version")
    if first[len(KIND) :] != sha256(packed).hexdigest().encode():
        raise ModelRefused("its checksum does not match")
    try:
        forests: Forests = _forests.decode(zlib.decompressobj().decompress(packed, _PACKED_MAX_BYTES))
        _check(forests)
    except (zlib.error, msgspec.DecodeError, ValueError) as e:
        raise ModelRefused(f"it cannot be read: {e}") from e
    return forests


def _check(forests: Forests) -> None:
    for forest in forests.values():
        if len(forest.odds) != ODDS_STEPS:
            raise ValueError("odds of another length")
        for tree in forest.trees:
            tree.check(len(forest.signals))


class CompiledForests(Mapping[str, CompiledForest]):
    """Forests by the type of text, each compiled when it is first asked for: a command needs one of them."""

    def __init__(self, forests: Forests) -> None:
        self._forests = forests
        self._compiled: dict[str, CompiledForest] = {}

    def __getitem__(self, kind: str) -> CompiledForest:
        if kind not in self._compiled:
            self._compiled[kind] = CompiledForest.of(self._forests[kind])
        return self._compiled[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._forests)

    def __len__(self) -> int:
        return len(self._forests)


@dataclass(frozen=True, slots=True)
class Scorers:
    """A forest for each type of text that has one; where the file was refused, none at all and the fault in words."""

    learned: Mapping[str, CompiledForest] = field(default_factory=dict[str, CompiledForest])
    fault: str = ""


def load(raw: bytes) -> Scorers:
    try:
        forests = read(raw)
    except ModelRefused as e:
        return Scorers(fault=f"the learned scorer was refused, weights set by hand decide: {e}")
    return Scorers(CompiledForests(forests))


@lru_cache(maxsize=1)
def load_scorers() -> Scorers:
    try:
        raw = (resources.files(__package__) / NAME).read_bytes()
    except OSError as e:
        return Scorers(fault=f"the learned scorer cannot be read, weights set by hand decide: {e}")
    return load(raw)
