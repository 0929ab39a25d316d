"""Clients are connected by small changes to their files, shown before they are made and taken back on request."""

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
from kimi_proxy.features.clients import Client, Scope
from kimi_proxy.features.editing.client_files import ServersFile, put_block, remove_block
from kimi_proxy.proxy import private_files
from kimi_proxy.proxy.private_files import private_file, sync_directory

FOLDER = "init"
RECORD = "record.json"
BEFORE = "before"


@dataclass(frozen=True, slots=True)
class Record:
    """One file: what it held before us (nothing, if there was none), a digest of what it held after us."""

    path: Path
    before: bytes | None
    after: str
    made: tuple[Path, ...] = ()  # directories that were made for it


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Ledger:
    def __init__(self, home: Path) -> None:
        self._folder = home.absolute() / FOLDER

    def find(self, path: Path) -> Record | None:
        place = self.place(path)
        try:
            noted = json.decode((place / RECORD).read_bytes())
            before = (place / BEFORE).read_bytes() if (place / BEFORE).exists() else None
        except (OSError, ParseError):
            return None
        match noted:
            case {"path": str(named), "after": str(after), "made": list(made)}:
                return Record(Path(named), before, after, tuple(Path(str(each)) for each in made))
        return None

    def keep(self, record: Record) -> None:
        """On disk before the file itself is touched; FileRefused if it cannot be."""
        place = self.place(record.path)
        try:
            self._keep(place, record)
        except OSError as e:
            problem = f"{record.path} is left as it is: the way back cannot be kept in {place} ({e.strerror})"
            raise FileRefused(problem) from e

    def _keep(self, place: Path, record: Record) -> None:
        if record.before is None:
            (place / BEFORE).unlink(missing_ok=True)
        else:
            _write(place / BEFORE, record.before)
        noted = {"path": str(record.path), "after": record.after, "made": [str(each) for each in record.made]}
        _write(place / RECORD, json.encode(noted))

    def forget(self, path: Path) -> None:
        place = self.place(path)
        for name in (RECORD, BEFORE):
            (place / name).unlink(missing_ok=True)
        place.rmdir()

    def place(self, path: Path) -> Path:
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


class Edit(Protocol):
    @property
    def path(self) -> Path: ...
    @property
    def lock(self) -> Path | None: ...

    def done(self, text: str) -> str:
        """`text` with our part in it."""

    def undone(self, text: str, before: str) -> str:
        """`text` without our part, or with what `before` had in its place."""


@dataclass(frozen=True, slots=True)
class ServerEdit:
    """Our server among those of a client."""

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
class Machine:
    """The directories that paths begin in: the project's, the user's, VS Code's."""

    here: Path
    home: Path
    code: Path
    env: Mapping[str, str]


def all_config_files(client: Client, scope: Scope, machine: Machine) -> tuple[Path, ...]:
    """Wherever this client may look for its servers."""
    if scope == "project":
        if not client.project:
            raise FileRefused(f"{client.title} has no servers of a project: use --user")
        return (machine.here / client.project,)
    moved = _moved(client, machine, Path(client.user[0]).name)
    if moved:
        return (moved,)
    return tuple(machine.home / path.replace("{code}", str(machine.code)) for path in client.user)


def config_files(client: Client, scope: Scope, machine: Machine) -> tuple[Path, ...]:
    """Those of them that are in use; the first if none is."""
    files = all_config_files(client, scope, machine)
    return tuple(file for file in files if file.exists()) or files[:1]


def rules_file(client: Client, scope: Scope, machine: Machine) -> Path:
    """The file of an agent's instructions."""
    if client.rules == ".clinerules":
        rules = machine.here / client.rules
        return rules if rules.is_file() else rules / "kimi-proxy.md"
    if scope == "project":
        return machine.here / client.rules
    if not client.user_rules:
        raise FileRefused(f"{client.title} keeps its user's rules in its settings: use --project, or paste them there")
    return _moved(client, machine, Path(client.user_rules).name) or machine.home / client.user_rules


def own_command(scope: Scope, path: str | None = None) -> tuple[str, ...]:
    """What starts us. A project's file is shared, so it holds a path only where the name is not enough."""
    script = Path(sys.executable).with_name("kimi-proxy")
    found = shutil.which("kimi-proxy", path=path)
    if scope == "project" and found and Path(found).resolve() == script.resolve():
        return ("kimi-proxy",)
    return (str(script),) if script.exists() else (sys.executable, "-P", "-m", "kimi_proxy")


def _moved(client: Client, machine: Machine, name: str) -> Path | None:
    """The variable of a client names a file, or a directory for all its files."""
    named = machine.env.get(client.moved_by) if client.moved_by else None
    if not named:
        return None
    return Path(named) if Path(named).suffix else Path(named) / name


PRIVATE = 0o600
CONTEXT_LINES = 2


@dataclass(frozen=True, slots=True)
class Change:
    """A file as it is and as it will be; None where there is no file."""

    edit: Edit
    path: Path  # the file itself, not a link to it
    before: bytes | None
    after: bytes | None
    record: Record | None  # of an earlier change
    is_undo: bool = False

    @property
    def is_needed(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        before, after = _lines(self.before), _lines(self.after)
        names = (_name(self.path, self.before), _name(self.path, self.after))
        return "".join(difflib.unified_diff(before, after, *names, n=CONTEXT_LINES))


def planned(edit: Edit, ledger: Ledger) -> Change:
    """What connecting would change; FileRefused if that cannot be done safely."""
    path = edit.path.resolve()
    before = private_files.read(path)
    with _about(path):
        after = edit.done(_text(before)).encode("utf-8")
    return Change(edit, path, before, after, ledger.find(path))


def planned_undo(edit: Edit, ledger: Ledger) -> Change | None:
    """What taking it back would change; None if nothing was done there."""
    path = edit.path.resolve()
    record = ledger.find(path)
    if record is None:
        return None
    now = private_files.read(path)
    return Change(edit, path, now, _before_us(edit, path, now, record), record, is_undo=True)


def make(change: Change, ledger: Ledger, is_private: bool = False) -> None:
    """Make a change that was shown. If the file has changed in the meantime, nothing happens to it."""
    with private_files.locked(change.edit.lock):
        if private_files.read(change.path) != change.before:
            raise FileRefused(f"{change.path} has just been changed by another program: run this again")
        if change.is_undo:
            _undo(change, ledger)
        elif change.after is not None and change.is_needed:
            _do(change, change.after, ledger, PRIVATE if is_private else 0o644)


def _do(change: Change, after: bytes, ledger: Ledger, mode: int) -> None:
    record, made = change.record, tuple(private_files.missing_directories(change.path))
    before = change.before
    if record is not None and change.before is not None:
        # What was there before our first change is still what undoing leads to.
        before, made = _before_us(change.edit, change.path, change.before, record), record.made
    ledger.keep(Record(change.path, before, digest(after), made))
    private_files.replace(change.path, after, mode)


def _undo(change: Change, ledger: Ledger) -> None:
    if change.record is not None and change.after is None:
        private_files.remove(change.path, change.record.made)
    elif change.after is not None and change.is_needed:
        private_files.replace(change.path, change.after)
    ledger.forget(change.path)


def _before_us(edit: Edit, path: Path, now: bytes | None, record: Record) -> bytes | None:
    """The old bytes if nobody else has touched the file, else what is there now without our part."""
    if now is None or digest(now) == record.after:
        return now if now is None else record.before
    with _about(path):
        undone = edit.undone(_text(now), _text(record.before))
        return None if record.before is None and not undone.strip() else undone.encode("utf-8")


def _text(content: bytes | None) -> str:
    return (content or b"").decode("utf-8")


@contextmanager
def _about(path: Path) -> Iterator[None]:
    """Say which file it is that cannot be changed."""
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
