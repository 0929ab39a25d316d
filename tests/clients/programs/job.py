"""The jobs that a model gives an agent: two calls of its shell, or eight of all kinds of tools."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support import outputs

from kimi_proxy.core.json import JsonObject

LOG = outputs.pytest_log(300)
MADE = "made.txt"
DONE = "Everything is done, 你好."

# What a tool is called with: its name, and its arguments; a text where it takes a script.
Asked = tuple[str, JsonObject | str]
Shell = Callable[[str], Asked]


@dataclass(frozen=True, slots=True)
class Run:
    command: str


@dataclass(frozen=True, slots=True)
class Read:
    path: str

    @property
    def command(self) -> str:
        return f"cat {self.path}"


@dataclass(frozen=True, slots=True)
class Search:
    pattern: str

    @property
    def command(self) -> str:
        return f"grep -n {self.pattern} *.sh"


@dataclass(frozen=True, slots=True)
class Edit:
    path: str
    old: str
    new: str

    @property
    def command(self) -> str:
        return f"sed -i {shlex.quote(f's|{self.old}|{self.new}|')} {self.path}"


@dataclass(frozen=True, slots=True)
class Write:
    path: str
    text: str

    @property
    def command(self) -> str:
        return f"printf %s {shlex.quote(self.text)} > {self.path}"


Step = Run | Read | Search | Edit | Write  # `command` does it where an agent has only a shell
# A step, and the folder of the project → the agent's own tool for it, if it has one.
OwnTools = Callable[[Step, Path], Asked | None]

ERRAND: tuple[Step, ...] = (Run("cat app.log"), Run(f"echo finished > {MADE}"))

OLD, NEW = "tax=0", "tax=20"
SCRIPT = f"# The total of an order, in cents.\nprice=1999\nquantity=3\n{OLD}\n" + (
    "total=$((price * quantity * (100 + tax) / 100))\necho total=$total\n"
)
REPORT = "# Cause\nThe tax was left out: 5997 instead of 7196 — 税.\n"

EIGHT_CALLS: tuple[Step, ...] = (
    Search("total="),
    Read("orders.sh"),
    Run("cat app.log"),  # long enough to be cut
    Edit("orders.sh", OLD, NEW),
    Run("sh orders.sh"),
    Write("report.md", REPORT),
    Read("report.md"),
    Run(f"echo finished > {MADE}"),
)
BEFORE = {"app.log": LOG.text, "orders.sh": SCRIPT}
AFTER = {"app.log": LOG.text, "orders.sh": SCRIPT.replace(OLD, NEW), "report.md": REPORT, MADE: "finished\n"}


def files_of(project: Path) -> dict[str, str]:
    """Return what an agent wrote into its project, but for what it keeps of itself there."""
    files = (file for file in project.iterdir() if file.is_file() and not file.name.startswith("."))
    return {file.name: file.read_text() for file in files}
