"""Questions with known answers, mined from a git repository and from a command that fails in it."""

import os
import random
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from kimi_proxy.core.errors import ToolFailed
from kimi_proxy.core.history import Commit
from kimi_proxy.features.evaluation import commits, docstrings, failures, sections
from kimi_proxy.features.evaluation.case import Case
from kimi_proxy.proxy.commands import NEVER_PASSED, Command, run_guarded
from kimi_proxy.proxy.git import Repository

COMMITS = 3000
FILES = 400
PER_FILE = 3
COMMIT_SHARE = 0.5  # of all cases; documentation of code and of people share the rest
COMMAND_MAX_BYTES = 2_000_000
COMMAND_TIMEOUT_S = 900.0
COMMAND_MAX_PROCESSES = 1024

Tell = Callable[[str], None]


def mine(repository: Repository, limit: int, seed: int, tell: Tell = lambda what: None) -> list[Case]:
    """At most `limit` cases, the same for the same repository and seed."""
    rng = random.Random(f"{seed}")  # noqa: S311 - a benchmark, not a secret
    wanted = max(1, round(COMMIT_SHARE * limit))
    tell("reading the history")
    found = list(islice(_from_commits(repository, rng), wanted))
    tell("reading the files")
    documented, explained = _from_files(repository, limit - len(found), rng)
    # Where one kind is rare, the others take its place.
    rest = limit - len(found)
    half = max(rest // 2, rest - len(explained))
    chosen = documented[:half]
    return [*found, *chosen, *explained[: rest - len(chosen)]]


def _from_commits(repository: Repository, rng: random.Random) -> Iterator[Case]:
    history = list(repository.history(COMMITS))
    rng.shuffle(history)
    for commit in history:
        case = _of_commit(repository, commit)
        if case is not None:
            yield case


def _of_commit(repository: Repository, commit: Commit) -> Case | None:
    for path in commits.candidates(commit)[:1]:
        before = repository.before(commit.id, path)
        if before:
            return commits.case_of(commit, path, before, repository.diff(commit.id, path))
    return None


def _from_files(repository: Repository, enough: int, rng: random.Random) -> tuple[list[Case], list[Case]]:
    """Cases of documented definitions, and of sections."""
    paths = repository.files()
    rng.shuffle(paths)
    documented: list[Case] = []
    explained: list[Case] = []
    for path in islice((path for path in paths if commits.kind_of(path)), FILES):
        is_page = commits.kind_of(path) == "docs"
        shelf = explained if is_page else documented
        text = repository.now(path) if len(shelf) < enough else None
        if text:
            cases = sections.cases(path, text, rng) if is_page else docstrings.cases(path, text)
            made = list(cases)
            shelf += rng.sample(made, min(PER_FILE, len(made)))
    return documented, explained


def from_command(command: str, folder: Path) -> list[Case]:
    """Run a shell command that is expected to fail; each failure that its output names is a case."""
    output = bytearray()

    def listen(piece: bytes) -> None:
        output.extend(piece[: COMMAND_MAX_BYTES - len(output)])

    env = {name: value for name, value in os.environ.items() if name not in NEVER_PASSED}
    asked = Command(("sh", "-c", command), folder, env, COMMAND_TIMEOUT_S)
    outcome = run_guarded(asked, COMMAND_MAX_PROCESSES, listen, threading.Event())
    if outcome.exit_code == 0:
        raise ToolFailed("command_succeeded", f"{command!r} succeeded: give a command whose failure is to be found")
    log = output.decode("utf-8", "replace")
    cases = list(failures.cases(command, log))
    if not cases:
        raise ToolFailed("no_failure", f"{command!r} failed, but its output names no failure in a form known here")
    return cases
