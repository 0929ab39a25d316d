"""The process suite: whatever a command starts is gone in time, and what it wrote is kept."""

import os
import secrets
import shlex
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tests.support.deep import too
from tests.support.processes import within

from kimi_proxy.core.errors import ToolFailed
from kimi_proxy.proxy.commands import CommandOutcome, child_env, in_thread, run_guarded, run_plain
from kimi_proxy.proxy.files import TAIL_BYTES, Spool
from kimi_proxy.proxy.process import Command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the bash tool needs POSIX")

HERE = Path(__file__).parent
GONE_WITHIN_S = 60.0


@dataclass(frozen=True)
class Ran:
    """A command that was run to its end; `word` is in its processes' arguments, to find them by."""

    outcome: CommandOutcome
    output: bytes
    seconds: float
    word: str


def run(script: str, timeout_s: float = 120, max_processes: int = 300) -> Ran:
    word = f"word{secrets.token_hex(6)}"
    command = bash(script.replace("WORD", word))
    started = time.monotonic()
    with Spool(10**6) as spool:
        outcome = run_guarded(command, timeout_s, max_processes, spool.write, threading.Event())
        return Ran(outcome, spool.read(0, 10**6), time.monotonic() - started, word)


def bash(script: str, env: dict[str, str] | None = None) -> Command:
    return Command(("bash", "-c", script), child_env(env or os.environ), HERE)


def alive(word: str) -> list[bytes]:
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = cmdline.read_bytes()
        except OSError:
            continue
        if word.encode() in text and b"pytest" not in text:
            found.append(text)
    return found


def sleeper(word: str) -> str:
    """A process that can be found by its arguments and cares for no polite signal."""
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    return f"{shlex.quote(sys.executable)} -S -c '{deaf}' {word}"


def test_output_and_errors_come_in_the_order_they_were_written():
    ran = run("for i in 1 2 3; do echo out$i; echo err$i >&2; done; exit 3")

    assert ran.output == b"out1\nerr1\nout2\nerr2\nout3\nerr3\n"
    assert (ran.outcome.ending, ran.outcome.exit_code, ran.outcome.leftovers) == ("exited", 3, 0)


def test_a_command_killed_by_a_signal_says_which():
    assert run("kill -9 $$").outcome.exit_code == -9


def test_a_command_runs_where_it_is_told_with_nothing_to_read():
    assert run("pwd; cat; echo $?").output.decode() == f"{HERE}\n0\n"


def test_a_broken_pipe_ends_its_writer_silently():
    assert run("yes | head -n 1; echo ${PIPESTATUS[0]}").output == b"y\n141\n"


def test_the_output_of_a_process_substitution_is_waited_for():
    assert run("echo a > >(cat; echo late)").output == b"a\nlate\n"


def test_keys_and_tokens_are_not_passed_on():
    env = {
        **dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GITHUB_TOKEN", "KIMI_PROXY_TOKEN"), "secret"),
        **dict.fromkeys(("DEEPINFRA_API_KEY", "AWS_SECRET_ACCESS_KEY", "BASH_ENV", "LD_PRELOAD"), "secret"),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
        "HOME": "/home/me",
        "TERM": "dumb",
    }
    with Spool(10_000) as spool:
        run_guarded(bash("env; cat /proc/$PPID/environ", env=env), 120, 100, spool.write, threading.Event())
        shown = spool.read(0, 10_000)

    assert b"secret" not in shown
    assert b"LC_ALL=C\n" in shown
    assert b"HOME=/home/me\n" in shown


def test_a_name_the_user_lists_is_passed_on_but_never_ours():
    env = {"GITHUB_TOKEN": "a", "KIMI_PROXY_TOKEN": "b", "DEEPINFRA_API_KEY": "c"}

    assert child_env(env, tuple(env)) == {"GITHUB_TOKEN": "a"}


def test_a_program_that_does_not_exist_is_a_failure_of_the_tool():
    for runner in (run_plain_for_test, run_guarded_for_test):
        with pytest.raises(ToolFailed, match="no-such-program"):
            runner(Command(("no-such-program",), child_env(os.environ), HERE))


def run_plain_for_test(command: Command, timeout_s: float = 120) -> CommandOutcome:
    return run_plain(command, timeout_s, lambda piece: True, threading.Event())


def run_guarded_for_test(command: Command) -> CommandOutcome:
    return run_guarded(command, 120, 100, lambda piece: None, threading.Event())


def test_a_timeout_keeps_the_output_so_far():
    ran = run("echo before; sleep 600", timeout_s=2)

    assert (ran.outcome.ending, ran.output) == ("timeout", b"before\n")
    assert ran.seconds < 2 + GONE_WITHIN_S


def test_a_command_may_tidy_up_when_its_time_is_up():
    ran = run("trap 'echo tidied; exit 1' TERM; echo before; sleep 600 & wait", timeout_s=2)

    assert ran.output == b"before\ntidied\n"


@pytest.mark.parametrize(
    "script",
    [
        "trap '' TERM HUP INT; SLEEPER; SLEEPER",
        "setsid SLEEPER & echo started; sleep 600",
        "(setsid SLEEPER >/dev/null 2>&1 </dev/null &) ; (setsid setsid SLEEPER &) ; echo started; sleep 600",
        "nohup SLEEPER & disown; env -i setsid SLEEPER & sleep 600",
    ],
    ids=["ignored SIGTERM", "another session", "double fork", "nohup, and a cleared environment"],
)
def test_nothing_survives_a_timeout(script: str):
    ran = run(f"echo kept; {script.replace('SLEEPER', sleeper('WORD'))}", timeout_s=2)

    assert ran.seconds < 2 + GONE_WITHIN_S
    assert alive(ran.word) == []
    assert ran.output.startswith(b"kept\n")


def test_nothing_survives_a_command_that_ended_well():
    ran = run(f"(setsid {sleeper('WORD')} >/dev/null 2>&1 &); {sleeper('WORD')} & echo done")

    assert (ran.outcome.ending, ran.outcome.exit_code, ran.outcome.leftovers) == ("exited", 0, 2)
    assert ran.seconds < GONE_WITHIN_S
    assert alive(ran.word) == []


def test_nothing_survives_a_command_that_kills_its_own_warden():
    ran = run(f"setsid {sleeper('WORD')} & echo kept; sleep 0.3; kill -9 $PPID; sleep 600")

    assert ran.outcome.ending == "lost"
    assert ran.output == b"kept\n"
    assert alive(ran.word) == []


def test_a_fork_bomb_is_stopped_at_the_limit_of_processes():
    # Bounded by itself too: at most some 400 processes, should the limit fail.
    script = "grow() { [ $1 -gt 0 ] && { grow $(($1-1)) & grow $(($1-1)) & }; sleep 600; }; echo kept; grow 7 WORD"
    ran = run(script, timeout_s=120, max_processes=60)

    assert ran.outcome.ending == "processes"
    assert ran.output.startswith(b"kept\n")  # unless we are root, bash may complain that it cannot fork
    assert ran.seconds < 100
    assert alive(ran.word) == []


async def test_a_cancelled_command_is_ended_with_all_it_started():
    word = f"word{secrets.token_hex(6)}"
    started = threading.Event()

    def work(stop: threading.Event) -> CommandOutcome:
        script = f"(setsid {sleeper(word)} &); echo go; sleep 600"
        return run_guarded(bash(script), 120, 100, lambda piece: started.set(), stop)

    threads = ThreadPoolExecutor(1)
    async with anyio.create_task_group() as group:
        group.start_soon(in_thread, work, threads)
        assert await anyio.to_thread.run_sync(started.wait, 10)
        group.cancel_scope.cancel()

    assert within(GONE_WITHIN_S, lambda: alive(word) == [])


def test_nothing_survives_a_server_that_is_killed():
    word = f"word{secrets.token_hex(6)}"
    server = f"""
import os, threading
from pathlib import Path
from kimi_proxy.proxy.commands import child_env, run_guarded
from kimi_proxy.proxy.process import Command
script = {f"(setsid {sleeper(word)} &); echo go; sleep 600"!r}
command = Command(("bash", "-c", script), child_env(os.environ), Path("."))
run_guarded(command, 60, 100, lambda piece: print("go", flush=True), threading.Event())
"""
    with subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"go\n"
        assert alive(word) != []
        process.kill()

    assert within(GONE_WITHIN_S, lambda: alive(word) == [])


@pytest.mark.parametrize("size", [10**8, too(10**9)])
def test_a_flood_of_output_is_kept_to_the_byte(size: int):
    command = bash(f"yes 0123456789abcde | head -c {size}")

    with Spool(2 * 10**9) as spool:
        outcome = run_guarded(command, 60, 100, spool.write, threading.Event())

        assert (outcome.exit_code, spool.size, spool.lost) == (0, size, 0)
        assert spool.end(32) == b"0123456789abcde\n0123456789abcde\n"
        million = b"0123456789abcde\n" * 62_500
        assert all(spool.read(at, 10**6) == million for at in range(0, size, 10**6))


def test_endless_output_stops_at_the_timeout_and_fills_no_disk():
    with Spool(5_000_000) as spool:
        outcome = run_guarded(bash("yes"), 1, 100, spool.write, threading.Event())

        assert outcome.ending == "timeout"
        assert (spool.kept, spool.lost) == (5_000_000, spool.size - 5_000_000 - TAIL_BYTES)
        assert spool.end(4) in (b"y\ny\n", b"\ny\ny")


def test_many_commands_at_once_do_not_mix():
    with ThreadPoolExecutor(8) as pool:
        rans = pool.map(lambda n: run(f"for i in 1 2 3; do echo {n}; done"), range(8))

    assert [ran.output for ran in rans] == [f"{n}\n".encode() * 3 for n in range(8)]


def test_a_plain_program_is_stopped_when_enough_was_read():
    seen: list[bytes] = []

    def enough(piece: bytes) -> bool:
        seen.append(piece)
        return len(seen) < 3

    outcome = run_plain(Command(("yes",), child_env(os.environ), HERE), 20, enough, threading.Event())

    assert (outcome.ending, len(seen)) == ("enough", 3)


def test_a_plain_program_is_stopped_when_its_time_is_up():
    outcome = run_plain_for_test(Command(("sleep", "60"), child_env(os.environ), HERE), 0.2)

    assert outcome.ending == "timeout"
    assert outcome.duration_ms < 2000


def test_a_plain_program_is_stopped_when_asked_to():
    stop = threading.Event()
    stop.set()

    outcome = run_plain(Command(("sleep", "60"), child_env(os.environ), HERE), 20, lambda piece: True, stop)

    assert outcome.ending == "stopped"


def test_what_a_plain_program_complains_about_is_kept_apart():
    outcome = run_plain_for_test(Command(("ls", "/nowhere-at-all"), child_env(os.environ), HERE))

    assert outcome.exit_code not in (0, None)
    assert "/nowhere-at-all" in outcome.errors
