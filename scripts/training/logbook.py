"""From runs to cases: questions about each injected failure, about all of them, and about what did not fail."""

import random
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import java_tools
import native_tools
import node_tools
import preludes
import python_tools
import rarity
import system_tools
from runs import Maker, Project, Run, run
from subjects import Fault, questions

from evaluation.cases import Case, is_fair
from kimi_proxy.core import lines as text_lines

TOOLS: Mapping[str, Maker] = {
    **python_tools.TOOLS,
    **native_tools.TOOLS,
    **node_tools.TOOLS,
    **java_tools.TOOLS,
    **system_tools.TOOLS,
}
# Two halves with no tool, language or format in common: what is learned from one is judged on the other.
HALVES = (
    frozenset(python_tools.TOOLS) | {"make", "cmake", "git merge", "postgres"},
    frozenset(node_tools.TOOLS)
    | frozenset(java_tools.TOOLS)
    | {"cargo build", "cargo test", "web server", "strace", rarity.SYSTEM_FILES},
)
JOINED = "several in one"
SUCCESS = Project("", (), re.compile("."), re.compile("."), ())
MAX_REPORT = 100  # lines of a piece; of a longer one only those with a mark count
PER_LOG = 8
JOINED_SHARE = 5  # logs of several tools, for each half, as many times as there are projects of a tool
SYSTEM_CASES = 25  # of a file
ABOUT_ALL = (
    "why did the run fail?",
    "find the cause of the failure",
    "what are the errors in this log?",
    "the build is broken, what went wrong?",
    "which failures have to be fixed before this can be merged?",
    "pourquoi la compilation échoue-t-elle ?",
)
SUMMARY = re.compile(
    r"=+ .*(?:passed|failed).* =+|Ran \d+ tests|FAILED \(|Found \d+ errors?|test result:|\s+\d+ (?:passing|failing)"
    r"|[#ℹ] (?:pass|fail) \d|\d+ errors?$|✖ \d+ problems|error: could not compile|make: \*\*\* |\[INFO\] BUILD"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A case and where it comes from. A question about what did not fail has no answer but the summary, if any."""

    case: Case
    tool: str
    tools: frozenset[str]
    answered: bool


def runs(per_tool: int, seed: int, tools: Sequence[str] = tuple(TOOLS)) -> Iterator[Run]:
    """Every tool that is there, each on `per_tool` projects that differ."""
    with tempfile.TemporaryDirectory(prefix="logbook-") as below:
        for tool in tools:
            for at in range(per_tool):
                found = _made(tool, Path(below) / f"project-{at}", random.Random(f"{seed} {tool} {at}"))
                if found is not None:
                    yield found


def joined(made: Sequence[Run], before: Sequence[Sequence[str]], count: int, seed: int) -> Iterator[Run]:
    """As a runner of builds prints them: several tools of one half that fail, or much that succeeds and then one."""
    rng = random.Random(f"{seed} {JOINED}")
    for half, succeeded in zip(HALVES, before, strict=True):
        names = sorted({one.tool for one in made if one.tool in half})
        for at in range(count if names else 0):
            calm = at % 2 == 1
            chosen = rng.sample(names, 1 if calm else min(len(names), rng.randint(2, 6)))
            parts = [rng.choice([one for one in made if one.tool == name]) for name in chosen]
            logs = [log for one in parts for log in one.logs]
            prelude = rng.sample(succeeded, min(len(succeeded), rng.randint(1, 4))) if calm else []
            yield Run(JOINED, frozenset(chosen), [*((SUCCESS, text) for text in prelude), *logs])


def _made(tool: str, folder: Path, rng: random.Random) -> Run | None:
    """A run that reports what was broken; None where the tool is not there, or says nothing of it."""
    folder.mkdir()
    try:
        found = run(tool, TOOLS[tool](folder, rng), folder)
    finally:
        shutil.rmtree(folder)
    [(project, log)] = found.logs
    return found if any(reported(project, fault, text_lines.split(log)) for fault in project.faults) else None


def entries_of(per_tool: int, seed: int) -> list[Entry]:
    """All that can be mined here: each tool by itself, several in one log, and what the machine has logged anyway."""
    made = list(runs(per_tool, seed))
    with tempfile.TemporaryDirectory(prefix="logbook-") as below:
        before = preludes.printed_before(Path(below))
    several = joined(made, before, JOINED_SHARE * per_tool, seed)
    found = [entry for run in (*made, *several) for entry in entries(run, seed)]
    kept = [case for path in rarity.files() for case in rarity.cases(path, SYSTEM_CASES, seed)]
    machine = frozenset({rarity.SYSTEM_FILES})
    return [*found, *(Entry(case, rarity.SYSTEM_FILES, machine, answered=True) for case in kept)]


def entries(found: Run, seed: int) -> list[Entry]:
    """Fair cases of a run, at most `PER_LOG`, and one question about something that did not fail."""
    text, about = _told(found)
    rng = random.Random(f"{seed} {found.tool} {len(text)}")
    everyone = [fault for fault, _ in about]
    asked = [(goal, rows) for fault, rows in about for goal in rng.sample(questions(fault, everyone, rng), 2)]
    rng.shuffle(asked)
    asked = asked[:PER_LOG]
    if all(project.alone for project, _ in found.logs):
        everything = sorted({row for _, rows in about for row in rows})
        asked += [(goal, everything) for goal in rng.sample(ABOUT_ALL, 2)]
    fair = [case for goal, rows in asked if is_fair(case := _case(found, goal, text, rows))]
    return [Entry(case, found.tool, found.tools, answered=True) for case in fair] + _unanswered(found, text, rng)


def _unanswered(found: Run, text: str, rng: random.Random) -> list[Entry]:
    quiet = [words for project, _ in found.logs for words in project.quiet]
    summary = [row for row, line in enumerate(text_lines.split(text)) if SUMMARY.match(line)]
    if not quiet or not summary:
        return []
    goal = rng.choice(("why can't we {}?", "what goes wrong when we {}?", "does it {}?")).format(rng.choice(quiet))
    case = _case(found, goal, text, summary)
    return [Entry(case, found.tool, found.tools, answered=False)] if is_fair(case) else []


def _case(found: Run, goal: str, text: str, rows: Sequence[int]) -> Case:
    return Case(f"{found.tool}:{goal}", "failure", "logs", found.tool, goal, text, tuple(rows))


def _told(found: Run) -> tuple[str, list[tuple[Fault, list[int]]]]:
    """The whole text, and for each fault the rows that report it."""
    pieces: list[str] = []
    about: list[tuple[Fault, list[int]]] = []
    for project, log in found.logs:
        if len(found.logs) > 1 and project.command:
            pieces.append(f"+ {project.command[:200]}")
        lines = text_lines.split(log)
        for fault in project.faults:
            rows = [len(pieces) + row for row in reported(project, fault, lines)]
            about += [(fault, rows)] if rows else []
        pieces += lines
    return text_lines.join(pieces), about


def reported(project: Project, fault: Fault, lines: Sequence[str]) -> list[int]:
    """The rows of the pieces that have a mark of the fault and report a failure; blank ones left out."""
    mark = fault.pattern()
    borders = [0, *(row for row, line in enumerate(lines) if row and project.starts.match(line)), len(lines)]
    found: list[int] = []
    for start, end in pairwise(borders):
        marked = [row for row in range(start, end) if mark.search(lines[row])]
        if marked and any(project.failure.search(lines[row]) for row in range(start, end)):
            found += range(start, end) if end - start <= MAX_REPORT else marked
    return [row for row in found if lines[row].strip()]
