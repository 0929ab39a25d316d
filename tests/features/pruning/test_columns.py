import numpy as np

from kimi_proxy.features.pruning.structure.blocks import fading, nearness, scaled, spread


def test_the_greatest_becomes_one_and_nothing_stays_nothing() -> None:
    assert scaled(np.array([1.0, 4.0])).tolist() == [0.25, 1.0]
    assert scaled(np.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    assert scaled(np.zeros(0)).tolist() == []


def test_a_value_is_shared_with_its_neighbours_less_with_distance() -> None:
    assert spread(np.array([0.0, 0.0, 1.0, 0.0, 0.0]), 1).tolist() == [0.0, 0.5, 1.0, 0.5, 0.0]


def test_a_value_fades_differently_before_and_after() -> None:
    assert fading(np.array([0.0, 1.0, 0.0, 0.0]), before=0.5, after=0.25).tolist() == [0.5, 1.0, 0.25, 0.0625]


def test_nearness_falls_with_the_distance_to_the_nearest_mark() -> None:
    marked = np.array([True, False, False, False, True])

    assert nearness(marked).tolist() == [1.0, 0.5, 1 / 3, 0.5, 1.0]
    assert nearness(np.zeros(3, dtype=bool)).tolist() == [0.0, 0.0, 0.0]
