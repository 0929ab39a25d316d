"""Where matches are, read from a program's output however it is cut into slices."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from kimi_proxy.core.errors import ToolFailed
from kimi_proxy.proxy import search
from kimi_proxy.proxy.commands import child_env
from kimi_proxy.proxy.search import Hit, Place, Query

RECORDS = b"./a\x003:5:16:[Omitted]\n./a\x004-30-[Omitted]\n--\n./b: binary file matches\n./c d\x001:1:0:x\n"
HITS = [Hit(b"./a", 3, 16, 5), Hit(b"./a", 4, 30, 1, False), Hit(b"./c d", 1, 0, 1)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_records_are_read_across_slices(size: int):
    collector = search._Collector(search._ripgrep("rg"), 10)
    for at in range(0, len(RECORDS), size):
        assert collector.write(RECORDS[at : at + size])

    assert collector.hits == HITS


def test_one_match_more_than_wanted_is_enough():
    collector = search._Collector(search._ripgrep("rg"), 1)

    assert not collector.write(RECORDS)


def test_a_line_of_ten_megabytes_takes_no_memory():
    collector = search._Collector(search._system_grep(Place(Path("/"))), 10)
    collector.write(b"./a\x001:0:")
    for _ in range(1000):
        collector.write(b"x" * 10_000)
    assert len(collector._begun) <= search._HEAD_MAX_BYTES
    collector.write(b"\n")

    assert collector.hits == [Hit(b"./a", 1, 0)]


def test_a_glob_with_folders_needs_ripgrep(tmp_path: Path):
    query = Query(("x",), "src/*.py", 0, 10)

    with pytest.raises(ToolFailed, match="ripgrep"):
        search.search(query, Place(tmp_path), child_env(os.environ), 5, threading.Event(), None)


def test_a_repository_cannot_choose_a_program_for_us_to_run(tmp_path: Path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    subprocess.run(["git", "-C", str(tmp_path), "config", "core.fsmonitor", str(hook)], check=True)
    (tmp_path / "a").write_text("needle\n")

    query = Query(("needle",), None, 0, 10)
    found = search.search(query, Place(tmp_path), child_env(os.environ), 5, threading.Event(), None)

    assert [hit.path for hit in found.hits] == [b"a"]
    assert not (tmp_path / "ran").exists()
