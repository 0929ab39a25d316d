"""State that servers on one PostgreSQL share: the newest request of a conversation, and live events."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import psycopg
from psycopg import AsyncConnection

from kimi_proxy.core import json
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import person_scope
from kimi_proxy.core.errors import ParseError, StoreUnavailable
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.markers import new_id
from kimi_proxy.features.chat.prompt_cache import SentPrefix
from kimi_proxy.services.store.protocols import StoredEvent
from kimi_proxy.services.store.sql import Moment, erased_among
from kimi_proxy.team.store.postgres.database import (
    APPLICATION,
    Connection,
    PostgresDatabase,
    execute,
    read_float,
    read_int,
)

CHANNEL = "kimi_proxy_events"
GATHER_S = 0.05  # events of this time share a transaction
BATCH, MAX_WAITING = 200, 2_000
KEEP_EVENTS_S = 600.0  # a server whose connection was lost for longer misses the rest
KEEP_SENT_S = 90_000.0  # no provider keeps a prompt cache for longer
OVERLAP_S = 10.0  # clocks of servers differ, and transactions end out of order
RECONNECT_S, CONNECT_S = 0.5, 5
IDLE_S = 30.0  # after which a silent connection is tried
POLL_S = 1.0  # how often the table is read where LISTEN is not to be had
SEEN = 10_000
MIN_WAIT_S = 0.001

_LEVEL = "greatest(0, old.level - extract(epoch FROM clock_timestamp() - old.at)::float8 * %(rate)s / 60)"

log = logging.getLogger(__name__)


class PostgresReplicas:
    """Events lie in a table; LISTEN and NOTIFY carry only the number of a batch."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._origin = new_id("srv")
        self._waiting: list[StoredEvent] = []
        self._sending: asyncio.Task[None] | None = None
        self._seen: LruCache[int, bool] = LruCache(SEEN)
        self._latest: float | None = None  # when the newest batch was written that was read here

    async def note_sent(
        self, conversation: bytes, sent: SentPrefix, digest: bytes, if_unknown: bool, parent: bytes = b""
    ) -> tuple[bool, bytes]:
        async def work(connection: Connection, moment: Moment) -> tuple[bool, bytes]:
            # One statement: of two servers, the second one sees what the first one sent. What it was before has to be
            # read before it changes: a row that the statement itself has changed cannot be locked any more.
            rows = await connection.execute(
                """WITH before AS (SELECT digest FROM sent_prefix WHERE conversation = %(conversation)s FOR UPDATE),
                     parent AS (SELECT life_s = 0 OR %(at)s - at > life_s
                       OR beginning <> '' AND %(beginning)s NOT IN ('', beginning) AS cold
                       FROM sent_prefix WHERE conversation = %(parent)s)
                   INSERT INTO sent_prefix AS old (conversation, at, life_s, beginning, digest, cold)
                   SELECT %(conversation)s, %(at)s, %(life_s)s, %(beginning)s, %(digest)s,
                     coalesce((SELECT cold FROM parent), %(if_unknown)s)
                   FROM (SELECT count(*) FROM before) AS read_first
                   ON CONFLICT (conversation) DO UPDATE SET at = excluded.at, life_s = excluded.life_s,
                     beginning = excluded.beginning, digest = excluded.digest,
                     cold = old.life_s = 0 OR excluded.at - old.at > old.life_s
                       OR CASE WHEN old.digest = excluded.digest THEN old.cold
                          ELSE old.beginning <> '' AND excluded.beginning NOT IN ('', old.beginning) END
                   RETURNING cold, (SELECT digest FROM before)""",
                {
                    "conversation": conversation,
                    "parent": parent,
                    "at": sent.at,
                    "life_s": sent.cold_after_s,
                    "beginning": sent.beginning,
                    "digest": digest,
                    "if_unknown": if_unknown,
                },
            )
            row = await rows.fetchone()
            return (bool(row[0]), row[1] if isinstance(row[1], bytes) else b"") if row else (if_unknown, b"")

        return await self._database.read(work)

    async def take_turn(self, name: str, per_minute: int) -> float:
        async def work(connection: Connection, moment: Moment) -> float:
            # The bucket drains evenly; the row stays unchanged if one more request does not fit.
            rows = await connection.execute(
                f"""INSERT INTO rate AS old VALUES (%(name)s, 1, clock_timestamp())
                   ON CONFLICT (name) DO UPDATE SET level = {_LEVEL} + 1, at = clock_timestamp()
                     WHERE {_LEVEL} + 1 <= %(rate)s RETURNING 1""".encode(),  # noqa: S608 - one fixed text
                {"name": name, "rate": per_minute},
            )
            if await rows.fetchone():
                return 0.0
            rows = await connection.execute(
                f"SELECT {_LEVEL} + 1 - %(rate)s FROM rate AS old WHERE name = %(name)s".encode(),  # noqa: S608
                {"name": name, "rate": per_minute},
            )
            row = await rows.fetchone()
            return max(MIN_WAIT_S, read_float(row[0]) * 60 / per_minute) if row else 0.0

        return await self._database.read(work)

    def publish(self, event: StoredEvent) -> None:
        if len(self._waiting) >= MAX_WAITING:
            return
        self._waiting.append(event)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def follow(self, receive: Callable[[StoredEvent], None]) -> None:
        pooling = self._database.pooling
        # A transaction pooler accepts LISTEN and delivers nothing.
        watch = self._poll if pooling.is_transactional and not pooling.listen_url else self._listen
        while True:
            try:
                await watch(receive)
            except (psycopg.Error, OSError, TimeoutError, StoreUnavailable) as e:
                log.debug("events of other servers are not followed", extra={"what": str(e)[:300]})
            await asyncio.sleep(RECONNECT_S)

    async def sweep(self) -> None:
        """Delete expired rows in batches."""

        async def work(connection: Connection, moment: Moment) -> int:
            for table, key, keep_s in (
                ("event_batch", "seq", KEEP_EVENTS_S),
                ("sent_prefix", "conversation", KEEP_SENT_S),
            ):
                await connection.execute(
                    f"""DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM {table} WHERE at < %s
                          ORDER BY at LIMIT 1000 FOR UPDATE SKIP LOCKED)""".encode(),  # noqa: S608 - fixed names
                    (moment.earliest - keep_s,),
                )
            return 0

        await self._database.alone(work)

    async def close(self) -> None:
        if self._sending is not None:
            await asyncio.wait([self._sending])

    async def _send(self) -> None:
        """Write what waits, in batches, until nothing does."""
        while self._waiting:
            await asyncio.sleep(GATHER_S)
            batch = self._waiting[:BATCH]
            self._waiting = self._waiting[BATCH:]

            async def work(connection: Connection, moment: Moment, batch: Sequence[StoredEvent] = batch) -> None:
                people = {one.person_id for one in batch}
                erased = await (await execute(connection, *erased_among(people))).fetchall()
                text = _to_text(one for one in batch if (one.person_id,) not in erased)
                rows = await connection.execute(
                    """WITH added AS (INSERT INTO event_batch (origin, at, events) VALUES (%s, %s, %s) RETURNING seq)
                       SELECT seq, pg_notify(%s, seq::text) FROM added""",
                    (self._origin, moment.latest, text, CHANNEL),
                )
                for seq, _ in await rows.fetchall():
                    self._seen.put(read_int(seq), True)  # the notice of it comes here too

            with suppress(StoreUnavailable):  # viewers of other servers miss these
                await self._database.run(work)

    async def _listen(self, receive: Callable[[StoredEvent], None]) -> None:
        """Pass events on until the connection is lost; events missed in the meantime are read first."""
        url = self._database.pooling.listen_url or self._database.url
        connecting = AsyncConnection.connect(
            url.get_secret_value(), autocommit=True, connect_timeout=CONNECT_S, application_name=APPLICATION
        )
        async with await connecting as connection:
            await connection.execute(f"LISTEN {CHANNEL}".encode())
            await self._read_missed(receive)
            while True:
                async for notice in connection.notifies(timeout=IDLE_S):
                    if notice.payload.isdecimal() and int(notice.payload) not in self._seen:
                        await self._read(receive, "seq = %s", int(notice.payload))
                async with asyncio.timeout(CONNECT_S):
                    await connection.execute("SELECT 1")

    async def _poll(self, receive: Callable[[StoredEvent], None]) -> None:
        """Pass events on a little later, by reading the table again and again."""
        while True:
            await self._read_missed(receive)
            await asyncio.sleep(POLL_S)

    async def _read_missed(self, receive: Callable[[StoredEvent], None]) -> None:
        """Pass on the events since the newest that was read; the first time there are none to miss."""
        if self._latest is None:
            self._latest = self._database.clock.look().latest
        else:
            await self._read(receive, "at > %s", self._latest - OVERLAP_S)

    async def _read(self, receive: Callable[[StoredEvent], None], which: str, value: float) -> None:
        """Pass on the batches that are new here."""

        async def work(connection: Connection, moment: Moment) -> list[tuple[object, ...]]:
            rows = await connection.execute(
                f"SELECT seq, origin, at, events FROM event_batch WHERE {which} ORDER BY seq".encode(),  # noqa: S608
                (value,),
            )
            return await rows.fetchall()

        for seq, origin, at, events in await self._database.read(work):
            self._latest = max(self._latest or 0.0, read_float(at))
            if origin == self._origin or self._seen.get(read_int(seq)):
                continue
            self._seen.put(read_int(seq), True)
            for event in _events(str(events)):
                receive(event)


def without_events_of(person_id: str, text: str) -> str:
    """Return a batch without the events of a person; empty if no other is in it."""
    left = [one for one in _events(text) if one.person_id != person_id and one.scope != person_scope(person_id)]
    return _to_text(left) if left else ""


def _to_text(events: Iterable[StoredEvent]) -> str:
    made = [
        {
            "name": one.name,
            "at": one.at,
            "scope": one.scope,
            "person_id": one.person_id,
            "fields": dict(one.fields),
        }
        for one in events
    ]
    return json.encode(made).decode("utf-8", "replace").replace("\\u0000", "\\ufffd")


def _events(text: str) -> list[StoredEvent]:
    with suppress(ParseError):
        value = json.decode(text.encode())
        return [_event(one) for one in value] if isinstance(value, list) else []
    return []


def _event(value: JsonValue) -> StoredEvent:
    match value:
        case {"name": str(name), "at": int() | float() as at, "scope": str(scope), "fields": dict(fields), **more}:
            # Servers of the version before do not say of whom an event is.
            return StoredEvent(name, float(at), fields, scope, str(more.get("person_id", "")))
    raise ParseError("an event in the database cannot be read")
