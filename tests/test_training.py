"""From what LightGBM tells of a tree to a tree that the package walks."""

import math
from pathlib import Path
from types import ModuleType

import pytest

TRAINING = str(Path(__file__).parents[1] / "scripts" / "training")


@pytest.fixture
def planting(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(TRAINING)
    import planting

    return planting


def node(signal: int, threshold: float, mean: float, left: dict, right: dict) -> dict:
    children = {"left_child": left, "right_child": right}
    return {"split_feature": signal, "threshold": threshold, "internal_value": mean, **children}


def test_nodes_and_leaves_are_numbered_as_they_are_read(planting: ModuleType) -> None:
    inner = node(7, 12.5, 0.5, {"leaf_value": 0.25}, {"leaf_value": 1.0})
    tree = planting.tree(node(3, 99.0, 0.0, inner, {"leaf_value": -1.0}))

    assert (tree.signal, tree.limit) == ([3, 7], [99, 12])
    assert (tree.left, tree.right) == ([1, -1], [-3, -2])
    assert (tree.means, tree.leaves) == ([0, 2048], [1024, 4096, -4096])
    assert planting.renamed(tree, {3: 0, 7: 1}).signal == [0, 1]


def test_a_tree_that_decides_nothing_is_left_out(planting: ModuleType) -> None:
    assert planting.tree({"leaf_value": 0.1}) is None


def test_the_odds_rise_from_nothing_to_certainty(planting: ModuleType) -> None:
    odds = planting.odds()

    assert odds == sorted(odds)
    assert odds[0] / 2**20 < 0.001 and odds[-1] / 2**20 > 0.999
    assert math.isclose(odds[len(odds) // 2] / 2**20, 0.5, abs_tol=0.01)
