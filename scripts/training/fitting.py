"""Gradient-boosted trees from lessons, one forest for each kind of text."""

from collections.abc import Mapping, Sequence

import lightgbm
import numpy as np
import planting
from lessons import Lesson

from kimi_proxy.features.pruning.model import Forest, Forests, Tree
from kimi_proxy.features.pruning.score import USED, USED_OUTPUT

__all__ = ["Forests", "fit"]

TREES = {"code": 200, "docs": 150, "logs": 100, USED: 300, USED_OUTPUT: 100}
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
# Sessions are few, and those of one project are alike: small trees, slowly, do better on other projects.
OTHER_PARAMETERS: Mapping[str, Mapping[str, object]] = {
    USED: {"num_leaves": 15, "learning_rate": 0.05, "min_data_in_leaf": 300},
    USED_OUTPUT: {"num_leaves": 8, "learning_rate": 0.05, "min_data_in_leaf": 60},
}


def fit(lessons: Sequence[Lesson], seed: int) -> Forests:
    forests: dict[str, Forest] = {}
    for name, trees in TREES.items():
        own = [lesson for lesson in lessons if lesson.forest == name]
        if own:
            forests[name] = _forest(own, trees, {**PARAMETERS, **OTHER_PARAMETERS.get(name, {})}, seed)
    return forests


def _forest(lessons: Sequence[Lesson], trees: int, parameters: Mapping[str, object], seed: int) -> Forest:
    names = list(lessons[0].signals)
    weights = np.concatenate([np.full(len(one.answers), one.weight) for one in lessons])
    data = lightgbm.Dataset(
        np.concatenate([lesson.table for lesson in lessons]),
        np.concatenate([lesson.answers for lesson in lessons]),
        weight=weights / weights.mean(),
        feature_name=names,
    )
    booster = lightgbm.train({**parameters, "seed": seed}, data, trees)
    planted = [planting.tree(one["tree_structure"]) for one in booster.dump_model()["tree_info"]]
    return _thrifty(names, [tree for tree in planted if tree is not None])


def _thrifty(names: Sequence[str], trees: Sequence[Tree]) -> Forest:
    """A forest that lists only the signals that some tree asks for."""
    used = sorted({signal for tree in trees for signal in tree.signal})
    place = {signal: i for i, signal in enumerate(used)}
    moved = [planting.renamed(tree, place) for tree in trees]
    return Forest([names[signal] for signal in used], moved, planting.odds())
