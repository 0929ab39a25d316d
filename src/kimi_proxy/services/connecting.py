"""Clients are connected by small changes to their files, shown before they are made and taken back on request."""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.services import replacing
from kimi_proxy.services.edits import Edit
from kimi_proxy.services.ledger import Ledger, Record, digest

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
    before = replacing.read(path)
    with _about(path):
        after = edit.done(_text(before)).encode("utf-8")
    return Change(edit, path, before, after, ledger.find(path))


def planned_undo(edit: Edit, ledger: Ledger) -> Change | None:
    """What taking it back would change; None if nothing was done there."""
    path = edit.path.resolve()
    record = ledger.find(path)
    if record is None:
        return None
    now = replacing.read(path)
    return Change(edit, path, now, _before_us(edit, path, now, record), record, is_undo=True)


def make(change: Change, ledger: Ledger, is_private: bool = False) -> None:
    """Make a change that was shown. If the file has changed in the meantime, nothing happens to it."""
    with replacing.locked(change.edit.lock):
        if replacing.read(change.path) != change.before:
            raise FileRefused(f"{change.path} has just been changed by another program: run this again")
        if change.is_undo:
            _undo(change, ledger)
        elif change.after is not None and change.is_needed:
            _do(change, change.after, ledger, PRIVATE if is_private else 0o644)


def _do(change: Change, after: bytes, ledger: Ledger, mode: int) -> None:
    record, made = change.record, tuple(replacing.missing_directories(change.path))
    before = change.before
    if record is not None and change.before is not None:
        # What was there before our first change is still what undoing leads to.
        before, made = _before_us(change.edit, change.path, change.before, record), record.made
    ledger.keep(Record(change.path, before, digest(after), made))
    replacing.replace(change.path, after, mode)


def _undo(change: Change, ledger: Ledger) -> None:
    if change.record is not None and change.after is None:
        replacing.remove(change.path, change.record.made)
    elif change.after is not None and change.is_needed:
        replacing.replace(change.path, change.after)
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
