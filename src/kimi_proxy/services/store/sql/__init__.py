"""What SQLite and PostgreSQL are asked in the same words; each driver adds what only its own database understands.

Values stand in a statement as `?`.
"""

from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

Row = tuple[object, ...]


class SqlStatement(NamedTuple):
    """A statement with its values, for a driver that executes it in a transaction of its own."""

    text: str
    values: Row


class SqlDatabase(Protocol):
    """Raises StoreUnavailable if the database cannot answer in time."""

    async def rows(self, statement: str, values: Row = ()) -> list[Row]:
        """Return the rows of a statement that only reads."""

    async def change(self, statement: str, values: Row = ()) -> list[Row]:
        """Return the rows of a statement that writes, once it is committed."""


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


def marks(count: int) -> str:
    return ", ".join("?" * count)


def sums(*columns: str) -> str:
    """Return the sums of columns as whole numbers; without rows they are 0."""
    return ", ".join(f"CAST(coalesce(sum({column}), 0) AS bigint)" for column in columns)
