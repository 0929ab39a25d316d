from pathlib import Path

from tests.support import histories
from tests.support.deep import deep

from evaluation.judging import RANKERS
from evaluation.mining import OURS, Repository, contestants, evaluate, mine


@deep("it judges every contestant twice: a minute")
def test_every_contestant_is_judged_on_every_case_and_twice_the_same(tmp_path: Path):
    cases = mine(Repository(histories.busy(tmp_path)), 6, seed=7)
    against = contestants([])

    first, second = ([*evaluate(cases, against)] for _ in range(2))

    assert [j.contestant for j in first[: len(against)]] == [OURS, *RANKERS]
    assert len(first) == len(cases) * len(against)
    assert [j.figures for j in first] == [j.figures for j in second]


def test_ours_is_better_than_chance(tmp_path: Path):
    cases = mine(Repository(histories.busy(tmp_path)), 9, seed=7)
    judged = [*evaluate(cases, contestants([]))]

    def mean(name: str) -> float:
        own = [j.figures[1].recall for j in judged if j.contestant == name]
        return sum(own) / len(own)

    assert mean(OURS) > mean("random") + 0.2
