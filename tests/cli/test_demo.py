"""`kimi-proxy demo`: a day is played, seen from outside, and leaves nothing behind."""

import json
import os
import signal
import time
from pathlib import Path
from urllib.request import urlopen

from tests.support.deep import deep

from .conftest import Cli, stop

DAYS = 9 if os.environ.get("KIMI_PROXY_DEEP") else 2  # each of them is another one


def test_a_day_is_played_once_and_nothing_is_left(cli: Cli, tmp_path: Path):
    where = tmp_path / "temporary"
    where.mkdir()

    done = cli("demo", "--once", "--no-browser", "--speed", "200", env={"TMPDIR": str(where)})

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"http://127.0.0.1:")
    assert b"Write a line for the release notes" in done.stderr
    assert b"vat is compressed: " in done.stderr
    outcomes = [line for line in done.stderr.decode().split("\n") if " tokens saved" in line or " tokens more" in line]
    assert len(outcomes) == 4
    assert all(" tokens saved" in line or "more than without it: our recall tool in every" in line for line in outcomes)
    assert b"Traceback" not in done.stderr
    assert list(where.iterdir()) == []


@deep("it plays every day; one of them always runs")
def test_the_window_fills_up_far_enough_to_be_compressed_on_every_day(cli: Cli):
    done = cli("demo", "--once", "--days", str(DAYS), "--no-browser", "--speed", "1000")

    assert done.returncode == 0, done.stderr
    assert done.stderr.count(b" is compressed: ") == DAYS


def test_the_first_session_is_there_at_once_and_ctrl_c_ends_it(cli: Cli, tmp_path: Path):
    where = tmp_path / "temporary"
    where.mkdir()
    with cli.started("demo", "--no-browser", "--speed", "4", env={"TMPDIR": str(where)}) as process:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        began = time.monotonic()
        sessions: list[dict[str, object]] = []
        while not sessions and time.monotonic() - began < 60:
            with urlopen(f"{address}api/sessions", timeout=60) as answer:
                sessions = json.load(answer)["sessions"]
        code, said = stop(process, signal.SIGINT)

    assert sessions, "nobody has come within a minute"
    assert sessions[0]["model"] == "demo/apprentice"
    assert code == 0, said
    assert b"Traceback" not in said
    assert said.endswith(b"its data is deleted\n")
    assert list(where.iterdir()) == []
