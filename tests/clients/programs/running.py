"""One run of an agent without a terminal, in a home of its own, and what it left behind."""

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.clients.programs.agents import AgentCase, Command, Place
from tests.clients.programs.job import BEFORE, DONE, MADE, files_of

from kimi_proxy.connect.clients import CLIENTS, Name
from kimi_proxy.connect.init import combine
from kimi_proxy.connect.places import BaseDirs, Wanted, edits
from kimi_proxy.features.agent_hooks import TIMEOUT_S

PATIENCE_S = 300
SIGNAL = "AbortSignal.timeout({:.0f})"  # how long plugins wait


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an agent left behind: its exit code, the files of its project, what it printed."""

    code: int
    files: dict[str, str]
    output: str

    @property
    def is_success(self) -> bool:
        return self.code == 0 and self.files.get(MADE) == "finished\n" and DONE in self.output


def new_place(folder: Path, url: str) -> Place:
    home, project = folder / "home", folder / "project"
    for made in (home, project):
        made.mkdir(parents=True)
    for name, text in BEFORE.items():
        (project / name).write_text(text)
    return Place(home, project, url)


async def run(case: AgentCase, at: Place, wanted: Wanted | None = None) -> Outcome:
    """Run an agent whose user has connected it to us as `wanted`."""
    command = await asyncio.to_thread(case.prepare, at)
    if wanted is not None:
        _connect(case.client, at, wanted)
    if command.before:
        await _ended(command.before, command, at)
    code, output = await _ended(command.argv, command, at)
    return Outcome(code, files_of(at.project), output)


def _connect(client: Name | None, at: Place, wanted: Wanted) -> None:
    assert client is not None
    dirs = BaseDirs(at.project, at.home, at.home / "code", {})
    for edit in combine(edits(CLIENTS[client], "user", dirs, wanted)):
        edit.path.parent.mkdir(parents=True, exist_ok=True)
        written = edit.apply(edit.path.read_text() if edit.path.exists() else "")
        # A busy machine may need longer than the time for which plugins wait.
        edit.path.write_text(written.replace(SIGNAL.format(TIMEOUT_S * 1000), SIGNAL.format(60_000)))


async def _ended(argv: tuple[str, ...], command: Command, at: Place) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=at.project,
        env={"PATH": os.environ["PATH"], "HOME": str(at.home), "NO_COLOR": "1", **command.env},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    finally:
        _end_all_below(at.home)
    return process.returncode or 0, output.decode(errors="replace")


def _end_all_below(home: Path) -> None:
    """End what an agent left running, also in sessions of their own: processes with its home in their environment."""
    mark = b"\0HOME=%b\0" % os.fsencode(home)
    for found in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in b"\0" + found.read_bytes():
                os.kill(int(found.parent.name), signal.SIGKILL)
