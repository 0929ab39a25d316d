"""From LightGBM's trees to ours: nodes and leaves in reading order, every number whole."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kimi_proxy.features.pruning.model import LEAF_STEPS, ODDS_ONE, ODDS_SHIFT, ODDS_STEPS, Tree


@dataclass(slots=True)
class _Columns:
    signal: list[int] = field(default_factory=list)
    limit: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    means: list[int] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)


def tree(structure: Mapping) -> Tree | None:
    """A tree from what `dump_model` says of it; None for one that has a single leaf and decides nothing."""
    if "leaf_value" in structure:
        return None
    columns = _Columns()
    _plant(structure, columns)
    return Tree(**{name: getattr(columns, name) for name in _Columns.__slots__})


def _plant(structure: Mapping, columns: _Columns) -> int:
    if "leaf_value" in structure:
        columns.leaves.append(round(structure["leaf_value"] * LEAF_STEPS))
        return ~(len(columns.leaves) - 1)
    node = len(columns.signal)
    columns.signal.append(structure["split_feature"])
    # Signals are whole numbers, so one that is at most 12.5 is at most 12.
    columns.limit.append(math.floor(structure["threshold"]))
    columns.means.append(round(structure["internal_value"] * LEAF_STEPS))
    columns.left.append(0)
    columns.right.append(0)
    columns.left[node] = _plant(structure["left_child"], columns)
    columns.right[node] = _plant(structure["right_child"], columns)
    return node


def renamed(tree: Tree, place: Mapping[int, int]) -> Tree:
    return replace(tree, signal=[place[signal] for signal in tree.signal])


def odds() -> list[int]:
    """How likely each sum of leaves is, step by step."""
    width = 2**ODDS_SHIFT / LEAF_STEPS
    middle = ODDS_STEPS // 2
    return [round(ODDS_ONE / (1 + math.exp(-(step - middle + 0.5) * width))) for step in range(ODDS_STEPS)]
