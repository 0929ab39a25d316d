"""Processes that are not our children."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.processes import runs, within

from kimi_proxy.core.errors import UpstreamUnreachable
from kimi_proxy.proxy.process import Pid, born, detach, end, exit_code, ourselves

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"


@pytest.fixture
def sleeper() -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_known_by_its_number_and_its_birth(sleeper: "subprocess.Popen[bytes]"):
    known = Pid(sleeper.pid, born(sleeper.pid))

    assert known.runs
    assert ourselves().runs
    assert not Pid(sleeper.pid, "another time").runs
    assert not Pid(sleeper.pid, "").runs


def test_one_that_ended_does_not_run_even_if_nobody_waited_for_it(sleeper: "subprocess.Popen[bytes]"):
    known = Pid(sleeper.pid, born(sleeper.pid))
    sleeper.kill()

    assert within(60, lambda: not known.runs)
    sleeper.wait()
    assert born(sleeper.pid) == ""


def test_a_detached_process_has_a_session_of_its_own_and_a_log(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("of an earlier one")
    program = "import os; print(os.getsid(0) == os.getpid(), os.read(0, 1)); raise SystemExit(7)"
    process = detach([sys.executable, "-c", program], os.environ, log)
    codes: list[int | None] = []

    assert within(60, lambda: codes.append(exit_code(process)) or codes[-1] is not None)
    assert (codes[-1], exit_code(process), log.read_text()) == (7, None, "True b''\n")


def test_a_program_that_does_not_exist_cannot_be_detached(tmp_path: Path):
    with pytest.raises(UpstreamUnreachable, match="/no/such cannot be started: No such file"):
        detach(["/no/such"], {}, tmp_path / "log")


def test_a_process_is_asked_to_end_and_then_made_to(sleeper: "subprocess.Popen[bytes]"):
    polite = Pid(sleeper.pid, born(sleeper.pid))
    stubborn = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    with stubborn:
        known = Pid(stubborn.pid, born(stubborn.pid))

        assert end(polite, 10) == "ended"
        assert end(known, 0.2) == "killed"
        assert stubborn.wait() == -signal.SIGKILL


def test_a_stranger_with_the_same_number_is_left_alone(sleeper: "subprocess.Popen[bytes]"):
    assert end(Pid(sleeper.pid, "somebody else's birth"), 1) == "gone"
    assert runs(sleeper.pid)
