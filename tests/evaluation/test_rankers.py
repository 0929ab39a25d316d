from collections.abc import Sequence

import pytest

from evaluation import judging
from evaluation.cases import Case
from evaluation.judging import RANKERS
from kimi_proxy.features.pruning.select import Costs

LINES = [
    line
    for i in range(20)
    for line in (
        f"def convert_{i}(value):",
        *(f"    value = value + {k}" for k in range(6)),
        "    return retried(value)" if i == 7 else "    return value",
        "",
    )
]
CASE = Case("x", "commit", "code", "a.py", "how is the value retried?", "\n".join(LINES), (70,))
COSTS = Costs([10] * len(LINES), 40)


def kept(name: str, share: float, lines: Sequence[str] = LINES) -> list[int]:
    ranked = judging.order(RANKERS[name](CASE, lines), lines, CASE.id)
    return [row for row, stays in enumerate(judging.within(ranked, COSTS, share)) if stays]


@pytest.mark.parametrize("name", ["BM25 block, then line", "BM25 ± 3 lines", "BM25 per line"])
def test_rankers_that_read_the_goal_find_the_line_that_has_its_word(name: str):
    assert 70 in kept(name, 0.3)


def test_context_and_blocks_keep_the_lines_around():
    assert {68, 69, 70} <= set(kept("BM25 ± 3 lines", 0.15))
    assert set(range(63, 71)) <= set(kept("BM25 block, then line", 0.15))


def test_head_and_tail_keep_both_ends():
    rows = kept("head + tail", 0.5)

    assert rows[0] == 0
    assert rows[-1] == len(LINES) - 1
    assert 90 not in rows


@pytest.mark.parametrize("name", RANKERS)
@pytest.mark.parametrize("share", [0.15, 0.3, 0.5])
def test_no_ranker_spends_more_than_its_share_markers_included(name: str, share: float):
    rows = set(kept(name, share))

    assert COSTS.of([row in rows for row in range(len(LINES))]) <= share * sum(COSTS.lines)


def test_a_share_of_everything_keeps_everything():
    assert kept("random", 1.0) == list(range(len(LINES)))
