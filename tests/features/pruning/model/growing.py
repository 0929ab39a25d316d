"""Trees grown at random, and the plain way to walk one."""

import random

from kimi_proxy.features.pruning.model import ODDS_ONE, ODDS_STEPS, Forest, Tree

SIGNALS = ("line", "near", "block")


def tree(rng: random.Random, leaves: int) -> Tree:
    columns: dict[str, list[int]] = {name: [] for name in ("signal", "limit", "left", "right", "means", "leaves")}
    _grow(rng, leaves, columns)
    return Tree(**columns)


def _grow(rng: random.Random, leaves: int, columns: dict[str, list[int]]) -> int:
    if leaves == 1:
        columns["leaves"].append(rng.randint(-9000, 9000))
        return -len(columns["leaves"])
    node = len(columns["signal"])
    columns["signal"].append(rng.randrange(len(SIGNALS)))
    columns["limit"].append(rng.randrange(4097))
    columns["means"].append(rng.randint(-500, 500))
    columns["left"].append(0)
    columns["right"].append(0)
    on_the_left = rng.randint(1, leaves - 1)
    columns["left"][node] = _grow(rng, on_the_left, columns)
    columns["right"][node] = _grow(rng, leaves - on_the_left, columns)
    return node


def forest(seed: int) -> Forest:
    rng = random.Random(seed)
    trees = [tree(rng, rng.randint(2, 32)) for _ in range(12)]
    return Forest(SIGNALS, trees, [step * ODDS_ONE // ODDS_STEPS for step in range(ODDS_STEPS)])


def leaf_of(tree: Tree, steps: list[int]) -> int:
    child = 0
    while child >= 0:
        goes_left = steps[tree.signal[child]] <= tree.limit[child]
        child = tree.left[child] if goes_left else tree.right[child]
    return ~child
