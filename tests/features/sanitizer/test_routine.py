"""Routine lines of a log: what is among many alike goes unscored, whatever stands out is looked at."""

from hypothesis import given
from hypothesis import strategies as st
from tests.support import outputs

from kimi_proxy.core.lines import split
from kimi_proxy.features.pruning.engine import outline
from kimi_proxy.features.pruning.structure.logs import MIN_LINES, notable_rows

LOG = [
    f"2026-03-02T10:{i // 60 % 60:02}:{i % 60:02} INFO worker-{i % 8} job {i} done in {i % 90} ms" for i in range(600)
]
UNMARKED = [""] * 600


def test_of_lines_that_look_alike_only_samples_are_looked_at():
    assert notable_rows(LOG, UNMARKED, "") == [0, 1, 599]


def test_a_line_of_another_shape_is_looked_at():
    lines = [*LOG[:300], "2026-03-02T10:05:00 WARN worker-3 job 300 waits", *LOG[301:]]

    assert 300 in notable_rows(lines, UNMARKED, "")


def test_a_line_with_a_rare_word_of_the_goal_is_looked_at():
    rows = notable_rows(LOG, UNMARKED, "what happened to job 417 of the worker?")

    assert 417 in rows
    assert len(rows) < 12  # "worker" and "job" stand in every line


def test_a_short_log_is_looked_at_as_a_whole():
    few = LOG[: MIN_LINES - 1]

    assert notable_rows(few, UNMARKED[: len(few)], "") == list(range(len(few)))


@given(st.lists(st.sampled_from([*LOG[:30], "", "ERROR x", "Traceback", "a" * 900, "B" * 900, "é→"]), min_size=200))
def test_every_protected_line_is_looked_at(lines: list[str]):
    protected = ["error" if "ERROR" in line else "" for line in lines]
    rows = notable_rows(lines, protected, "why")

    assert rows == sorted(set(rows))
    assert {row for row, why in enumerate(protected) if why} <= set(rows)


def test_a_long_test_run_leaves_little_to_score():
    lines = split(outputs.pytest_log().text)
    protected = outline(lines, "logs").protected

    assert len(notable_rows(lines, protected, "Make the tests pass.")) < len(lines) / 10
