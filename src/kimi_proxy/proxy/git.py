"""A local git repository, read through git's plumbing: nothing in it is run, changed or fetched."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kimi_proxy.core.errors import ToolFailed
from kimi_proxy.core.history import Commit

TIMEOUT_S = 120
MAX_BLOB_BYTES = 1024**2

_COMMIT, _MESSAGE_END = "\x01", "\x02"
# What a repository's own configuration could make git run.
_HARMLESS = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-c", "core.hooksPath=/dev/null")
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color")


class Repository:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
        self.head = self._head()
        self.name = self._name()

    def history(self, most: int) -> Iterator[Commit]:
        """The newest commits with one parent, and the files that each modified."""
        # No numbers and no renames: for those git would read every file, and a partial clone does not have them all.
        form = f"--format={_COMMIT}%H%n%B{_MESSAGE_END}"
        wanted = ("--no-merges", "--diff-filter=M", "--no-renames", "--name-only")
        out = self._git("log", *_PLAIN, *wanted, form, f"-n{most}")
        for entry in out.decode("utf-8", "replace").split(_COMMIT)[1:]:
            told, _, names = entry.partition(_MESSAGE_END)
            commit_id, _, message = told.partition("\n")
            yield Commit(commit_id, message, tuple(name for name in names.split("\n") if name))

    def before(self, commit_id: str, path: str) -> str | None:
        """A file as it was before a commit; None if it is large or not text."""
        return self._text(f"{commit_id}^", path)

    def now(self, path: str) -> str | None:
        return self._text(self.head, path)

    def diff(self, commit_id: str, path: str) -> str:
        """What a commit changed in a file, without context; "" if that cannot be told."""
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
        """What a person calls it: the folder that holds it, or a bare repository's own without its suffix."""
        top = self._git("rev-parse", "--absolute-git-dir").decode().strip()
        folder = Path(top)
        return (folder.parent if folder.name in (".git", "repo") else folder).name.removesuffix(".git")

    def _git(self, *arguments: str) -> bytes:
        command = ["git", "-C", str(self._path), *_HARMLESS, *arguments]
        try:
            done = subprocess.run(  # noqa: S603 - no shell, and paths come after `--` or inside an object's name
                command, capture_output=True, timeout=TIMEOUT_S, env=self._env, stdin=subprocess.DEVNULL, check=False
            )
        except FileNotFoundError as e:
            raise ToolFailed("exec_failed", "git is not installed, or not found on PATH") from e
        except subprocess.TimeoutExpired as e:
            raise ToolFailed("timeout", f"git {arguments[0]} took longer than {TIMEOUT_S} s") from e
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().split("\n")[0][:200]
            raise ToolFailed("git_failed", f"{self._path}: {said or 'git failed'}")
        return done.stdout
