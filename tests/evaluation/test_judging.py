"""How pruners are judged: by what they keep, between their answers, and beside chance."""

import random

import pytest

from evaluation import judging
from evaluation.cases import Case
from evaluation.judging import RANKERS, RATIOS, Kept, between, estimate, stitched, survives
from kimi_proxy.core.prune import Question

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


PYTHON = ["import os", "def a():", "    x = 1", "    y = 2", "    return x", "def b():", "    return os"]
GO = ["package main", "func a() int {", "\tx := 1", "\treturn x", "}", "func b() {", "\ta()", "}"]


def without(lines: list[str], *rows: int) -> list[bool]:
    return [row not in rows for row in range(len(lines))]


def test_a_gap_reads_as_a_statement_with_the_indent_of_what_it_replaces():
    assert stitched(PYTHON, without(PYTHON, 2, 3, 4), "python").split("\n")[1:4] == ["def a():", "    ...", "def b():"]


@pytest.mark.parametrize("lines", [PYTHON, GO], ids=["python", "go"])
def test_code_survives_the_loss_of_whole_statements(lines: list[str]):
    assert survives(lines, without(lines, 2, 3)) is True
    assert survives(lines, without(lines)) is True


def test_code_does_not_survive_the_loss_of_half_a_definition():
    assert survives(GO, without(GO, 3, 4)) is False
    assert survives(PYTHON, without(PYTHON, 0, 1)) is False


def test_what_did_not_parse_before_is_not_judged():
    assert survives(["Just", "a few", "words."], [True, False, True]) is None


def test_python_too_deep_for_the_parser_is_not_judged():
    deep = [*PYTHON, "c = " + "not " * 20_000 + "x"]

    assert survives(deep, without(deep, 2)) is None
