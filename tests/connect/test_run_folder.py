"""The folder of a run."""

import os
import stat
import tempfile
import time
from pathlib import Path

import pytest

from kimi_proxy.connect import runner

DAY_S = 86_400
NOW = time.time()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_its_owner_can_look_into_it(tmp_path: Path):
    folder = runner.new(tmp_path / "state")

    assert (mode(folder), mode(folder / "events.log"), mode(folder / "server.log")) == (0o700, 0o600, 0o600)


def test_its_name_begins_with_the_time_so_that_folders_sort(tmp_path: Path):
    assert runner.new(tmp_path, 1_800_000_000.0).name.startswith("20270115-080000-run_")


def test_a_state_directory_that_cannot_be_written_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").write_text("in the way")
    folder = runner.new(tmp_path / "file")

    assert folder.parent == tmp_path
    assert mode(folder) == 0o700


def test_old_folders_go_but_for_the_newest(tmp_path: Path):
    made = [runner.new(tmp_path, NOW + n) for n in range(25)]
    for folder in made:
        os.utime(folder, (NOW, NOW))
    latest = runner.new(tmp_path, NOW + 8 * DAY_S)

    assert sorted(latest.parent.iterdir()) == [*made[6:], latest]


def test_young_folders_stay_however_many(tmp_path: Path):
    made = [runner.new(tmp_path, NOW + n) for n in range(25)]
    for folder in made:
        os.utime(folder, (NOW, NOW))
    latest = runner.new(tmp_path, NOW + DAY_S)

    assert sorted(latest.parent.iterdir()) == [*made, latest]


def test_a_server_s_last_words_are_its_last_line(tmp_path: Path):
    folder = runner.new(tmp_path)
    (folder / "server.log").write_bytes(b"x" * 10_000 + b"\none\n  two \xff\n\n")

    assert runner.last_line(folder) == "two �"


def test_a_server_that_said_nothing_has_no_last_line(tmp_path: Path):
    assert runner.last_line(runner.new(tmp_path)) == ""
    assert runner.last_line(tmp_path / "nowhere") == ""
