"""A PostgreSQL database: a pool of connections, calls that end in time, and tables that are brought up once."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NoReturn, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.clock import Moment, WallClock
from kimi_proxy.services.store.postgres.schema import MIGRATIONS, VERSION

MIN_CONNECTIONS, MAX_CONNECTIONS = 1, 8
RETRY_S = 60.0  # how long the pool tries to reach a database that is away before it begins anew
MIGRATING, SWEEPING = 1802071401, 1802071402  # advisory locks; the first is "kimi"

T = TypeVar("T")
Connection: TypeAlias = "AsyncConnection[tuple[object, ...]]"
Work: TypeAlias = Callable[[Connection, Moment], Awaitable[T]]

log = logging.getLogger(__name__)


class PostgresDatabase:
    """No call takes longer than `timeout_s`; StoreUnavailable is raised instead, and the next call tries again."""

    def __init__(self, url: str, clock: WallClock, timeout_s: float) -> None:
        self.clock = clock
        self.trouble: str | None = None
        self._timeout_s = timeout_s
        self._is_up = False
        self._migration = asyncio.Lock()
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            min_size=MIN_CONNECTIONS,
            max_size=MAX_CONNECTIONS,
            open=False,
            timeout=timeout_s,
            reconnect_timeout=RETRY_S,
            configure=_configure,
            # A connection that died with its server is found before it is used, not by the request that needs it.
            check=AsyncConnectionPool.check_connection,
        )

    async def open(self) -> None:
        await self._pool.open(wait=False)

    async def close(self) -> None:
        await self._pool.close(timeout=self._timeout_s)

    async def run(self, work: Work[T]) -> T:
        """Return what `work` does in a transaction of its own, once it is committed."""
        if self._pool.closed:
            raise StoreUnavailable("the store is closed")
        async with self._errors(), asyncio.timeout(self._timeout_s):
            if not self._is_up:
                await self._bring_up()
            async with self._pool.connection() as connection:
                done = await work(connection, self.clock.look())
        self.trouble = None
        return done

    async def alone(self, work: Work[int]) -> int:
        """Do `work` as `run` does, if no other server does such work now; return 0 if one does."""

        async def if_free(connection: Connection, moment: Moment) -> int:
            cursor = await connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (SWEEPING,))
            row = await cursor.fetchone()
            return await work(connection, moment) if row and row[0] else 0

        return await self.run(if_free)

    async def _bring_up(self) -> None:
        """Apply the missing steps once, whichever server comes first; refuse a schema that a newer one has written."""
        async with self._migration:
            if self._is_up:
                return
            async with self._pool.connection() as connection:
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATING,))
                await connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)")
                cursor = await connection.execute("SELECT coalesce(max(version), 0) FROM schema_version")
                row = await cursor.fetchone()
                found = int(str(row[0])) if row else 0
                if found > VERSION:
                    raise StoreUnavailable(
                        f"the database was written by a newer kimi-proxy (schema {found}, this one knows {VERSION}): "
                        "upgrade this one, or name another database in KIMI_PROXY_DATABASE_URL"
                    )
                for number, step in enumerate(MIGRATIONS[found:], found + 1):
                    await connection.execute(step.encode())
                    await connection.execute("INSERT INTO schema_version VALUES (%s)", (number,))
            self._is_up = True

    @asynccontextmanager
    async def _errors(self) -> AsyncIterator[None]:
        """Raise StoreUnavailable for whatever the database or the way to it does wrong."""
        try:
            yield
        except StoreUnavailable as e:
            self.trouble = str(e)
            raise
        except (psycopg.Error, OSError, TimeoutError) as e:  # PoolTimeout is a psycopg.Error
            said = str(e).strip().splitlines()
            self.trouble = f"PostgreSQL: {said[0] if said else type(e).__name__}"
            raise StoreUnavailable(self.trouble) from e


async def _configure(connection: Connection) -> None:
    """An original is on disk before it is cut: whatever the server's default, a commit waits for that."""
    await connection.execute("SET synchronous_commit = on")
    await connection.commit()


def read_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else _unexpected(value)


def read_int(value: object) -> int:
    return value if isinstance(value, int) else _unexpected(value)


def read_float(value: object) -> float:
    return value if isinstance(value, float) else _unexpected(value)


def _unexpected(value: object) -> NoReturn:
    raise StoreUnavailable(f"PostgreSQL: a column holds a {type(value).__name__} that kimi-proxy did not write")
