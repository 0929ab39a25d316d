"""Gradient-boosted trees from lessons, one forest for each kind of text."""

from collections.abc import Sequence

import lightgbm
import numpy as np
import planting
from lessons import Lesson

from kimi_proxy.features.pruning.model import Forest, Forests, Tree

__all__ = ["Forests", "fit"]

TREES = {"code": 200, "docs": 150, "logs": 100}
PARAMETERS = {
    "objective": "binary",
    "num_leaves": 31,
    "learning_rate": 0.08,
    "min_data_in_leaf": 100,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "lambda_l2": 10,
    "max_bin": 63,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}


def fit(lessons: Sequence[Lesson], seed: int) -> Forests:
    forests: dict[str, Forest] = {}
    for source_type, trees in TREES.items():
        own = [lesson for lesson in lessons if lesson.source_type == source_type]
        if own:
            forests[source_type] = _forest(own, trees, seed)
    return forests


def _forest(lessons: Sequence[Lesson], trees: int, seed: int) -> Forest:
    names = list(lessons[0].signals)
    # Every case counts the same, however many lines answer it: recall is measured so.
    weights = np.concatenate([np.full(len(one.answers), one.weight / one.answers.sum()) for one in lessons])
    data = lightgbm.Dataset(
        np.concatenate([lesson.table for lesson in lessons]),
        np.concatenate([lesson.answers for lesson in lessons]),
        weight=weights / weights.mean(),
        feature_name=names,
    )
    booster = lightgbm.train({**PARAMETERS, "seed": seed}, data, trees)
    planted = [planting.tree(one["tree_structure"]) for one in booster.dump_model()["tree_info"]]
    return _thrifty(names, [tree for tree in planted if tree is not None])


def _thrifty(names: Sequence[str], trees: Sequence[Tree]) -> Forest:
    """A forest that lists only the signals that some tree asks for."""
    used = sorted({signal for tree in trees for signal in tree.signal})
    place = {signal: i for i, signal in enumerate(used)}
    moved = [planting.renamed(tree, place) for tree in trees]
    return Forest([names[signal] for signal in used], moved, planting.odds())
