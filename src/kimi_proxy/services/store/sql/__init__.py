"""Code shared by the SQLite and PostgreSQL stores: common statements, their clock, and compressed texts.

Each driver adds the parts specific to its database. Placeholders in statements are `?`.
"""

import hashlib
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import ConfigError, PruneIdNotFound, StoreUnavailable
from kimi_proxy.core.lines import decode_text
from kimi_proxy.services.store.protocols import AuditNote

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Row = tuple[object, ...]


class SqlStatement(NamedTuple):
    """A statement with its values, for a driver to execute in its own transaction."""

    text: str
    values: Row


def note_nothing(who: Caller, action: str, subject: str, *, outcome: str = "ok") -> None:
    """Keep no audit log."""


@contextmanager
def audit_block(note: AuditNote, who: Caller, action: str, subject: str = "") -> Iterator[None]:
    """Audit the action in the block when it ends, as successful or with the reason for its failure."""
    try:
        yield
    except PruneIdNotFound as e:
        note(who, action, subject, outcome=e.reason)
        raise
    except StoreUnavailable:
        note(who, action, subject, outcome="store_unavailable")
        raise
    note(who, action, subject)


def note_deleted(note: AuditNote, who: Caller, action: str, wanted: Iterable[str], deleted: Collection[str]) -> None:
    """Record a deletion, and whether there was anything to delete."""
    for subject in wanted:
        note(who, action, subject, outcome="ok" if subject in deleted else "unknown")


class SqlDatabase(Protocol):
    """Raises StoreUnavailable if the database cannot answer in time."""

    clock: "WallClock"
    note: AuditNote

    async def rows(self, statement: str, values: Row = ()) -> list[Row]:
        """Return the rows of a statement that only reads."""

    async def change(self, statement: str, values: Row = ()) -> list[Row]:
        """Return the rows of a statement that writes, once it is committed."""

    async def change_all(self, statements: Sequence[SqlStatement]) -> list[list[Row]]:
        """Return the rows of each statement, once all of them are committed in one transaction."""


D = TypeVar("D", bound=SqlDatabase)


class SqlTables(Generic[D]):
    """The base of what holds statements."""

    def __init__(self, database: D) -> None:
        self.database = database


def one_of(column: str, values: Sequence[str] | None) -> str:
    """Return the condition that a column holds one of `values`; None: whatever it holds."""
    if values is None:
        return "TRUE"
    return f"{column} IN ({marks(len(values))})" if values else "FALSE"


# The condition of a statement that writes for a person: their data was not erased. Its value is the person's id.
NOT_ERASED = "NOT EXISTS (SELECT 1 FROM erased WHERE erased.person = ?)"
# The id of a person, or no one's if their data was erased. It takes the id twice.
PERSON_OR_NO_ONE = "CASE WHEN EXISTS (SELECT 1 FROM erased WHERE erased.person = ?) THEN '' ELSE ? END"
ERASED = "the data of this person was erased, and no more is stored for them"


def erased_among(people: Iterable[str]) -> SqlStatement:
    """Return what asks whose data was erased; in PostgreSQL, no one's is until this transaction ends."""
    ids = sorted(set(people))
    return SqlStatement(f"SELECT person FROM erased WHERE {one_of('person', ids)}", tuple(ids))  # noqa: S608


def name_of(column: str) -> str:
    """Return the name of the person whose id a column holds; the server's own admin has no row among the people."""
    known = f"SELECT name FROM person WHERE person.id = {column}"  # noqa: S608 - a column of ours
    return f"coalesce(({known}), CASE {column} WHEN 'admin' THEN 'admin' ELSE '' END)"


def marks(count: int) -> str:
    return ", ".join("?" * count)


def sums(*columns: str) -> str:
    """Return the sums of columns as whole numbers; without rows they are 0."""
    return ", ".join(f"CAST(coalesce(sum({column}), 0) AS bigint)" for column in columns)


# Time: a clock that leaps makes nothing expire before a second look confirms it.

LEAP_S = 3600.0  # a clock that moves further than this between two looks has jumped, or slept
CONFIRM_S = 600.0  # how long it must then run on before it is believed


@dataclass(frozen=True, slots=True)
class Moment:
    """It is not before `earliest` and not after `latest`; they differ only while a jump of the clock is suspected.

    Uses are stamped with `latest`, expiry is checked with `earliest`: in doubt, an original lives longer.
    """

    earliest: float
    latest: float

    @property
    def is_certain(self) -> bool:
        return self.earliest == self.latest


class WallClock:
    """Believes small steps at once, and a leap only when a second look confirms it."""

    def __init__(self, wall: Callable[[], float], last_seen: float | None = None) -> None:
        self._wall = wall
        self._believed = wall() if last_seen is None else last_seen
        self._leapt_to: float | None = None
        self._latest_look = self._believed
        self._lock = threading.Lock()

    def look(self) -> Moment:
        with self._lock:
            wall = self._wall()
            if self._is_believable(wall):
                self._believed = wall
                self._leapt_to = None
            self._latest_look = wall
            return Moment(min(wall, self._believed), max(wall, self._believed))

    def _is_believable(self, wall: float) -> bool:
        if abs(wall - self._believed) <= LEAP_S:
            return True
        runs_on = 0 <= wall - self._latest_look <= LEAP_S
        if self._leapt_to is None or not runs_on:
            self._leapt_to = wall
        return wall - self._leapt_to >= CONFIRM_S


# Texts: compressed, with the hash that they must have when they come out.

# How frames begin that earlier versions wrote, and where such a text is; no zstd frame begins so.
_FOREIGN = {b"KPO1": "in object storage", b"KPE1": "encrypted"}
READABLE_BY = "b6d1baf8"  # the last commit that reads such texts
ENDS = 50  # the texts looked at when a store is opened: the newest and the oldest ones
LEVEL = 3  # logs and code shrink to a quarter or less, at hundreds of megabytes a second


@dataclass(frozen=True, slots=True)
class CompressedText:
    """A zstd frame, and the SHA-256 of its decompressed text."""

    hash: bytes
    frame: bytes


def compress(text: bytes) -> CompressedText:
    return CompressedText(hashlib.sha256(text).digest(), zstd.compress(text, LEVEL))


def decompress(compressed: CompressedText) -> bytes:
    """Return the text, byte for byte; raise StoreUnavailable if the disk gave back something else."""
    if where := _FOREIGN.get(compressed.frame[:4]):
        raise StoreUnavailable(f"this text is {where}, which this version cannot read: {_EXPORT}")
    try:
        text = zstd.decompress(compressed.frame)
    except zstd.ZstdError as e:
        raise StoreUnavailable(f"this original is damaged on disk ({e}): read the source again") from e
    if hashlib.sha256(text).digest() != compressed.hash:
        raise StoreUnavailable("this original is damaged on disk (wrong hash): read the source again")
    return text


_EXPORT = f"run `kimi-proxy store decrypt` of commit {READABLE_BY} with the settings of before, then start this version"
FOREIGN = f"""SELECT substr(frame, 1, 4) FROM (
  SELECT frame FROM (SELECT frame FROM text ORDER BY seq DESC LIMIT {ENDS}) AS newest UNION ALL
  SELECT frame FROM (SELECT frame FROM text ORDER BY seq LIMIT {ENDS}) AS oldest) AS ends
  WHERE substr(frame, 1, 4) IN (?, ?) LIMIT 1"""  # noqa: S608 - fixed numbers
FOREIGN_MARKS = tuple(_FOREIGN)


async def refuse_foreign_texts(database: SqlDatabase) -> None:
    """Raise ConfigError if a store has texts of an earlier version that this one cannot read: none may get lost."""
    with suppress(StoreUnavailable):
        refuse_marks(await database.rows(FOREIGN, FOREIGN_MARKS))


def refuse_marks(found: Sequence[Row]) -> None:
    """Raise ConfigError if FOREIGN has found a frame of an earlier version."""
    for (mark,) in found:
        where = next(where for known, where in _FOREIGN.items() if known == mark)
        raise ConfigError(f"the store has texts that are {where}, which this version cannot read: {_EXPORT}")


def legible(raw: bytes) -> str:
    """Return a text of a row; what the disk has damaged in it is replaced."""
    try:
        return decode_text(raw)
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace")


def readable(hashed: bytes, frame: bytes) -> bytes | None:
    """Return the text, or None if the disk gave back something else."""
    with suppress(StoreUnavailable):
        return decompress(CompressedText(hashed, frame))
    return None
