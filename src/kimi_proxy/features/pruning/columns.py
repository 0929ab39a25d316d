"""Columns of numbers, one per line, and what is done to them again and again."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.int64]


def scaled(values: Floats) -> Floats:
    """`values` with their greatest at 1."""
    top = float(values.max(initial=0.0))
    return values / top if top > 0 else values


def spread(values: Floats, reach: int) -> Floats:
    """Each value shared with its neighbours, less with distance."""
    out = values.copy()
    for distance in range(1, min(reach, len(values) - 1) + 1):
        share = 1 - distance / (reach + 1)
        out[:-distance] += share * values[distance:]
        out[distance:] += share * values[:-distance]
    return out


def fading(values: Floats, before: float, after: float) -> Floats:
    """Each value carried on to the lines after and before it, weaker with every line."""
    source = values.tolist()
    out: list[float] = []
    level = 0.0
    for value in source:
        level = max(value, level * after)
        out.append(level)
    level = 0.0
    for i in range(len(source) - 1, -1, -1):
        level = max(source[i], level * before)
        out[i] = max(out[i], level)
    return np.array(out)


def nearness(marked: NDArray[np.bool_]) -> Floats:
    """1 on a marked line, then 1/2, 1/3 … with the distance to the nearest; 0 where there is none."""
    n = len(marked)
    at = np.flatnonzero(marked)
    if not len(at):
        return np.zeros(n)
    here = np.arange(n)
    right = np.searchsorted(at, here).clip(0, len(at) - 1)
    left = (right - 1).clip(0)
    distance = np.minimum(np.abs(at[right] - here), np.abs(at[left] - here))
    near: Floats = 1 / (1.0 + distance)
    return near


def rank(values: Floats) -> Floats:
    """For each value which share of the others is smaller; what differs by a rounding error is the same."""
    rounded = np.round(values, 9)
    shares: Floats = np.searchsorted(np.sort(rounded), rounded) / max(1, len(values) - 1)
    return shares
