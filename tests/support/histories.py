"""Small git repositories, made for a test."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

ENV = {
    "PATH": "/usr/bin:/bin:/usr/local/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Somebody",
    "GIT_AUTHOR_EMAIL": "somebody@example.org",
    "GIT_COMMITTER_NAME": "Somebody",
    "GIT_COMMITTER_EMAIL": "somebody@example.org",
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z",
}


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], env=ENV, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def begin(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    return folder


def commit(folder: Path, message: str, files: Mapping[str, str]) -> str:
    """Write `files`, commit everything, and return the commit's id."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)
    return git(folder, "rev-parse", "HEAD").strip()


def module(functions: int, retried: int = -1) -> str:
    """A module of many functions, each documented; one of them may try again."""
    rows = ["import socket", ""]
    for i in range(functions):
        rows += [f"def convert_{i}(value):", f'    """Turn the value number {i} into what the caller wants."""']
        rows += [f"    value = value * {k} + {i}" for k in range(8)]
        rows += ["    return retry(value)" if i == retried else "    return value", ""]
    return "\n".join(rows) + "\n"


def page(sections: int) -> str:
    return "\n".join(
        row
        for i in range(sections)
        for row in (f"## How to turn value {i}", "", *(f"Sentence {k} tells of value {i}." for k in range(6)), "")
    )


def busy(folder: Path) -> Path:
    """A repository with commits, documentation and a page to ask about."""
    begin(folder)
    commit(folder, "Begin with the conversions", {"src/convert.py": module(20), "docs/values.md": page(14)})
    for i in (3, 11, 17):
        commit(folder, f"Retry the conversion of value {i} when it fails", {"src/convert.py": module(20, i)})
    return folder
