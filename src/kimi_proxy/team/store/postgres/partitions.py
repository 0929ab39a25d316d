"""Tables whose rows go by age: a child table for each range of time, made ahead and dropped as a whole.

The children inherit. A partitioned table needs the time in each of its unique indexes, while servers of the version
before insert with `ON CONFLICT (id)`: they go on with the table itself, and read and delete in all children through it.
Rows in the table itself are swept.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from psycopg import errors

from kimi_proxy.services.store.sql import Moment
from kimi_proxy.services.store.sql.sessions import KEEP_S
from kimi_proxy.team.store.postgres.database import Connection, PostgresDatabase

DAY_S = 86_400
TOMBSTONE_S = 30.0 * DAY_S
# How long a drop waits for a report that reads the child; later requests wait behind it. The next sweep tries again.
LOCK_MS = 50

_RANGE = re.compile(r"_(\d{8})_(\d{8})$", re.ASCII)


@dataclass(frozen=True, slots=True)
class PartitionedTable:
    """A table, the column with a row's time, and how long a range and the life of a row are."""

    name: str
    column: str
    range_days: int
    keep_s: float
    has_numbers: bool = True  # in the column `seq`


TABLES = (
    PartitionedTable("metrics", "at", 30, KEEP_S),
    PartitionedTable("memory_segments", "at", 30, KEEP_S),
    PartitionedTable("tombstone", "expired", 10, TOMBSTONE_S, has_numbers=False),
)


@dataclass(frozen=True, slots=True)
class Partition:
    """A child table with the rows from `start` to before `end`, in seconds."""

    name: str
    start: float
    end: float


class Partitions:
    """The children that there are, as this server saw them last."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._found: dict[str, tuple[Partition, ...]] = {}

    def table_for(self, name: str, at: float) -> str:
        """Return where a row of this time is written: into a child, or the table itself if there is none for it."""
        return next((one.name for one in self._found.get(name, ()) if one.start <= at < one.end), name)

    async def load(self) -> None:
        rows = await self._database.rows(
            """SELECT parent.relname, child.relname FROM pg_inherits JOIN pg_class AS parent ON parent.oid = inhparent
                 JOIN pg_class AS child ON child.oid = inhrelid
               WHERE inhparent = ANY(?::regclass[]) ORDER BY child.relname DESC""",
            ([table.name for table in TABLES],),
        )
        found: dict[str, list[Partition]] = {}
        for parent, child in rows:
            if dates := _RANGE.search(str(child)):
                found.setdefault(str(parent), []).append(Partition(str(child), *map(_seconds, dates.groups())))
        self._found = {name: tuple(children) for name, children in found.items()}

    async def tend(self) -> None:
        """Make the children of this range and the next, and drop those whose last row is too old."""
        await self.load()
        for table in TABLES:
            moment = self._database.clock.look()
            there = self._found.get(table.name, ())
            names = {one.name for one in there}
            missing = [one for one in _due(table, moment.latest) if one.name not in names]
            for one in missing:
                await self._alter(_creation(table, one))
            old = [one for one in there if one.end + table.keep_s <= moment.earliest]
            for one in old:
                await self._alter([f"DROP TABLE IF EXISTS {one.name}"])
            if missing or old:
                await self.load()

    async def _alter(self, statements: Sequence[str]) -> None:
        """Execute `statements` in one transaction, unless a lock is held, or another server does such work."""

        async def work(connection: Connection, moment: Moment) -> int:
            try:
                async with connection.transaction():
                    await connection.execute(f"SET LOCAL lock_timeout = {LOCK_MS}".encode())
                    for statement in statements:
                        await connection.execute(statement.encode())
            except errors.LockNotAvailable:
                return 0
            return 1

        await self._database.alone(work)


def _due(table: PartitionedTable, now: float) -> Sequence[Partition]:
    """Return the children that there should be: of this range and of the next."""
    length = table.range_days * DAY_S
    first = int(now // length) * length
    ranges = ((start, start + length) for start in (first, first + length))
    return [Partition(f"{table.name}_{_date(start)}_{_date(end)}", start, end) for start, end in ranges]


def _creation(table: PartitionedTable, child: Partition) -> Sequence[str]:
    """Return what makes a child with the indexes of its table; rows of both are numbered by the same sequence."""
    create = f"""CREATE TABLE IF NOT EXISTS {child.name} (LIKE {table.name} INCLUDING DEFAULTS INCLUDING INDEXES,
      CHECK ({table.column} >= {child.start} AND {table.column} < {child.end})) INHERITS ({table.name})"""
    number = f"""DO $$ BEGIN EXECUTE format('ALTER TABLE {child.name} ALTER COLUMN seq SET DEFAULT nextval(%L)',
      pg_get_serial_sequence('{table.name}', 'seq')); END $$"""
    return [create, number] if table.has_numbers else [create]


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y%m%d")


def _seconds(date: str) -> float:
    return datetime.strptime(date, "%Y%m%d").replace(tzinfo=UTC).timestamp()
