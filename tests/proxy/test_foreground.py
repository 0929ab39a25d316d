"""A program in the foreground of a terminal."""

import asyncio
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.processes import within

from kimi_proxy.core.errors import UpstreamUnreachable
from kimi_proxy.proxy.process import Foreground

# A shell cannot trap a signal that was ignored when it began, as SIGINT is for jobs in the background.
HEARING = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execvp("sh", ["sh", "-c", sys.argv[1]])
"""


def started(script: str) -> Foreground:
    return Foreground(["sh", "-c", script], os.environ)


def hearing(script: str) -> Foreground:
    return Foreground([sys.executable, "-c", HEARING, script], os.environ)


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
)
async def test_its_exit_code_is_told_as_shells_tell_it(script: str, code: int):
    assert await started(script).exit_code() == code


async def test_a_program_that_cannot_be_started_is_named(tmp_path: Path):
    with pytest.raises(UpstreamUnreachable, match="nothing cannot be started"):
        Foreground([str(tmp_path / "nothing")], {})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
async def test_signals_are_passed_on_where_there_is_no_terminal(number: signal.Signals, tmp_path: Path):
    program = hearing(f"trap 'exit 42' {number.name[3:]}; touch {tmp_path}/set; while :; do sleep 0.02; done")
    assert await asyncio.to_thread(within, 20, (tmp_path / "set").exists)
    program.pass_on(number)

    assert await program.exit_code() == 42


async def test_a_signal_for_a_program_that_is_gone_is_no_error():
    program = started("exit 0")
    await program.exit_code()

    program.pass_on(signal.SIGTERM)


async def test_it_does_not_inherit_the_signals_that_python_ignores():
    program = started("kill -PIPE $$; exit 0")

    assert await program.exit_code() == 128 + signal.SIGPIPE


class Terminal:
    """A terminal with a shell that runs one program in its foreground, and resumes it whenever it is suspended."""

    SHELL = """
import fcntl, os, signal, sys, termios
log, script, runner = sys.argv[1:]
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpid())
    for number in (signal.SIGTTOU, signal.SIGINT):  # the tests themselves may run in the background
        signal.signal(number, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, "-c", runner, script])
while True:
    _, status = os.waitpid(pid, os.WUNTRACED)
    with open(log, "a") as file:
        print("suspended" if os.WIFSTOPPED(status) else f"exit {os.waitstatus_to_exitcode(status)}", file=file)
    if not os.WIFSTOPPED(status):
        break
    os.killpg(pid, signal.SIGCONT)
"""
    RUNNER = """
import asyncio, os, signal, sys
from kimi_proxy.proxy.process import Foreground
async def main():
    programs = []
    # Before the program starts: on a busy machine a key may be pressed before we come back from that.
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, lambda n=number: [p.pass_on(n) for p in programs])
    programs.append(Foreground(["sh", "-c", sys.argv[1]], os.environ))
    return await programs[0].exit_code()
sys.exit(asyncio.run(main()))
"""

    def __init__(self, log: Path, script: str) -> None:
        self._log = log
        self._keyboard, ours = pty.openpty()
        command = [sys.executable, "-c", self.SHELL, str(log), script, self.RUNNER]
        self._shell = subprocess.Popen(command, stdin=ours, stdout=ours, stderr=ours, start_new_session=True)
        os.close(ours)

    def press(self, key: bytes) -> None:
        os.write(self._keyboard, key)

    def end(self) -> list[str]:
        """What the shell has seen, once the program has ended."""
        ended = within(30, lambda: self._log.exists() and "exit" in self._log.read_text())
        self._shell.kill()
        self._shell.wait()
        os.close(self._keyboard)
        assert ended
        return self._log.read_text().split("\n")[:-1]


def test_ctrl_c_reaches_the_program_once(tmp_path: Path):
    # It waits long for the first and a while for another.
    count = f"n=0; trap 'echo >> {tmp_path}/caught; n=950' INT; touch {tmp_path}/set"
    terminal = Terminal(tmp_path / "log", f"{count}; while [ $n -lt 1000 ]; do sleep 0.02; n=$((n+1)); done; exit 5")
    assert within(60, (tmp_path / "set").exists)
    terminal.press(b"\x03")

    assert terminal.end() == ["exit 5"]
    assert (tmp_path / "caught").read_text() == "\n"


def test_a_program_that_suspends_itself_suspends_us_and_is_resumed_with_us(tmp_path: Path):
    assert Terminal(tmp_path / "log", "kill -STOP $$; exit 6").end() == ["suspended", "exit 6"]


def test_ctrl_z_suspends_both_and_one_resumption_is_enough(tmp_path: Path):
    script = f"touch {tmp_path}/set; n=0; while [ $n -lt 50 ]; do sleep 0.02; n=$((n+1)); done; exit 7"
    terminal = Terminal(tmp_path / "log", script)
    assert within(60, (tmp_path / "set").exists)
    terminal.press(b"\x1a")

    assert terminal.end() == ["suspended", "exit 7"]
