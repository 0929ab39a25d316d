"""Connect clients by small changes to their files: planned, shown, made, and undone on request."""

import difflib
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kimi_proxy.core import json
from kimi_proxy.core.errors import FileRefused, ParseError
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.clients import ClientApp, Scope
from kimi_proxy.features.editing.client_files import ServersFile, put_block, remove_block
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
    """What was changed, one directory for each file, so that it can be undone."""

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

    def done(self, text: str) -> str:
        """Return `text` with our part in it."""

    def undone(self, text: str, before: str) -> str:
        """Return `text` without our part, or with what `before` had in its place."""


@dataclass(frozen=True, slots=True)
class ServerEdit:
    """Our entry among the MCP servers of a client."""

    path: Path
    form: ServersFile
    entry: JsonObject
    lock: Path | None = None

    def done(self, text: str) -> str:
        return self.form.with_entry(text, self.entry)

    def undone(self, text: str, before: str) -> str:
        return self.form.restored(text, before)


@dataclass(frozen=True, slots=True)
class RulesEdit:
    """Our block in an agent's instructions; a new file begins with `start`."""

    path: Path
    block: str
    start: str = ""
    lock: Path | None = None

    def done(self, text: str) -> str:
        return put_block(text or self.start, self.block)

    def undone(self, text: str, before: str) -> str:
        rest = remove_block(text)
        return "" if not before and rest.strip() == self.start.strip() else rest


@dataclass(frozen=True, slots=True)
class BaseDirs:
    """The directories that paths are relative to: the project's, the user's, VS Code's."""

    here: Path
    home: Path
    code: Path
    env: Mapping[str, str]


def all_config_files(client: ClientApp, scope: Scope, dirs: BaseDirs) -> tuple[Path, ...]:
    """Return every file in which this client may look for its servers. Raise FileRefused if it has none."""
    if scope == "project":
        if not client.project:
            raise FileRefused(f"{client.title} has no servers of a project: use --user")
        return (dirs.here / client.project,)
    moved = _moved(client, dirs, Path(client.user[0]).name)
    if moved:
        return (moved,)
    return tuple(dirs.home / path.replace("{code}", str(dirs.code)) for path in client.user)


def config_files(client: ClientApp, scope: Scope, dirs: BaseDirs) -> tuple[Path, ...]:
    """Return those of them that exist; the first one if none does."""
    files = all_config_files(client, scope, dirs)
    return tuple(file for file in files if file.exists()) or files[:1]


def rules_file(client: ClientApp, scope: Scope, dirs: BaseDirs) -> Path:
    """Return the file of an agent's instructions. Raise FileRefused if there is none in this scope."""
    if client.rules == ".clinerules":
        rules = dirs.here / client.rules
        return rules if rules.is_file() else rules / "kimi-proxy.md"
    if scope == "project":
        return dirs.here / client.rules
    if not client.user_rules:
        raise FileRefused(f"{client.title} keeps its user's rules in its settings: use --project, or paste them there")
    return _moved(client, dirs, Path(client.user_rules).name) or dirs.home / client.user_rules


def own_command(scope: Scope, path: str | None = None) -> tuple[str, ...]:
    """Return the command that starts us; a project's file is shared, so it gets a path only if it needs one."""
    script = Path(sys.executable).with_name("kimi-proxy")
    found = shutil.which("kimi-proxy", path=path)
    if scope == "project" and found and Path(found).resolve() == script.resolve():
        return ("kimi-proxy",)
    return (str(script),) if script.exists() else (sys.executable, "-P", "-m", "kimi_proxy")


def _moved(client: ClientApp, dirs: BaseDirs, name: str) -> Path | None:
    """Return the file that a client's variable names, or `name` in the directory that it names."""
    moved = dirs.env.get(client.moved_by) if client.moved_by else None
    if not moved:
        return None
    return Path(moved) if Path(moved).suffix else Path(moved) / name


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
    is_undo: bool = False

    @property
    def is_needed(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        before, after = _lines(self.before), _lines(self.after)
        names = (_name(self.path, self.before), _name(self.path, self.after))
        return "".join(difflib.unified_diff(before, after, *names, n=CONTEXT_LINES))


def plan_edit(edit: FileEdit, log: EditLog) -> FileChange:
    """Return the change that connects. Raise FileRefused if it cannot be made safely."""
    path = edit.path.resolve()
    before = private_files.read(path)
    with _naming(path):
        after = edit.done(_text(before)).encode("utf-8")
    return FileChange(edit, path, before, after, log.find(path))


def plan_undo(edit: FileEdit, log: EditLog) -> FileChange | None:
    """Return the change that disconnects; None if that file was never changed."""
    path = edit.path.resolve()
    record = log.find(path)
    if record is None:
        return None
    now = private_files.read(path)
    return FileChange(edit, path, now, _before_us(edit, path, now, record), record, is_undo=True)


def apply(change: FileChange, log: EditLog, is_private: bool = False) -> None:
    """Make a change that was shown. Raise FileRefused if the file has changed in the meantime."""
    with private_files.locked(change.edit.lock):
        if private_files.read(change.path) != change.before:
            raise FileRefused(f"{change.path} has just been changed by another program: run this again")
        if change.is_undo:
            _undo(change, log)
        elif change.after is not None and change.is_needed:
            _do(change, change.after, log, PRIVATE if is_private else 0o644)


def _do(change: FileChange, after: bytes, log: EditLog, mode: int) -> None:
    record, made = change.record, tuple(private_files.missing_directories(change.path))
    before = change.before
    if record is not None and change.before is not None:
        # Undoing leads back to before our first change.
        before, made = _before_us(change.edit, change.path, change.before, record), record.made
    log.keep(EditRecord(change.path, before, digest(after), made))
    private_files.replace(change.path, after, mode)


def _undo(change: FileChange, log: EditLog) -> None:
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
        undone = edit.undone(_text(now), _text(record.before))
        return None if record.before is None and not undone.strip() else undone.encode("utf-8")


def _text(content: bytes | None) -> str:
    return (content or b"").decode("utf-8")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add the name of the file to a refusal."""
    try:
        yield
    except FileRefused as e:
        raise FileRefused(f"{path} is left as it is: {e}") from e
    except UnicodeError as e:
        raise FileRefused(f"{path} is left as it is: it is not UTF-8; change it by hand") from e


def _lines(content: bytes | None) -> list[str]:
    lines = (content or b"").decode("utf-8", "replace").split("\n")
    return [line + "\n" for line in lines[:-1]] + (
        [lines[-1] + "\n\\ No newline at end of file\n"] if lines[-1] else []
    )


def _name(path: Path, content: bytes | None) -> str:
    return "/dev/null" if content is None else str(path)
