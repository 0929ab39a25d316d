"""Cases from real tools that were run on projects in which something is broken."""

import random
import re
import shutil
import tempfile
import time
from pathlib import Path
from types import ModuleType

import pytest

TRAINING = str(Path(__file__).parents[1] / "scripts" / "training")
LOG = """collecting
test_load_cart ok
test_load_carton FAILED
test_sort_page FAILED
== test_sort_page
    assert 1 == 2

== test_load_carton
    boom
10.0s test_sort_page
Ran 3 tests
"""


@pytest.fixture
def logbook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(TRAINING)
    import logbook

    return logbook


def rows(logbook: ModuleType, mark: str) -> list[int]:
    from runs import Project
    from subjects import Fault, Subject

    fault = Fault(Subject("x", "y"), (mark,), "it breaks")
    project = Project("run", [fault], re.compile(r"== |test_|[\d.]+s |Ran "), re.compile("FAILED|=="), [])
    return list(logbook.reported(project, fault, LOG.split("\n")))


def test_a_failure_is_reported_by_every_piece_that_names_it_and_reports_failure(logbook: ModuleType) -> None:
    assert rows(logbook, "sort_page") == [3, 4, 5]


def test_a_name_inside_a_longer_name_is_another(logbook: ModuleType) -> None:
    assert rows(logbook, "load_cart") == []
    assert rows(logbook, "load_carton") == [2, 7, 8]


def test_a_real_run_asks_about_what_was_broken_and_the_answers_name_it(logbook: ModuleType) -> None:
    [run] = logbook.runs(1, 3, ["compileall"])
    entries = [entry for entry in logbook.entries(run, 3) if entry.answered]
    [(project, log)] = run.logs

    assert len(entries) > 3
    for entry in entries:
        answer = [log.split("\n")[row] for row in entry.case.gold]
        assert any("Error: " in line for line in answer)
        assert any(fault.pattern().search(line) for fault in project.faults for line in answer)


def test_a_question_about_what_did_not_fail_is_answered_by_the_summary_alone(logbook: ModuleType) -> None:
    [run] = logbook.runs(1, 3, ["unittest"])
    [entry] = [entry for entry in logbook.entries(run, 3) if not entry.answered]
    answer = [entry.case.text.split("\n")[row] for row in entry.case.gold]

    assert all(line.startswith(("Ran ", "FAILED (")) for line in answer)


def test_the_same_seed_breaks_the_same_things_with_every_tool(logbook: ModuleType, tmp_path: Path) -> None:
    for at, (name, make) in enumerate(logbook.TOOLS.items()):
        if name in ("mocha", "tsc", "eslint"):  # these are installed first
            continue
        made = []
        for folder in (tmp_path / f"{at}" / "one", tmp_path / f"{at}" / "two"):
            folder.mkdir(parents=True)
            project = make(folder, random.Random(5))
            texts = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
            made.append((texts, project.faults))
        assert made[0] == made[1]
        assert len({fault.symptom for fault in made[0][1]}) == len(made[0][1]) >= 2


def test_no_folder_is_left_behind(logbook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    assert len(list(logbook.runs(2, 3, ["compileall"]))) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_tool_that_is_not_there_is_left_out(
    logbook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = shutil.which("sh")
    assert shell is not None
    (tmp_path / "sh").symlink_to(shell)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert list(logbook.runs(1, 3, ["cargo test"])) == []


def test_a_command_that_does_not_end_is_ended(logbook: ModuleType, tmp_path: Path) -> None:
    from runs import printed

    began = time.monotonic()

    assert printed("echo begun; sleep 600", tmp_path, timeout_s=3.0) == "begun\n"
    assert time.monotonic() - began < 60


def test_logs_of_several_tools_keep_to_one_half(logbook: ModuleType) -> None:
    made = list(logbook.runs(1, 3, ["compileall", "unittest"]))
    found = list(logbook.joined(made, [["+ make\nall is well"], []], 4, 3))

    assert len(found) == 4
    for run in found:
        assert run.tools <= {"compileall", "unittest"}
        entries = logbook.entries(run, 3)
        assert all(line.strip() for e in entries for line in (e.case.text.split("\n")[row] for row in e.case.gold))


def test_what_is_seldom_in_a_log_is_asked_for_in_its_own_words(logbook: ModuleType, tmp_path: Path) -> None:
    import rarity

    lines = [f"2026-03-01 10:00:{n % 60:02} session opened for user {n}" for n in range(400)]
    lines[200] = "2026-03-01 10:03:20 backup volume almost full, rotating snapshots"
    (tmp_path / "app.log").write_text("\n".join(lines), "utf-8")

    found = list(rarity.cases(tmp_path / "app.log", 8, 3))

    assert found
    for case in found:
        [row] = case.gold
        assert case.text.split("\n")[row] == lines[200]
        assert any(word in case.goal for word in ("backup", "volume", "almost", "rotating", "snapshots"))


def test_every_answer_is_in_the_lesson_and_a_question_without_one_counts_half(logbook: ModuleType) -> None:
    import lessons

    [run] = logbook.runs(1, 3, ["unittest"])
    entries = logbook.entries(run, 3)
    taught = lessons.of_logs(entries, 3)

    # A question weighs the same however many lines answer it.
    weighed = [lesson.weight * max(1, int(lesson.answers.sum())) for lesson in taught]
    assert weighed == pytest.approx([1.0 if entry.answered else 0.5 for entry in entries])
    assert [lesson.answers.sum() for lesson in taught] == [len(entry.case.gold) for entry in entries]
    for lesson in taught:
        assert lesson.table.shape == (len(lesson.answers), len(lesson.signals))
        assert {"trouble", "is_failure", "block_coverage", "echo"} <= set(lesson.signals)
