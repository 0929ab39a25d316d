import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from tests.support import histories

from evaluation.mining import Repository, from_command, mine
from kimi_proxy.core.errors import ToolFailed


def test_commits_documentation_and_sections_make_cases(tmp_path: Path):
    cases = mine(Repository(histories.busy(tmp_path)), 12, seed=7)

    assert Counter(case.kind for case in cases) == {"commit": 3, "docstring": 3, "section": 3}
    asked = next(case for case in cases if case.goal == "Retry the conversion of value 3 when it fails")
    assert [asked.text.split("\n")[row] for row in asked.gold] == ["    return value"]


def test_the_same_seed_mines_the_same_cases_and_another_seed_others(tmp_path: Path):
    repository = Repository(histories.busy(tmp_path))

    assert mine(repository, 8, seed=1) == mine(repository, 8, seed=1) != mine(repository, 8, seed=2)


def test_there_are_never_more_cases_than_asked_for(tmp_path: Path):
    repository = Repository(histories.busy(tmp_path))

    assert [len(mine(repository, limit, seed=7)) for limit in (1, 2, 5)] == [1, 2, 5]


def test_a_repository_without_questions_has_no_cases(tmp_path: Path):
    folder = histories.begin(tmp_path)
    histories.commit(folder, "Begin", {"a.txt": "one\n"})

    assert mine(Repository(folder), 10, seed=7) == []


def test_a_failing_command_makes_cases_of_the_failures_it_names(tmp_path: Path):
    script = "seq 100; echo '--- FAIL: TestLogin (0.00s)'; echo '    a_test.go:3: got 1, want 2'; echo FAIL; exit 1"

    (case,) = from_command(script, tmp_path)

    assert (case.goal, case.kind) == ("why does TestLogin fail?", "failure")


@pytest.mark.parametrize(("script", "problem"), [("true", "succeeded"), ("echo oh; false", "names no failure")])
def test_a_command_that_names_no_failure_is_told_of(tmp_path: Path, script: str, problem: str):
    with pytest.raises(ToolFailed, match=problem):
        from_command(script, tmp_path)


def test_a_command_that_prints_without_end_does_not_fill_the_memory(tmp_path: Path):
    tracemalloc.start()
    try:
        with pytest.raises(ToolFailed, match="names no failure"):
            from_command("head -c 80000000 /dev/zero; exit 1", tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()
