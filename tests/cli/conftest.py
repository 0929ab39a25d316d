"""The command as a person runs it: a process of its own, with a home and a state directory of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.cli.forks import PATIENCE_S, Forks, forks

COMMAND = (sys.executable, "-m", "kimi_proxy")


@dataclass(frozen=True)
class Cli:
    """`cli("prune", "-")` runs `kimi-proxy prune -` in `here`."""

    here: Path
    forks: Forks
    env: dict[str, str] = field(default_factory=dict)

    def __call__(
        self, *args: str, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return self.forks.run(args, stdin, self.here, {**self.env, **(env or {})})

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

    @contextmanager
    def started(self, *args: str, env: dict[str, str] | None = None) -> Iterator["subprocess.Popen[bytes]"]:
        """A command that runs until it is told to stop; killed if the test forgets."""
        with subprocess.Popen(
            [*COMMAND, *args],
            bufsize=0,  # so that a line read here takes nothing else with it
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.here,
            env={**self.env, **(env or {})},
        ) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture(scope="session")
def command_forks() -> Iterator[Forks]:
    with forks() as running:
        yield running


@pytest.fixture
def cli(tmp_path: Path, command_forks: Forks) -> Cli:
    here = tmp_path / "here"
    here.mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "KIMI_PROXY_HOME": str(tmp_path / "state"),
        "MCP_PRUNER_PORT": "0",
        "KIMI_PROXY_PORT": "0",
    }
    return Cli(here, command_forks, env)


def stop(process: "subprocess.Popen[bytes]", how: signal.Signals = signal.SIGINT) -> tuple[int, bytes]:
    """End a started command as Ctrl-C does; its exit code and what it said last."""
    process.send_signal(how)
    _, said = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said
