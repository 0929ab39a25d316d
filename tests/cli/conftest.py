"""The command as a person runs it: a process of its own, with a home and a state directory of its own."""

import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.forks import PATIENCE_S, Fork, commands

COMMAND = (sys.executable, "-m", "kimi_proxy")


@dataclass(frozen=True)
class Cli:
    """`cli("prune", "-")` runs `kimi-proxy prune -` in `here`."""

    here: Path
    env: dict[str, str] = field(default_factory=dict)

    def __call__(
        self, *args: str, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return commands().run(args, stdin, self.here, {**self.env, **(env or {})})

    def from_scratch(self, *args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        """The same in a process that has imported nothing yet."""
        return subprocess.run(
            [*COMMAND, *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=self.here,
            env={**self.env, **(env or {})},
            timeout=PATIENCE_S,
        )

    def watched(self, *args: str) -> tuple[int, bytes]:
        """Run the command with a terminal as its standard error; the exit code, and what a person sees there."""
        watcher, terminal = pytest.importorskip("pty").openpty()  # not on Windows
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        env = {**self.env, "TERM": "xterm"}
        with subprocess.Popen([*COMMAND, *args], stderr=terminal, cwd=self.here, env=env, **quiet) as process:
            os.close(terminal)
            seen = b""
            with suppress(OSError):  # how Linux says that the other end is closed
                while chunk := os.read(watcher, 65_536):
                    seen += chunk
            os.close(watcher)
        return process.returncode, seen

    def started(self, *args: str, env: dict[str, str] | None = None) -> AbstractContextManager[Fork]:
        """A command that runs until it is told to stop; killed if the test forgets."""
        return commands().started(args, self.here, {**self.env, **(env or {})})


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    here = tmp_path / "here"
    here.mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "KIMI_PROXY_HOME": str(tmp_path / "state"),
        "MCP_PRUNER_PORT": "0",
        "KIMI_PROXY_PORT": "0",
    }
    return Cli(here, env)


def stop(process: Fork, how: signal.Signals = signal.SIGINT) -> tuple[int, bytes]:
    """End a started command as Ctrl-C does; its exit code and what it said last."""
    process.send_signal(how)
    _, said = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said
