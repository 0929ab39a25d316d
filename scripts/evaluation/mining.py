"""An evaluation: cases mined from a git repository, judged by the engine, other pruners and plain rankers."""

import asyncio
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from evaluation import cases, judging
from evaluation.cases import Case, Commit
from evaluation.judging import RANKERS, Judged, Kept
from kimi_proxy.core import json, lines, markers, tokens
from kimi_proxy.core.errors import ParseError, PruneFailed, ToolFailed
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.prune import Question
from kimi_proxy.features.pruning import engine
from kimi_proxy.proxy import http
from kimi_proxy.proxy.commands import NEVER_PASSED, run_guarded
from kimi_proxy.proxy.process import Command
from kimi_proxy.proxy.pruners import sendable

TIMEOUT_S = 120
MAX_BLOB_BYTES = 1024**2

_COMMIT, _MESSAGE_END = "\x01", "\x02"
# What a repository's own configuration could make git run.
_HARMLESS = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-c", "core.hooksPath=/dev/null")
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color")


class Repository:
    """A git repository on this machine, read by git itself."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
        self.head = self._head()
        self.name = self._name()

    def history(self, most: int) -> Iterator[Commit]:
        """Yield the newest commits with one parent, and the files that each modified."""
        # No numbers and no renames: for those git would read every file, and a partial clone does not have them all.
        form = f"--format={_COMMIT}%H%n%B{_MESSAGE_END}"
        wanted = ("--no-merges", "--diff-filter=M", "--no-renames", "--name-only")
        out = self._git("log", *_PLAIN, *wanted, form, f"-n{most}")
        for entry in out.decode("utf-8", "replace").split(_COMMIT)[1:]:
            head, _, names = entry.partition(_MESSAGE_END)
            commit_id, _, message = head.partition("\n")
            yield Commit(commit_id, message, tuple(name for name in names.split("\n") if name))

    def before(self, commit_id: str, path: str) -> str | None:
        """Return a file as it was before a commit; None if it is large or not text."""
        return self._text(f"{commit_id}^", path)

    def now(self, path: str) -> str | None:
        return self._text(self.head, path)

    def diff(self, commit_id: str, path: str) -> str:
        """Return what a commit changed in a file, without context; "" if git does not say."""
        try:
            out = self._git("diff", *_PLAIN, "-U0", f"{commit_id}^", commit_id, "--", path)
        except ToolFailed:
            return ""
        return out.decode("utf-8", "replace")

    def files(self) -> list[str]:
        out = self._git("ls-tree", "-r", "-z", "--name-only", self.head)
        return [name for name in out.decode("utf-8", "replace").split("\0") if name]

    def _text(self, revision: str, path: str) -> str | None:
        try:
            raw = self._git("cat-file", "blob", f"{revision}:{path}")
            return None if len(raw) > MAX_BLOB_BYTES or b"\0" in raw else raw.decode("utf-8")
        except (ToolFailed, UnicodeDecodeError):
            return None

    def _head(self) -> str:
        self._git("rev-parse", "--git-dir")  # says what is wrong with a folder that is no repository
        try:
            return self._git("rev-parse", "--verify", "HEAD^{commit}").decode().strip()
        except ToolFailed as e:
            raise ToolFailed(e.reason, f"{self._path}: there is no commit yet, or HEAD names none") from e

    def _name(self) -> str:
        """Return what a person calls it: the folder that holds it, or a bare repository's own without its suffix."""
        top = self._git("rev-parse", "--absolute-git-dir").decode().strip()
        folder = Path(top)
        return (folder.parent if folder.name in (".git", "repo") else folder).name.removesuffix(".git")

    def _git(self, *arguments: str) -> bytes:
        command = ["git", "-C", str(self._path), *_HARMLESS, *arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=TIMEOUT_S, env=self._env, stdin=subprocess.DEVNULL, check=False
            )
        except FileNotFoundError as e:
            raise ToolFailed("exec_failed", "git is not installed, or not found on PATH") from e
        except subprocess.TimeoutExpired as e:
            raise ToolFailed("timeout", f"git {arguments[0]} took longer than {TIMEOUT_S} s") from e
        if done.returncode:
            problem = done.stderr.decode("utf-8", "replace").strip().split("\n")[0][:200]
            raise ToolFailed("git_failed", f"{self._path}: {problem or 'git failed'}")
        return done.stdout


COMMITS = 3000
FILES = 400
PER_FILE = 3
COMMIT_SHARE = 0.5  # of all cases; documentation of code and of people share the rest
COMMAND_MAX_BYTES = 2_000_000
COMMAND_TIMEOUT_S = 900.0
COMMAND_MAX_PROCESSES = 1024

Progress = Callable[[str], None]


def mine(repository: Repository, limit: int, seed: int, progress: Progress = lambda what: None) -> list[Case]:
    """Return at most `limit` cases, the same for the same repository and seed."""
    rng = random.Random(f"{seed}")
    wanted = max(1, round(COMMIT_SHARE * limit))
    progress("reading the history")
    found = list(islice(_from_commits(repository, rng), wanted))
    progress("reading the files")
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
        for path in cases.candidates(commit)[:1]:
            before = repository.before(commit.id, path)
            case = cases.case_of(commit, path, before, repository.diff(commit.id, path)) if before else None
            if case is not None:
                yield case


def _from_files(repository: Repository, enough: int, rng: random.Random) -> tuple[list[Case], list[Case]]:
    """Return cases of documented definitions, and of sections."""
    paths = repository.files()
    rng.shuffle(paths)
    documented: list[Case] = []
    explained: list[Case] = []
    for path in islice((path for path in paths if cases.kind_of(path)), FILES):
        is_page = cases.kind_of(path) == "docs"
        found = explained if is_page else documented
        text = repository.now(path) if len(found) < enough else None
        if text:
            made = list(cases.section_cases(path, text, rng) if is_page else cases.docstring_cases(path, text))
            found += rng.sample(made, min(PER_FILE, len(made)))
    return documented, explained


def from_command(command: str, folder: Path) -> list[Case]:
    """Run a shell command that is expected to fail; each failure that its output names is a case."""
    output = bytearray()

    def collect(piece: bytes) -> None:
        output.extend(piece[: COMMAND_MAX_BYTES - len(output)])

    env = {name: value for name, value in os.environ.items() if name not in NEVER_PASSED}
    shell = Command(("sh", "-c", command), env, folder)
    outcome = run_guarded(shell, COMMAND_TIMEOUT_S, COMMAND_MAX_PROCESSES, collect, threading.Event())
    if outcome.exit_code == 0:
        raise ToolFailed("command_succeeded", f"{command!r} succeeded: give a command whose failure is to be found")
    log = output.decode("utf-8", "replace")
    found = list(cases.failure_cases(command, log))
    if not found:
        raise ToolFailed("no_failure", f"{command!r} failed, but its output names no failure in a form known here")
    return found


PATIENCE_S = 120.0
MOST_THRESHOLD = 0.95


class PrunerEndpoint:
    """A pruner behind an address: asked in swe-pruner's words on `/prune`, in JSON-RPC anywhere else.

    Follows no redirect and heeds no proxy variable: the texts go to the address given or nowhere.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PruneFailed("http_error", f"{address} is not an http or https address")
        self.name = address
        self._address = address if parts.path.strip("/") else urlunsplit(parts._replace(path="/rpc"))
        self._is_swe = urlsplit(self._address).path.rstrip("/").endswith("/prune")

    def prune(self, question: Question) -> str:
        """Return the text as the server would hand it to a model."""
        if not self._is_swe:
            return _rpc_text(self._post(_rpc_request(question)))
        # A threshold is how relevant a line must be: the closest thing to the share that may go.
        threshold = min(question.options.max_prune_ratio / 1.5, MOST_THRESHOLD)
        request: JsonObject = {
            "code": sendable(question.text),
            "query": sendable(question.goal),
            "threshold": threshold,
        }
        match self._post(request):
            case {"pruned_code": str(text)} | {"content": str(text)} | {"text": str(text)}:
                return text
        raise PruneFailed("invalid_response", "the pruner's answer holds no text")

    def _post(self, request: JsonObject) -> JsonValue:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        try:
            status, body = asyncio.run(http.post(self._address, json.encode(request), headers, PATIENCE_S))
        except http.FAILURES as e:
            raise PruneFailed("http_error", f"{self._address} does not answer: {type(e).__name__}") from e
        if status != 200:
            raise PruneFailed("http_error", f"{self._address} answered HTTP {status}")
        try:
            return json.decode(body)
        except ParseError as e:
            raise PruneFailed("invalid_response", f"{self._address} did not answer with JSON") from e


def kept_rows(original: str, pruned: str) -> list[bool]:
    """Return which lines of `original` are in `pruned`: by markers where there are any, else found in order."""
    before, after = lines.split(original), lines.split(pruned)
    keep = [False] * len(before)
    row = 0
    for line in after:
        marker = markers.read(line)
        if marker is not None and marker.start == row + 1:
            row = marker.end
            continue
        at = next((i for i in range(row, len(before)) if before[i] == line), None)
        if at is not None:
            keep[at] = True
            row = at + 1
    return keep


def _rpc_request(question: Question) -> JsonObject:
    options = question.options
    arguments: JsonObject = {
        "text": sendable(question.text),
        "goal_hint": sendable(question.goal),
        "source_type": question.source_type,
        "options": {
            "max_prune_ratio": options.max_prune_ratio,
            "min_keep_lines": options.min_keep_lines,
            "timeout_ms": options.timeout_ms,
            "annotate_lines": False,
            "include_markers": True,
        },
    }
    params: JsonObject = {"name": "prune_text", "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def _rpc_text(answer: JsonValue) -> str:
    match answer:
        case {"result": {"structuredContent": {"pruned_text": str(text)}}}:
            return text
        case {"result": {"content": [{"text": str(content)}, *_]}}:
            try:
                found = json.fields(content.encode("utf-8", "surrogatepass"), ("pruned_text",)).get("pruned_text")
            except ParseError:
                found = None
            if isinstance(found, str):
                return found
        case {"error": {"message": str(problem)}}:
            raise PruneFailed("invalid_response", f"the pruner refuses: {problem[:200]}")
    raise PruneFailed("invalid_response", "the pruner's answer holds no pruned_text")


OURS = "kimi-proxy"
PRUNE_ID = "prn_0123456789abcdef"  # nothing is stored, but its marker is paid for

Contestant = Callable[[Case], Judged]


def contestants(addresses: Sequence[str]) -> list[Contestant]:
    """Return what judges each contestant on a case. Ours is the first: the others are compared with it."""
    return [
        lambda case: judging.pruning(OURS, case, _engine),
        *(_remote(PrunerEndpoint(address)) for address in addresses),
        *(_ranker(name) for name in RANKERS),
    ]


GOAL_ALONE = "kimi-proxy, by the goal alone"


def session_contestants() -> list[Contestant]:
    """Return the same for outputs of agents' tools: ours knows what the agent was doing, and once does not."""
    return [
        lambda case: judging.pruning(OURS, case, _engine),
        lambda case: judging.pruning(GOAL_ALONE, case, lambda question: _engine(replace(question, context=None))),
        *(_ranker(name) for name in RANKERS),
    ]


def evaluate(cases: Sequence[Case], against: Sequence[Contestant]) -> Iterator[Judged]:
    """Yield case by case, so that progress can be shown."""
    tokens.count("")  # loads the vocabulary before anything is timed
    for case in cases:
        for contestant in against:
            yield contestant(case)


def _ranker(name: str) -> Contestant:
    return lambda case: judging.ranking(name, case, RANKERS[name], time.perf_counter)


def _engine(question: Question) -> Kept:
    began = time.perf_counter()
    pruned = engine.prune(question, PRUNE_ID)
    return judging.kept_of(pruned, 1000 * (time.perf_counter() - began))


def _remote(endpoint: PrunerEndpoint) -> Contestant:
    def prune(question: Question) -> Kept:
        began = time.perf_counter()
        text = endpoint.prune(question)
        ms = 1000 * (time.perf_counter() - began)
        if text == question.text:
            return Kept([True] * len(lines.split(text)), 1.0, ms)
        share = tokens.count(text) / max(1, tokens.count(question.text))
        return Kept(kept_rows(question.text, text), min(1.0, share), ms)

    return lambda case: judging.pruning(endpoint.name, case, prune)
