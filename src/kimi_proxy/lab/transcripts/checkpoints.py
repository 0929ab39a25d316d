"""Sessions that entire.io's CLI keeps on a repository's branch `entire/checkpoints/v1`, read without a checkout.

A session is stored anew at each checkpoint, so the largest copy has all of it. Long ones lie in numbered pieces.
"""

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kimi_proxy.lab.transcripts.transcript import document, string

BRANCHES = ("refs/heads/entire/checkpoints/v1", "refs/remotes/origin/entire/checkpoints/v1")
TIMEOUT_S = 120
MAX_BLOB_BYTES = 64 * 1024**2

_TRAJECTORY = re.compile(r"\.traj(?:\.json)?$")
_FULL = re.compile(r"(?P<folder>.+)/full(?:\.(?P<piece>\d+))?\.jsonl$")
_HARMLESS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
_ENV = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}


@dataclass(frozen=True, slots=True)
class StoredSession:
    """The objects of a session in their order, and their size together."""

    name: str
    objects: tuple[str, ...]
    size: int


def is_repository(folder: Path) -> bool:
    return (folder / ".git").exists() or ((folder / "HEAD").is_file() and (folder / "objects").is_dir())


def sessions(repository: Path) -> list[StoredSession]:
    """Return the sessions of the checkpoints' branch, else the trajectories in the newest commit."""
    branch = next((name for name in BRANCHES if _git(repository, "rev-parse", "--verify", "-q", name)), None)
    if branch is None:
        listed = _listed(repository, "HEAD")
        return [StoredSession(path, (sha,), size) for path, sha, size in listed if _TRAJECTORY.search(path)]
    folders: dict[str, list[tuple[int, str, int]]] = defaultdict(list)
    metadata: dict[str, str] = {}
    for path, sha, size in _listed(repository, branch):
        if found := _FULL.match(path):
            folders[found["folder"]].append((int(found["piece"] or 0), sha, size))
        elif path.endswith("/metadata.json"):
            metadata[path.removesuffix("/metadata.json")] = sha
    ids = _session_ids(repository, {folder: metadata[folder] for folder in folders if folder in metadata})
    largest: dict[str, StoredSession] = {}
    for folder, pieces in folders.items():
        name, size = ids.get(folder, folder), sum(size for _, _, size in pieces)
        if name not in largest or size > largest[name].size:
            largest[name] = StoredSession(name, tuple(sha for _, sha, _ in sorted(pieces)), size)
    return sorted(largest.values(), key=lambda session: session.name)


def blobs(repository: Path, objects: tuple[str, ...]) -> Iterator[bytes]:
    """Yield the contents of objects; those that a partial clone lacks, or that are too large, are passed over."""
    with _batch(repository) as (asks, answers):
        for sha in objects:
            asks.write(sha.encode() + b"\n")
            asks.flush()
            head = answers.readline().split()
            if len(head) < 3:  # "… missing"
                continue
            size = int(head[2])
            if size > MAX_BLOB_BYTES:
                return
            yield answers.read(size)
            answers.read(1)


def _listed(repository: Path, ref: str) -> Iterator[tuple[str, str, int]]:
    """Yield path, object and size of every file of a commit."""
    for line in _git(repository, "ls-tree", "-r", "-l", "-z", ref).decode("utf-8", "replace").split("\0"):
        meta, _, path = line.partition("\t")
        fields = meta.split()
        if len(fields) == 4 and fields[3].isdigit():
            yield path, fields[2], int(fields[3])


def _session_ids(repository: Path, metadata: dict[str, str]) -> dict[str, str]:
    ids: dict[str, str] = {}
    for folder, raw in zip(metadata, blobs(repository, tuple(metadata.values())), strict=False):
        if session := string(document(raw).get("session_id")):
            ids[folder] = session
    return ids


def _command(repository: Path, *arguments: str) -> list[str]:
    return ["git", "-C", str(repository), *_HARMLESS, *arguments]


def _git(repository: Path, *arguments: str) -> bytes:
    """Return what git prints; nothing if it fails or is not there."""
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and every argument is ours
            _command(repository, *arguments),
            capture_output=True,
            timeout=TIMEOUT_S,
            env={**os.environ, **_ENV},
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""


@contextmanager
def _batch(repository: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    git = subprocess.Popen(  # noqa: S603 - no shell, and every argument is ours
        _command(repository, "cat-file", "--batch"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **_ENV},
    )
    try:
        if git.stdin is None or git.stdout is None:
            raise OSError("git has no pipes")
        yield git.stdin, git.stdout
    finally:
        git.kill()
        git.communicate()
