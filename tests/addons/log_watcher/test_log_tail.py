"""A log is read as it grows, whatever its owner does to it."""

import os
import shutil
from pathlib import Path

import pytest
from tests.support.permissions import bound_by_modes

from kimi_proxy.addons.log_watcher.log_watcher import READ_AT_ONCE, SKIP_ABOVE, Tail

FDS = Path("/proc/self/fd")


def add(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "core.log"
    add(path, "old\n")
    return path


def test_what_was_there_before_is_not_told(log: Path):
    tail = Tail(log)

    assert tail.lines() == []
    add(log, "new\n")
    assert tail.lines() == ["new"]


def test_a_line_that_was_half_written_at_the_first_look_is_not_told_as_a_whole_one(log: Path):
    add(log, "the first half")
    tail = Tail(log)
    tail.lines()
    add(log, " and the second\nnext\n")

    assert tail.lines() == ["next"]


def test_half_a_line_is_told_when_it_is_whole(log: Path):
    tail = Tail(log)
    tail.lines()
    add(log, "ha")

    assert tail.lines() == []
    add(log, "lf\n")
    assert tail.lines() == ["half"]


def test_a_file_that_appears_later_is_read_from_its_beginning(tmp_path: Path):
    tail = Tail(tmp_path / "late.log")

    assert tail.lines() == []
    add(tmp_path / "late.log", "first\nsecond\n")
    assert tail.lines() == ["first", "second"]


def test_a_file_that_is_moved_away_is_read_to_its_end_and_then_the_new_one(log: Path):
    tail = Tail(log)
    tail.lines()
    add(log, "last words\n")
    log.rename(log.with_suffix(".1"))
    add(log, "first words\n")

    assert tail.lines() == ["last words", "first words"]


def test_a_file_that_is_moved_away_and_comes_back_later_is_read_from_its_beginning(log: Path):
    tail = Tail(log)
    tail.lines()
    log.rename(log.with_suffix(".1"))
    assert tail.lines() == []
    add(log, "anew\n")

    assert tail.lines() == ["anew"]


def test_a_file_that_is_copied_and_cut_is_read_from_its_beginning(log: Path):
    tail = Tail(log)
    tail.lines()
    add(log, "before\n")
    assert tail.lines() == ["before"]
    shutil.copy(log, log.with_suffix(".1"))
    os.truncate(log, 0)
    add(log, "after\n")

    assert tail.lines() == ["after"]


def test_a_file_that_is_cut_and_has_grown_past_our_place_meanwhile_is_noticed(log: Path):
    tail = Tail(log)
    tail.lines()
    add(log, "before\n")
    tail.lines()
    os.truncate(log, 0)
    add(log, "a much longer text than there was before\nnext\n")

    assert tail.lines() == ["a much longer text than there was before", "next"]


def test_a_half_line_does_not_survive_the_file_that_it_was_in(log: Path):
    tail = Tail(log)
    tail.lines()
    add(log, "never ended")
    tail.lines()
    os.truncate(log, 0)
    add(log, "whole\n")

    assert tail.lines() == ["whole"]


def test_bytes_that_are_no_text_do_no_harm(log: Path):
    tail = Tail(log)
    tail.lines()
    add(log, b"\xff\xfe\x00\n caf\xc3\xa9\r\n")

    assert tail.lines() == ["\ufffd\ufffd\x00", " café"]


def test_a_huge_line_is_passed_over(log: Path):
    tail = Tail(log)
    tail.lines()
    add(log, b"x" * (3 * READ_AT_ONCE))
    assert tail.lines() == []
    add(log, b"x\nnext\n")

    assert tail.lines() == ["next"]


def test_of_very_much_only_the_end_is_read(log: Path):
    tail = Tail(log)
    tail.lines()
    add(log, b"an ordinary line\n" * (SKIP_ABOVE // 10))
    add(log, "the end\n")

    lines = tail.lines()

    assert lines[-1] == "the end"
    assert len(lines) * 17 < READ_AT_ONCE + 100
    assert set(lines[:-1]) == {"an ordinary line"}


def test_a_pipe_and_a_directory_keep_nobody_waiting(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")

    assert (Tail(tmp_path / "pipe").lines(), Tail(tmp_path).lines()) == ([], [])


def test_a_file_that_may_not_be_read_is_read_once_it_may(log: Path):
    log.chmod(0)
    tail = Tail(log)
    assert bound_by_modes(tail.lines) == []
    log.chmod(0o600)

    assert tail.lines() == ["old"]


def test_no_file_is_left_open(log: Path):
    tail = Tail(log)
    tail.lines()
    before = len(list(FDS.iterdir()))
    for n in range(20):
        log.rename(log.with_suffix(f".{n}"))
        add(log, "new\n")
        tail.lines()

    assert len(list(FDS.iterdir())) == before
    tail.close()
    assert len(list(FDS.iterdir())) == before - 1


def test_half_a_line_is_no_beginning_of_what_is_read_after_a_leap(log: Path):
    tail = Tail(log)
    tail.lines()
    add(log, "half")
    tail.lines()
    line = b"x" * 63 + b"\n"
    add(log, b" a line\n" + line * ((SKIP_ABOVE + READ_AT_ONCE) // len(line)))

    assert set(tail.lines()) == {"x" * 63}
