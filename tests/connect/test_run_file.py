"""Where a running `start` is found."""

import stat
import subprocess
from pathlib import Path

import pytest

from kimi_proxy.proxy.process import Pid, born, ourselves
from kimi_proxy.services import background
from kimi_proxy.services.background import FILE, FOLDER, Running, announce

ADDRESSES = {"proxy": "http://127.0.0.1:8000", "pruner": "http://127.0.0.1:8006"}


def test_while_it_runs_it_is_found_and_only_its_owner_can_look(tmp_path: Path):
    file = tmp_path / FOLDER / FILE
    with announce(tmp_path, ADDRESSES):
        found = background.read(file)
        mode = stat.S_IMODE(file.stat().st_mode)

    assert found == Running(ourselves(), ADDRESSES)
    assert mode == 0o600
    assert background.read(file) is None
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_what_a_killed_one_left_is_not_believed(tmp_path: Path):
    process = subprocess.Popen(["sleep", "600"])
    background.write(tmp_path / "file", Pid(process.pid, born(process.pid)), ADDRESSES)
    assert background.read(tmp_path / "file") is not None
    process.kill()
    process.wait()

    assert background.read(tmp_path / "file") is None


def test_the_file_of_a_later_one_is_left_alone(tmp_path: Path):
    file = tmp_path / FOLDER / FILE
    other = subprocess.Popen(["sleep", "600"])
    try:
        with announce(tmp_path, ADDRESSES):
            background.write(file, Pid(other.pid, born(other.pid)), {})
        assert background.read(file) == Running(Pid(other.pid, born(other.pid)), {})
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("written", [b"", b"{", b"[]", b'{"pid": "1"}', b'{"pid": 1, "born": "x", "addresses": {}}'])
def test_nonsense_is_nobody(written: bytes, tmp_path: Path):
    (tmp_path / "file").write_bytes(written)

    assert background.read(tmp_path / "file") is None


def test_a_home_that_cannot_be_written_keeps_nobody_from_being_served(tmp_path: Path):
    (tmp_path / FOLDER).write_text("not a folder")

    with announce(tmp_path, ADDRESSES):
        pass
