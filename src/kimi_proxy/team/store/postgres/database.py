"""A PostgreSQL database: a pool of connections, calls that end in time, and tables that are brought up once."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn, TypeAlias, TypedDict, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, errors
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from kimi_proxy.core.addresses import NO_ADDRESS, Address
from kimi_proxy.core.errors import ConfigError, StoreUnavailable
from kimi_proxy.core.timing import measure_time
from kimi_proxy.services.store.protocols import AuditNote, PoolUsage
from kimi_proxy.services.store.sql import Moment, Row, SqlStatement, WallClock, note_nothing
from kimi_proxy.team.store.postgres.schema import SchemaTooNew, bring_up

MIN_CONNECTIONS = 1
RETRY_S = 0.5  # how often to retry an unavailable database; requests do not wait for it in the meantime
CONNECT_S = 2  # libpq's least
SWEEPING = 1802071402  # an advisory lock
APPLICATION = "kimi-proxy"  # in pg_stat_activity

T = TypeVar("T")
Connection: TypeAlias = "AsyncConnection[Row]"
Cursor: TypeAlias = "AsyncCursor[Row]"
Work: TypeAlias = Callable[[Connection, Moment], Awaitable[T]]

log = logging.getLogger(__name__)


class ConnectionOptions(TypedDict, total=False):
    connect_timeout: int
    application_name: str
    prepare_threshold: int | None


@dataclass(frozen=True, slots=True)
class Pooling:
    """The number of connections that a server opens, and the pooler that may sit between it and the database."""

    size: int = 8
    # PgBouncer in transaction mode: the next transaction may run on another connection, so nothing of a session
    # (prepared statements, SET, LISTEN) holds beyond one.
    is_transactional: bool = False
    listen_url: Address = NO_ADDRESS  # the database itself, for LISTEN


class WriteRefused(StoreUnavailable):
    """The database can be read, but it is read-only or full."""


class PostgresDatabase:
    """No call takes longer than `timeout_s`; StoreUnavailable is raised instead.

    While the database is away every call is refused at once, and one task tries to reach it.
    """

    note: AuditNote

    def __init__(
        self,
        url: Address,
        clock: WallClock,
        timeout_s: float,
        pooling: Pooling | None = None,
    ) -> None:
        _check_address(url, "KIMI_PROXY_DATABASE_URL")
        if pooling is not None:
            _check_address(pooling.listen_url, "KIMI_PROXY_DATABASE_LISTEN_URL")
        self.clock = clock
        self.url = url
        self.pooling = pooling or Pooling()
        self.trouble: StoreUnavailable | None = None
        self.note = note_nothing
        self._timeout_s = timeout_s
        self._bringing_up: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._doing: set[asyncio.Task[object]] = set()
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url.get_secret_value(),
            min_size=MIN_CONNECTIONS,
            max_size=max(MIN_CONNECTIONS, self.pooling.size),
            open=False,
            timeout=timeout_s,
            reconnect_timeout=RETRY_S,
            # A single statement is its own transaction; `run` begins one for several statements.
            kwargs=self._connection_options() | {"autocommit": True},
            configure=None if self.pooling.is_transactional else wait_for_disk,
        )

    @property
    def pool_usage(self) -> PoolUsage:
        counted = self._pool.get_stats()
        size = counted.get("pool_size", 0)
        idle = counted.get("pool_available", 0)
        return PoolUsage(size, idle, counted.get("requests_waiting", 0))

    async def open(self) -> None:
        """Connect, and migrate the tables; if the database is unreachable, do so once it is back.

        Raise ConfigError if a newer version has written them.
        """
        await self._pool.open(wait=False)
        try:
            await self.read(_nothing)
        except SchemaTooNew as e:
            await self.close()
            raise ConfigError(str(e)) from e
        except StoreUnavailable:
            pass

    async def close(self) -> None:
        tasks = [*self._doing, *(task for task in (self._probing, self._bringing_up) if task is not None)]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._timeout_s)
        await self._pool.close(timeout=self._timeout_s)

    async def run(self, work: Work[T]) -> T:
        """Return the result of `work` in its own transaction, once it is committed.

        The work is retried if the connection turns out to be dead; writes are idempotent.
        """

        async def in_transaction(connection: Connection, moment: Moment) -> T:
            async with connection.transaction():
                if self.pooling.is_transactional:
                    await connection.execute("SET LOCAL synchronous_commit = on")
                return await work(connection, moment)

        return await self.read(in_transaction)

    async def read(self, work: Work[T]) -> T:
        """Return the result of `work`; each of its statements is its own transaction."""
        if self._pool.closed:
            raise StoreUnavailable("the store is closed")
        if self._probing is not None and not self._probing.done():
            trouble = self.trouble or StoreUnavailable("PostgreSQL is unavailable")
            raise StoreUnavailable(str(trouble), trouble.detail)
        with measure_time("store"):
            async with self._errors():
                done = await self._in_time(self._do(work))
        self.trouble = None
        return done

    async def rows(self, statement: str, values: Row = ()) -> list[Row]:
        async def work(connection: Connection, moment: Moment) -> list[Row]:
            return await (await execute(connection, statement, values)).fetchall()

        return await self.read(work)

    async def change(self, statement: str, values: Row = ()) -> list[Row]:
        async def work(connection: Connection, moment: Moment) -> list[Row]:
            return await (await execute(connection, statement, values)).fetchall()

        # A single statement is its own transaction; behind a pooler it needs one that sets synchronous commit first.
        return await (self.run(work) if self.pooling.is_transactional else self.read(work))

    async def change_all(self, statements: Sequence[SqlStatement]) -> list[list[Row]]:
        async def work(connection: Connection, moment: Moment) -> list[list[Row]]:
            return [await (await execute(connection, *one)).fetchall() for one in statements]

        return await self.run(work)

    async def alone(self, work: Work[int]) -> int:
        """Do `work` as `run` does, if no other server does such work now; return 0 if one does."""

        async def if_free(connection: Connection, moment: Moment) -> int:
            # Rows that reappear after a crash are swept again: not waiting for the disk keeps the locks short.
            await connection.execute("SET LOCAL synchronous_commit = off")
            cursor = await connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (SWEEPING,))
            row = await cursor.fetchone()
            return await work(connection, moment) if row and row[0] else 0

        return await self.run(if_free)

    async def _in_time(self, doing: Coroutine[object, object, T]) -> T:
        """Return what `doing` returns, or raise TimeoutError.

        Its task is not waited for then: to cancel a statement psycopg asks the server, for ten seconds if that hangs.
        """
        task = asyncio.create_task(doing)
        self._doing.add(task)
        task.add_done_callback(self._on_end)
        try:
            await asyncio.wait([task], timeout=self._timeout_s)
            if not task.done():
                raise TimeoutError(f"no response within {self._timeout_s:g} s")
        finally:
            task.cancel()
        return task.result()

    def _on_end(self, task: asyncio.Task[object]) -> None:
        self._doing.discard(task)
        if not task.cancelled():
            task.exception()  # of one that is not waited for any more

    async def _do(self, work: Work[T]) -> T:
        await self._brought_up()
        try:
            return await self._run_connected(work)
        except (errors.DeadlockDetected, errors.SerializationFailure):
            return await self._run_connected(work)  # the other one is through
        except psycopg.OperationalError as e:
            if not _is_dead_connection(e):
                raise
            await self._ping()  # fails at once where the pool would wait
            await self._pool.check()  # others that died with this one
            return await self._run_connected(work)

    async def _run_connected(self, work: Work[T]) -> T:
        async with self._pool.connection() as connection:
            try:
                return await work(connection, self.clock.look())
            except errors.ReadOnlySqlTransaction:
                # After a failover this server is a standby: the next connection goes to the new primary.
                await connection.close()
                raise

    async def _brought_up(self) -> None:
        """Wait for the tables; a migration that outlasts this call continues, and later calls find it finished."""
        task = self._bringing_up
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._bringing_up = asyncio.create_task(self._bring_up())
        if not task.done():
            await asyncio.shield(task)

    async def _bring_up(self) -> None:
        await self._ping()
        async with self._pool.connection() as connection:
            await bring_up(connection)

    @asynccontextmanager
    async def _errors(self) -> AsyncIterator[None]:
        """Raise StoreUnavailable for whatever the database or the way to it does wrong."""
        try:
            yield
        except StoreUnavailable as e:
            self.trouble = e
            raise
        except (errors.ReadOnlySqlTransaction, errors.DiskFull) as e:
            raise self._failure(e, WriteRefused) from e
        except (errors.DeadlockDetected, errors.SerializationFailure) as e:
            raise self._failure(e) from e
        except (psycopg.OperationalError, OSError, TimeoutError) as e:  # PoolTimeout is an OperationalError
            failure = self._failure(e)
            if self._probing is None or self._probing.done():
                log.warning("store_degraded", extra={"trouble": failure.full})
                self._probing = asyncio.create_task(self._probe())
            raise failure from e
        except psycopg.Error as e:
            raise self._failure(e) from e

    def _failure(self, e: Exception, kind: type[StoreUnavailable] = StoreUnavailable) -> StoreUnavailable:
        """Return the error for a failure, and remember it. The driver's words about a connection name host and user."""
        lines = str(e).strip().splitlines()
        said = lines[0] if lines else type(e).__name__
        is_of_server = isinstance(e, psycopg.Error) and e.sqlstate is not None
        if is_of_server or isinstance(e, TimeoutError | PoolTimeout):
            self.trouble = kind(f"PostgreSQL: {said}")
        else:
            self.trouble = kind("PostgreSQL is unavailable", f": {said}")
        return self.trouble

    async def _ping(self) -> None:
        url = self.url.get_secret_value()
        async with await AsyncConnection.connect(url, **self._connection_options()) as connection:
            await connection.execute("SELECT 1")

    def _connection_options(self) -> ConnectionOptions:
        # Whoever lets a statement take longer lets a connection take as long: a busy machine is slow at both.
        wait_s = max(CONNECT_S, round(self._timeout_s))
        options: ConnectionOptions = {"connect_timeout": wait_s, "application_name": APPLICATION}
        if self.pooling.is_transactional:
            options["prepare_threshold"] = None  # no prepared statements
        return options

    async def _probe(self) -> None:
        """Return once the database answers; the pool then has no dead connection."""
        while True:
            try:
                async with asyncio.timeout(CONNECT_S):
                    await self._ping()
                    await self._pool.check()
            except (psycopg.Error, OSError, TimeoutError) as e:
                log.debug("store_still_away", extra={"trouble": str(e)[:300]})
                await asyncio.sleep(RETRY_S)
            else:
                log.info("store_healed")
                return


def _check_address(url: Address, variable: str) -> None:
    """Raise ConfigError for an address that libpq cannot read: its own message would repeat a part of the password."""
    try:
        ports = str(conninfo_to_dict(url.get_secret_value()).get("port") or "")
        is_readable = all(port.isdecimal() for port in ports.split(",") if port)
    except psycopg.ProgrammingError:
        is_readable = False
    if not is_readable:
        raise ConfigError(
            f"{variable} is not the address of a database: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, and "
            "in the password %25 for %, %2F for / and %40 for @"
        )


def _is_dead_connection(e: psycopg.OperationalError) -> bool:
    """Return whether the database server closed the connection or is unreachable; an exhausted pool does not count."""
    return isinstance(e, errors.AdminShutdown | errors.CrashShutdown) or (
        e.sqlstate is None and not isinstance(e, PoolTimeout)
    )


async def _nothing(connection: Connection, moment: Moment) -> None:
    """Do nothing: a call succeeds if the database is reachable."""


async def wait_for_disk(connection: Connection) -> None:
    """Make commits wait for the disk, whatever the server's default: an original is on disk before it is cut."""
    await connection.execute("SET synchronous_commit = on")


async def execute(connection: Connection, statement: str, values: Row = ()) -> Cursor:
    """Execute a statement with `?` placeholders."""
    taken = [storable(value) if isinstance(value, str) else value for value in values]
    return await connection.execute(to_psycopg(statement), taken or None)


def to_psycopg(statement: str) -> bytes:
    """Return a statement as psycopg reads it."""
    return statement.replace("?", "%s").encode()


def storable(words: str) -> str:
    """Return a value that a TEXT column accepts: without NUL and half surrogate pairs."""
    return words.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def read_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else _raise_unexpected(value)


def read_int(value: object) -> int:
    return value if isinstance(value, int) else _raise_unexpected(value)


def read_float(value: object) -> float:
    return value if isinstance(value, float) else _raise_unexpected(value)


def _raise_unexpected(value: object) -> NoReturn:
    raise StoreUnavailable(f"PostgreSQL: a column contains a {type(value).__name__}, which kimi-proxy does not write")
