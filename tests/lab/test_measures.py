import random

import pytest

from kimi_proxy.lab.judging import between, estimate


def test_between_two_answers_the_value_is_on_the_line():
    points = [(0.2, 0.5), (0.6, 0.9)]

    assert between(points, 0.4) == pytest.approx(0.7)
    assert between(points, 0.1) == pytest.approx(0.25)
    assert between(points, 0.8) == pytest.approx(0.95)
    assert between([(1.0, 1.0)], 0.5) == pytest.approx(0.5)


def test_the_interval_holds_the_mean_and_shrinks_with_more_cases():
    rng = random.Random(1)
    values = [rng.random() for _ in range(400)]
    few, many = estimate(values[:25], 7), estimate(values, 7)

    assert few.low < few.mean < few.high
    assert many.high - many.low < few.high - few.low


def test_the_same_values_and_seed_give_the_same_interval():
    assert estimate([0.1, 0.5, 0.9], 7) == estimate([0.1, 0.5, 0.9], 7)
    assert estimate([1.0], 7) == (1.0, 1.0, 1.0)
