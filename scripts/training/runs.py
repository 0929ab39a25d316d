"""Real tools, run on projects in which something was broken on purpose."""

import os
import random
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from subjects import Fault

from kimi_proxy.proxy.commands import NEVER_PASSED, run_guarded
from kimi_proxy.proxy.process import Command

TIMEOUT_S = 120.0
MAX_PROCESSES = 512
MAX_BYTES = 600_000


@dataclass(frozen=True, slots=True)
class Project:
    """A folder made ready: what to run there, and what was broken.

    What the tool prints falls into pieces, each begun by a line that `starts` matches. A piece reports a fault if it
    has a mark of the fault and text that `failure` matches. `quiet` are subjects that are there and do not fail.
    `alone` says that nothing fails but the faults.
    """

    command: str
    faults: Sequence[Fault]
    starts: re.Pattern[str]
    failure: re.Pattern[str]
    quiet: Sequence[str]
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Run:
    """What the commands of one or more projects printed, one after the other; `tools` are all that had a part."""

    tool: str
    tools: frozenset[str]
    logs: Sequence[tuple[Project, str]]


Maker = Callable[[Path, random.Random], Project]


def run(tool: str, project: Project, folder: Path) -> Run:
    return Run(tool, frozenset({tool}), [(project, printed(project.command, folder))])


def printed(command: str, folder: Path, timeout_s: float = TIMEOUT_S) -> str:
    """All that a shell command prints; it and every process it started end in time."""
    output = bytearray()
    env = {name: value for name, value in os.environ.items() if name not in NEVER_PASSED}
    shell = Command(("sh", "-c", command), {**env, "NO_COLOR": "1"}, folder)
    run_guarded(shell, timeout_s, MAX_PROCESSES, output.extend, threading.Event())
    # Where the folder lies differs from run to run, and says nothing.
    text = bytes(output[:MAX_BYTES]).decode("utf-8", "replace").replace(str(folder.resolve()), "/home/user/project")
    return text.replace("\r\n", "\n")


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
