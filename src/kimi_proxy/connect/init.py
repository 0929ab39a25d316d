"""Small changes to the files of clients: planned, previewed, applied, and reverted on request."""

import difflib
import hashlib
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kimi_proxy.connect.client_files import ServersFile, put_block, remove_block
from kimi_proxy.core import json
from kimi_proxy.core.errors import FileRefused, ParseError
from kimi_proxy.core.json import JsonObject
from kimi_proxy.proxy import private_files
from kimi_proxy.proxy.private_files import private_file, sync_directory

FOLDER = "init"
RECORD = "record.json"
BEFORE = "before"


@dataclass(frozen=True, slots=True)
class EditRecord:
    """One file: its content before our change (None if there was no file), and a digest of its content after."""

    path: Path
    before: bytes | None
    after: str
    made: tuple[Path, ...] = ()  # directories that were created for it


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class EditLog:
    """Records of changes, one directory for each file, so that they can be reverted."""

    def __init__(self, home: Path) -> None:
        self._folder = home.absolute() / FOLDER

    def find(self, path: Path) -> EditRecord | None:
        folder = self.folder_of(path)
        try:
            stored = json.decode((folder / RECORD).read_bytes())
            before = (folder / BEFORE).read_bytes() if (folder / BEFORE).exists() else None
        except (OSError, ParseError):
            return None
        match stored:
            case {"path": str(file), "after": str(after), "made": list(made)}:
                return EditRecord(Path(file), before, after, tuple(Path(str(each)) for each in made))
        return None

    def paths(self) -> list[Path]:
        """Return every file that is changed."""
        found: list[Path] = []
        for record in sorted(self._folder.glob(f"*/{RECORD}")):
            try:
                stored = json.decode(record.read_bytes())
            except (OSError, ParseError):
                continue
            if isinstance(stored, dict) and isinstance(stored.get("path"), str):
                found.append(Path(str(stored["path"])))
        return found

    def keep(self, record: EditRecord) -> None:
        """Commit a record to disk, before the file itself is changed. Raise FileRefused if that fails."""
        folder = self.folder_of(record.path)
        stored = {"path": str(record.path), "after": record.after, "made": [str(each) for each in record.made]}
        try:
            if record.before is None:
                (folder / BEFORE).unlink(missing_ok=True)
            else:
                _write(folder / BEFORE, record.before)
            _write(folder / RECORD, json.encode(stored))
        except OSError as e:
            problem = f"{record.path} is left as it is: the way back cannot be kept in {folder} ({e.strerror})"
            raise FileRefused(problem) from e

    def forget(self, path: Path) -> None:
        folder = self.folder_of(path)
        for name in (RECORD, BEFORE):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()

    def folder_of(self, path: Path) -> Path:
        return self._folder / digest(os.fsencode(path))[:16]


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".new")
    private_file(temporary)
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


class FileEdit(Protocol):
    @property
    def path(self) -> Path: ...
    @property
    def lock(self) -> Path | None: ...

    def apply(self, text: str) -> str:
        """Return `text` with our part in it."""

    def revert(self, text: str, before: str) -> str:
        """Return `text` without our part, or with what `before` had in its place."""


@dataclass(frozen=True, slots=True)
class ServerEdit:
    """Our entry among the MCP servers of a client."""

    path: Path
    form: ServersFile
    entry: JsonObject
    lock: Path | None = None

    def apply(self, text: str) -> str:
        return self.form.with_entry(text, self.entry)

    def revert(self, text: str, before: str) -> str:
        return self.form.restore(text, before)


@dataclass(frozen=True, slots=True)
class RulesEdit:
    """Our block in an agent's instructions; a newly created file begins with `start`."""

    path: Path
    block: str
    start: str = ""
    lock: Path | None = None

    def apply(self, text: str) -> str:
        return put_block(text or self.start, self.block)

    def revert(self, text: str, before: str) -> str:
        rest = remove_block(text)
        return "" if not before and rest.strip() == self.start.strip() else rest


@dataclass(frozen=True, slots=True)
class EmptyFileEdit:
    """A file for another program to write: created empty, and removed only if it is still empty."""

    path: Path
    lock: Path | None = None

    def apply(self, text: str) -> str:
        return text

    def revert(self, text: str, before: str) -> str:
        return text


class FilePart(Protocol):
    """Something of ours in a file of a client."""

    def apply(self, text: str) -> str: ...
    def revert(self, text: str, before: str) -> str: ...


@dataclass(frozen=True, slots=True)
class PartEdit:
    """Settings of ours, or an entry in a list, in a client's file."""

    path: Path
    part: FilePart
    lock: Path | None = None

    def apply(self, text: str) -> str:
        return self.part.apply(text)

    def revert(self, text: str, before: str) -> str:
        return self.part.revert(text, before)


@dataclass(frozen=True, slots=True)
class CombinedEdit:
    """Several edits of one file."""

    path: Path
    edits: tuple[FileEdit, ...]
    lock: Path | None = None

    def apply(self, text: str) -> str:
        for edit in self.edits:
            text = edit.apply(text)
        return text

    def revert(self, text: str, before: str) -> str:
        for edit in self.edits:
            text = edit.revert(text, before)
        return text


def combine(edits: Iterable[FileEdit]) -> list[FileEdit]:
    """Return the edits with those of one file as one, and each of them once."""
    by_path: dict[Path, list[FileEdit]] = {}
    for edit in edits:
        same_file = by_path.setdefault(private_files.resolve(edit.path), [])
        if edit not in same_file:
            same_file.append(edit)
    return [
        each[0] if len(each) == 1 else CombinedEdit(path, tuple(each), each[0].lock) for path, each in by_path.items()
    ]


PRIVATE = 0o600
CONTEXT_LINES = 2


@dataclass(frozen=True, slots=True)
class FileChange:
    """The content of a file now and after the change; None where there is no file."""

    edit: FileEdit
    path: Path  # with links resolved
    before: bytes | None
    after: bytes | None
    record: EditRecord | None  # of an earlier change
    known: FileEdit  # of everything that we may have put there
    is_undo: bool = False
    is_partial: bool = False  # something else of ours stays in the file

    @property
    def is_needed(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        before = _lines(self.before)
        after = _lines(self.after)
        names = (_name(self.path, self.before), _name(self.path, self.after))
        shown = "".join(difflib.unified_diff(before, after, *names, n=CONTEXT_LINES))
        return shown or f"--- {names[0]}\n+++ {names[1]}\n"  # an empty file is created or removed


def plan_edit(edit: FileEdit, log: EditLog, known: FileEdit | None = None) -> FileChange:
    """Return the change that connects the client. Raise FileRefused if it cannot be made safely.

    `known` is an edit of everything that we may have added to this file; it finds the state before our changes.
    """
    path = private_files.resolve(edit.path)
    before = private_files.read(path)
    with _naming(path):
        after = edit.apply(_text(before)).encode("utf-8")
    return FileChange(edit, path, before, after, log.find(path), known or edit)


def plan_undo(edit: FileEdit, log: EditLog, known: FileEdit | None = None) -> FileChange | None:
    """Return the change that takes `edit` back; None if that file was never changed."""
    path = private_files.resolve(edit.path)
    record = log.find(path)
    if record is None:
        return None
    known = known or edit
    now = private_files.read(path)
    after = _before_us(known, path, now, record)
    is_partial = False
    if now is not None and known is not edit:
        with _naming(path):
            rest = edit.revert(_text(now), _text(record.before))
            is_partial = rest != known.revert(_text(now), _text(record.before))
        after = rest.encode("utf-8") if is_partial else after
    return FileChange(edit, path, now, after, record, known, is_undo=True, is_partial=is_partial)


def in_order_of_undo(changes: Iterable[FileChange]) -> list[FileChange]:
    """Return the changes so that a directory that was made for one file is removed after all files in it."""
    return sorted(changes, key=_outermost_made, reverse=True)


def _outermost_made(change: FileChange) -> float:
    made = change.record.made if change.record else ()
    return min((len(directory.parts) for directory in made), default=math.inf)


def apply(change: FileChange, log: EditLog, is_private: bool = False) -> None:
    """Make a change that was shown. Raise FileRefused if the file has changed in the meantime."""
    with private_files.hold_lock(change.edit.lock):
        if private_files.read(change.path) != change.before:
            raise FileRefused(f"{change.path} was just changed by another program: run this again")
        if change.is_undo:
            _undo(change, log)
        elif change.after is not None and change.is_needed:
            _do(change, change.after, log, PRIVATE if is_private else 0o644)


def _do(change: FileChange, after: bytes, log: EditLog, mode: int) -> None:
    record = change.record
    made = tuple(private_files.missing_directories(change.path))
    before = change.before
    if record is not None and change.before is not None:
        # Undoing leads back to before our first change.
        before = _before_us(change.known, change.path, change.before, record)
        made = record.made
    log.keep(EditRecord(change.path, before, digest(after), made))
    private_files.replace(change.path, after, mode)


def _undo(change: FileChange, log: EditLog) -> None:
    if change.is_partial and change.record is not None and change.after is not None:
        before = _before_us(change.known, change.path, change.before, change.record)
        log.keep(EditRecord(change.path, before, digest(change.after), change.record.made))
        private_files.replace(change.path, change.after)
        return
    if change.record is not None and change.after is None:
        private_files.remove(change.path, change.record.made)
    elif change.after is not None and change.is_needed:
        private_files.replace(change.path, change.after)
    log.forget(change.path)


def _before_us(edit: FileEdit, path: Path, now: bytes | None, record: EditRecord) -> bytes | None:
    """Return the old bytes if the file was not touched since, else its content of now without our part."""
    if now is None or digest(now) == record.after:
        return now if now is None else record.before
    with _naming(path):
        undone = edit.revert(_text(now), _text(record.before))
        return None if record.before is None and not undone.strip() else undone.encode("utf-8")


def _text(content: bytes | None) -> str:
    return (content or b"").decode("utf-8")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add the name of the file to a refusal."""
    try:
        yield
    except FileRefused as e:
        raise FileRefused(f"{path} was not changed: {e}") from e
    except UnicodeError as e:
        raise FileRefused(f"{path} was not changed, because it is not UTF-8: edit it by hand") from e


def _lines(content: bytes | None) -> list[str]:
    lines = (content or b"").decode("utf-8", "replace").split("\n")
    return [line + "\n" for line in lines[:-1]] + (
        [lines[-1] + "\n\\ No newline at end of file\n"] if lines[-1] else []
    )


def _name(path: Path, content: bytes | None) -> str:
    return "/dev/null" if content is None else str(path)
