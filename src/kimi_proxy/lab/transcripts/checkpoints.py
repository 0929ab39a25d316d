"""Sessions that entire.io's CLI stores in a git repository, read without a checkout.

They are on the branch `entire/checkpoints/v1`, or below `refs/entire/checkpoints`. A session is stored again at each
checkpoint, so the largest copy has all of it. Long ones are split into numbered pieces.
"""

import os
import re
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kimi_proxy.lab.transcripts.transcript import document, string

TIMEOUT_S = 120
MAX_BLOB_BYTES = 64 * 1024**2
MAX_LISTING_BYTES = 128 * 1024**2  # of what git prints: a few small trees can name billions of files
MAX_BLOBS_BYTES = 512 * 1024**2  # of one session

_TRAJECTORY = re.compile(r"\.traj(?:\.json)?$")
_CHECKPOINTS = re.compile(r"refs/(?:heads/|remotes/[^/]+/)?entire/checkpoints/")
_FULL = re.compile(r"(?P<folder>.+)/(?:full(?:\.(?P<piece>\d+))?\.jsonl|raw_transcript(?:\.(?P<part>\d+))?)$")
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
    """Return the sessions of all checkpoints, else the trajectories in the newest commit."""
    names = _git(repository, "for-each-ref", "--format=%(refname)").decode("utf-8", "replace").split("\n")
    refs = [name for name in names if _CHECKPOINTS.match(name)]
    if not refs:
        listed = _list_files(repository, "HEAD")
        return [StoredSession(path, (sha,), size) for path, sha, size in listed if _TRAJECTORY.search(path)]
    folders: dict[tuple[str, str], list[tuple[int, str, int]]] = defaultdict(list)
    metadata: dict[str, str] = {}
    for ref in refs:
        for path, sha, size in _list_files(repository, ref):
            if found := _FULL.match(path):
                folders[ref, found["folder"]].append((int(found["piece"] or found["part"] or 0), sha, size))
            elif path.endswith("/metadata.json"):
                metadata[path.removesuffix("/metadata.json")] = sha
    ids = _session_ids(repository, {folder: metadata[folder] for _, folder in folders if folder in metadata})
    largest: dict[str, StoredSession] = {}
    for (_, folder), pieces in folders.items():
        name = ids.get(folder, folder)
        size = sum(size for _, _, size in pieces)
        if name not in largest or size > largest[name].size:
            largest[name] = StoredSession(name, tuple(sha for _, sha, _ in sorted(pieces)), size)
    return sorted(largest.values(), key=lambda session: session.name)


def blobs(repository: Path, objects: tuple[str, ...]) -> Iterator[bytes]:
    """Yield the contents of objects, nothing for one that a partial clone lacks, until one or all are too large."""
    left = MAX_BLOBS_BYTES
    with _batch(repository) as (asks, answers):
        for sha in objects:
            asks.write(sha.encode() + b"\n")
            asks.flush()
            head = answers.readline().split()
            if len(head) < 3:  # "… missing"
                yield b""
                continue
            size = int(head[2])
            left -= size
            if size > MAX_BLOB_BYTES or left < 0:
                return
            yield answers.read(size)
            answers.read(1)


def _list_files(repository: Path, ref: str) -> Iterator[tuple[str, str, int]]:
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
    """Return what git prints; nothing if it fails, is not there, or prints or takes too much."""
    try:
        git = subprocess.Popen(  # noqa: S603 - no shell, and every argument is ours
            _command(repository, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ENV},
        )
    except OSError:
        return b""
    timeout = threading.Timer(TIMEOUT_S, git.kill)
    timeout.start()
    with git:
        printed = git.stdout.read(MAX_LISTING_BYTES + 1) if git.stdout else b""
        if len(printed) > MAX_LISTING_BYTES:
            git.kill()
    timeout.cancel()
    return printed if git.returncode == 0 else b""


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
