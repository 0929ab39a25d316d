"""The file that new conversations are told of survives what happens to files."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.json import JsonValue
from kimi_proxy.services.chat.memory import NAME, MemoryContent, MemoryFile

LIMIT = 65_536


def the_file(home: Path, max_bytes: int = LIMIT) -> MemoryFile:
    return MemoryFile(home, max_bytes)


@pytest.mark.parametrize("content", ["tabs 🦊", "\\ud800", {"style": ["tabs"], "port": 8000}, "", None])
def test_what_was_saved_is_read_again_and_nobody_else_can_read_it(tmp_path: Path, content: JsonValue):
    home = tmp_path / "not" / "there yet"
    the_file(home).write(content, 1_800_000_000.0)

    assert the_file(home).read() == MemoryContent(content, 1_800_000_000.0)
    assert (home / NAME).stat().st_mode & 0o777 == 0o600


def test_half_a_character_is_not_saved_because_providers_refuse_it(tmp_path: Path):
    the_file(tmp_path).write("whole", 1.0)
    with pytest.raises(InvalidParams, match="surrogate"):
        the_file(tmp_path).write(["half \ud83e of a fox"], 2.0)

    assert the_file(tmp_path).read().content == "whole"


def test_without_a_file_there_is_nothing_and_no_trouble(tmp_path: Path):
    assert the_file(tmp_path).read() == MemoryContent()


@pytest.mark.parametrize(
    ("raw", "content"),
    [
        (b'{"content": "by hand"}', "by hand"),
        (b'{"content": "a", "updated": 1e300}', "a"),
        (b'{"style": "tabs"}', {"style": "tabs"}),
        (b'["a", "b"]', ["a", "b"]),
    ],
)
def test_a_file_that_somebody_else_wrote_is_understood(tmp_path: Path, raw: bytes, content: JsonValue):
    (tmp_path / NAME).write_bytes(raw)

    assert the_file(tmp_path).read() == MemoryContent(content)


@pytest.mark.parametrize("raw", [b"", b"{", b"\x00\xff", b'{"content": "' + b"x" * LIMIT + b'"}'])
def test_garbage_is_nothing_says_so_and_is_kept_when_something_else_is_saved(tmp_path: Path, raw: bytes):
    path = tmp_path / NAME
    path.write_bytes(raw)
    path.chmod(0o644)
    trouble = the_file(tmp_path).read()

    the_file(tmp_path).write("new", 1.0)

    assert trouble.content == ""
    assert str(path) in trouble.trouble
    assert the_file(tmp_path).read().content == "new"
    assert (tmp_path / "project_memory.damaged").read_bytes() == raw
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_directory_in_its_place_is_told(tmp_path: Path):
    (tmp_path / NAME).mkdir()

    assert "not a file" in the_file(tmp_path).read().trouble


def test_too_much_is_refused_and_what_was_there_stays(tmp_path: Path):
    the_file(tmp_path).write("before", 1.0)
    with pytest.raises(InvalidParams, match="max_bytes"):
        the_file(tmp_path).write("x" * LIMIT, 2.0)

    assert the_file(tmp_path).read().content == "before"


def names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


async def test_of_many_saves_at_once_one_stands_whole(tmp_path: Path):
    contents = [str(number) * 20_000 for number in range(10)]
    await asyncio.gather(*(asyncio.to_thread(the_file(tmp_path).write, each, 1.0) for each in contents))

    assert the_file(tmp_path).read().content in contents
    assert names(tmp_path) == [NAME]


SAVER = """
import sys
from pathlib import Path
from kimi_proxy.services.chat.memory import MemoryFile

number = 0
while True:
    MemoryFile(Path(sys.argv[1]), 65_536).write(str(number % 10) * 50_000, 1.0)
    print(number, flush=True)
    number += 1
"""


def test_whoever_is_killed_while_saving_leaves_a_whole_file(tmp_path: Path):
    for saves in (1, 3, 8):
        child = subprocess.Popen([sys.executable, "-c", SAVER, str(tmp_path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        for _ in range(saves):
            child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
        child.wait(timeout=60)
        child.stdout.close()

        found = json.loads((tmp_path / NAME).read_bytes())["content"]
        assert (len(found), len(set(found))) == (50_000, 1)
