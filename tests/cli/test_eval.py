"""Judging on a repository of one's own."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.support import histories
from tests.support.deep import deep

from .conftest import Cli


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return histories.busy(tmp_path / "project")


@deep("it judges the whole evaluation once more")
def test_a_person_reads_tables_and_sends_a_page_to_a_colleague(cli: Cli, project: Path):
    done = cli("eval", str(project), "--limit", "6", "--html", "report.html")

    assert (done.returncode, done.stderr) == (0, b"kimi-proxy: the report is in report.html\n")
    told = done.stdout.decode()
    assert told.startswith("project at ")
    assert "\nkimi-proxy  " in told
    assert "\nBM25 block, then line  " in told
    assert "<svg" in (cli.here / "report.html").read_text("utf-8")


def test_programs_read_json_and_the_same_seed_gives_the_same_figures(cli: Cli, project: Path):
    first, second = (json.loads(cli("eval", str(project), "--limit", "6", "--json").stdout) for _ in range(2))

    for told in (first, second):
        for table in told["tables"]:
            for row in table["rows"]:
                del row["ms"]
    assert first == second
    assert {table["source_type"] for table in first["tables"]} == {"code", "docs"}


@deep("it judges the whole evaluation once more")
def test_a_failing_command_s_log_is_judged_too(cli: Cli, project: Path):
    script = "seq 100; echo '--- FAIL: TestLogin (0.00s)'; echo '    a_test.go:3: got 1, want 2'; echo FAIL; exit 1"
    told = json.loads(cli("eval", str(project), "--limit", "2", "--cmd", script, "--json").stdout)

    logs = next(table for table in told["tables"] if table["source_type"] == "logs")
    assert logs["kinds"] == {"failure": 1}


def test_a_repository_with_nothing_to_ask_about_is_named(cli: Cli, tmp_path: Path):
    empty = tmp_path / "empty"
    commit = [
        "git",
        "-C",
        str(empty),
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "commit",
        "-qm",
        "a",
        "--allow-empty",
    ]
    for command in (["git", "init", "-q", str(empty)], commit):
        subprocess.run(command, check=True, capture_output=True)
    done = cli("eval", str(empty))

    assert done.returncode == 2
    assert f"kimi-proxy: {empty} holds no commit, documentation or section to ask about".encode() in done.stderr


def test_few_cases_are_judged_with_a_remark(cli: Cli, project: Path):
    assert b"only 2 cases were found" in cli("eval", str(project), "--limit", "2").stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("absent",), b"absent"),
        ((".",), b"not a git repository"),
        (("../project", "--limit", "0"), b"--limit"),
        (("../project", "--limit", "9" * 30), b"--limit"),
        (("../project", "--limit", "1", "--html", "absent/page.html"), b"there is no directory absent"),
        (("../project", "--limit", "1", "--html", "."), b"it is a directory"),
        (("../project", "--limit", "1", "--html", "/dev/full"), b"cannot write /dev/full"),
        (("../project", "--limit", "1", "--cmd", "true"), b"succeeded"),
        (("../project", "--limit", "1", "--url", "http://127.0.0.1:1/prune"), b"does not answer"),
    ],
)
def test_what_is_refused_says_why_without_a_traceback(
    cli: Cli, project: Path, arguments: tuple[str, ...], complaint: bytes
):
    done = cli("eval", *arguments)

    assert (done.returncode, done.stdout) == (2, b"")
    assert complaint in done.stderr
    assert b"Traceback" not in done.stderr


@deep("it judges the whole evaluation once more")
def test_a_person_sees_a_bar_while_it_goes_on(cli: Cli, project: Path):
    status, seen = cli.watched("eval", str(project), "--limit", "3")

    assert b"judging" in seen
    assert status == 0
