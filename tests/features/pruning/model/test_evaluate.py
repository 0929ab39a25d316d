import numpy as np
import pytest
from tests.features.pruning.model.growing import SIGNALS, forest, leaf_of

from kimi_proxy.features.pruning.model import LEAF_STEPS, ODDS_ONE, ODDS_SHIFT, ODDS_STEPS, CompiledForest, to_steps
from kimi_proxy.features.pruning.structure.blocks import Floats


def lines(seed: int, count: int = 200) -> dict[str, Floats]:
    rng = np.random.default_rng(seed)
    return {name: rng.random(count) for name in SIGNALS}


@pytest.mark.parametrize("seed", range(8))
def test_all_lines_at_once_reach_the_leaves_that_each_reaches_alone(seed: int) -> None:
    grown, signals = forest(seed), lines(seed)
    rows = np.stack([to_steps(signals[name]) for name in SIGNALS], axis=1).tolist()

    sums = [sum(tree.leaves[leaf_of(tree, row)] for tree in grown.trees) for row in rows]
    steps = [min(max((total >> ODDS_SHIFT) + ODDS_STEPS // 2, 0), ODDS_STEPS - 1) for total in sums]
    assert CompiledForest.of(grown).probability(signals, lambda: None).tolist() == [
        grown.odds[step] / ODDS_ONE for step in steps
    ]


def test_a_difference_in_the_last_digits_changes_nothing() -> None:
    grown, signals = forest(1), lines(1)
    shaken = {name: values + 1e-15 for name, values in signals.items()}

    assert (
        CompiledForest.of(grown).probability(shaken, lambda: None).tolist()
        == CompiledForest.of(grown).probability(signals, lambda: None).tolist()
    )


def test_signals_beyond_their_bounds_are_brought_within() -> None:
    assert to_steps(np.array([-1.0, 0.5, 1e9])).tolist() == [0, 2048, 8191]


def test_what_the_signals_add_is_what_lies_between_the_root_and_the_leaf() -> None:
    grown, signals = forest(3), lines(3)
    rows = np.stack([to_steps(signals[name]) for name in SIGNALS], axis=1).tolist()

    shares = CompiledForest.of(grown).contributions(signals)
    gained = [sum(tree.leaves[leaf_of(tree, row)] - tree.means[0] for tree in grown.trees) for row in rows]
    total = sum(shares[name] for name in SIGNALS)
    assert np.rint(total * LEAF_STEPS).astype(int).tolist() == gained
