"""`start` in the background."""

import os
import sys
import threading
from pathlib import Path

import pytest
from tests.support.processes import within

from kimi_proxy.core.errors import UpstreamUnreachable
from kimi_proxy.services import background
from kimi_proxy.services.background import Running

# Announces itself as `start` does, and goes on until it is told to end.
STAND_IN = """
import sys, time
from pathlib import Path
from kimi_proxy.services.background import announce
print("hello from the background", flush=True)
with announce(Path(sys.argv[1]), {"proxy": "http://127.0.0.1:1"}):
    time.sleep(600)
"""


def start(home: Path, program: str = STAND_IN, patience_s: float = 60) -> Running:
    return background.start(home, [sys.executable, "-c", program, str(home)], os.environ, patience_s)


def test_it_is_started_found_and_stopped(tmp_path: Path):
    running = start(tmp_path)

    assert background.running(tmp_path) == running
    assert background.is_background(tmp_path, running.pid)
    assert background.read_log(tmp_path) == "hello from the background\n"

    background.stop(tmp_path, running.pid)
    assert (running.pid.runs, background.running(tmp_path)) == (False, None)


def test_who_comes_second_finds_the_first(tmp_path: Path):
    found: list[Running] = []
    threads = [threading.Thread(target=lambda: found.append(start(tmp_path))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    background.stop(tmp_path, found[0].pid)

    assert len(found) == 3
    assert len({running.pid for running in found}) == 1


def test_one_that_ends_is_told_with_the_end_of_its_log_at_once(tmp_path: Path):
    program = "print('\\n'.join(f'line {i}' for i in range(200))); raise SystemExit(78)"
    with pytest.raises(UpstreamUnreachable, match="exited with status 78") as caught:
        start(tmp_path, program)

    lines = str(caught.value).splitlines()
    assert (lines[1], lines[-1], len(lines)) == ("line 120", "line 199", 81)
    assert background.running(tmp_path) is None


def test_one_that_needs_too_long_is_told_and_goes_on(tmp_path: Path):
    program = "import time; print('I take my time', flush=True); time.sleep(600)"
    with pytest.raises(UpstreamUnreachable, match=r"is not ready after 1.5 s; its log so far:\nI take my time"):
        start(tmp_path, program, patience_s=1.5)
    pid = background.read(tmp_path / background.FOLDER / background.BACKGROUND)
    assert pid is not None

    background.stop(tmp_path, pid.pid)
    assert within(60, lambda: not pid.pid.runs)


def test_a_home_that_cannot_be_written_is_told(tmp_path: Path):
    (tmp_path / "run").write_text("not a folder")

    with pytest.raises(UpstreamUnreachable, match="cannot write to"):
        start(tmp_path)
