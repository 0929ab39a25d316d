import pytest

from kimi_proxy.core.prune import Question
from kimi_proxy.lab import judging
from kimi_proxy.lab.cases import Case
from kimi_proxy.lab.judging import RANKERS, RATIOS, Kept

TEXT = "\n".join(f"line {i} of the text that nobody asked about" for i in range(100))
CASE = Case("x", "section", "docs", "a.md", "what?", TEXT, (0, 1))


def test_a_pruner_that_keeps_the_head_is_judged_between_its_answers():
    def head(question: Question) -> Kept:
        kept = round(100 * (1 - question.options.max_prune_ratio))
        return Kept([row < kept for row in range(100)], kept / 100, ms=question.options.max_prune_ratio)

    judged = judging.pruning("head", CASE, head)

    assert [figures.recall for figures in judged.figures] == [1.0, 1.0, 1.0]
    assert [figures.complete for figures in judged.figures] == [1.0, 1.0, 1.0]
    assert judged.ms == 0.7


def test_a_pruner_that_keeps_everything_is_worth_what_chance_would_give():
    judged = judging.pruning("lazy", CASE, lambda question: Kept([True] * 100, 1.0, 1.0))

    assert [figures.recall for figures in judged.figures] == pytest.approx([0.5, 0.3, 0.15])


def test_a_ranker_is_judged_at_each_budget():
    ticks = iter([1.0, 1.002])
    judged = judging.ranking("head", CASE, RANKERS["head + tail"], lambda: next(ticks))

    assert [figures.recall for figures in judged.figures] == [1.0, 1.0, 1.0]
    assert judged.ms == pytest.approx(2.0)


def test_the_ratio_that_is_timed_is_one_that_is_asked():
    assert judging.TIMED_RATIO in RATIOS
