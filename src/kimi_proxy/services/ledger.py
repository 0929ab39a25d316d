"""What we changed in files of the user, with the bytes that were there before."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import FileRefused, ParseError
from kimi_proxy.services.store.private import private_file, sync_directory

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
            noted = jsontext.decode((place / RECORD).read_bytes())
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
        _write(place / RECORD, jsontext.encode(noted))

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
