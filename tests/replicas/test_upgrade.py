"""Two versions side by side: what a newer server does to the tables, and how one of the version before goes on."""

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection
from tests.support.api.proxy_world import proxy
from tests.support.api.watching import listed
from tests.support.replicas.fleet import cut_ids
from tests.support.replicas.world import replicated, turn
from tests.support.services.store.postgres_server import opened, serving, url_of

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import ConfigError
from kimi_proxy.features.chat.sessions import SessionIds
from kimi_proxy.services.chat.session_lookup import SessionNames
from kimi_proxy.services.store.protocols import CompressionRecord, DecisionRecord, DecisionTotals
from kimi_proxy.services.store.sql import CompressedText, compress, decompress
from kimi_proxy.team.store.postgres.schema import MIGRATIONS, SchemaTooNew, bring_up

# Whatever takes something away that a server of the version before still reads or writes.
TAKES_AWAY = re.compile(r"\b(DROP|RENAME|TYPE|TRUNCATE|SET NOT NULL|ADD (CONSTRAINT|CHECK|UNIQUE|FOREIGN|PRIMARY))\b")
# A table that leaves a view under its old name, which takes what the version before writes.
KEEPS_ITS_NAME = re.compile(r"ALTER TABLE (\w+) RENAME TO \w+;(?=.*CREATE VIEW \1 AS.*INSTEAD OF .* ON \1 )", re.S)
# Without a default the version before could not insert any more.
HAS_NO_DEFAULT = re.compile(r"ADD COLUMN(?![^,;]*\bDEFAULT\b)[^,;]*\bNOT NULL\b")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as url:
        yield url


def _newer(url: str) -> tuple[str, ...]:
    """Return the steps of a version that adds whatever a step may, to every table there is."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            """SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
                 AND NOT EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid = pg_class.oid)"""
        ).fetchall()
    tables = [str(row[0]) for row in rows if row[0] != "schema_version"]
    assert len(tables) > 10
    columns = [f"ALTER TABLE {name} ADD COLUMN since_then TEXT NOT NULL DEFAULT 'new';" for name in tables]
    more = "CREATE TABLE more (id TEXT PRIMARY KEY); CREATE INDEX record_by_more ON record (since_then, last_used);"
    return (*MIGRATIONS, " ".join([*columns, more]))


async def test_servers_go_on_when_a_newer_version_has_changed_the_tables(server: str, tmp_path: Path) -> None:
    url = url_of(server, tmp_path)
    async with replicated(server, tmp_path) as here:
        await here.ask(0, turn(1), "s")
        async with await AsyncConnection.connect(url) as connection:
            newer = _newer(url)
            await bring_up(connection, newer)
        for at in (0, 1):
            await here.ask(at, turn(2 + at), f"s{at}")
        cuts = [set(cut_ids(heard.body)) for heard in here.provider.heard]
        texts = [(await one.http.get(f"/api/mask/{id}")).json()["text"] for one in here.replicas for (id,) in cuts]
        sessions = await listed(here.replicas[1].http, "/api/sessions", "sessions", 3)
        health = (await here.replicas[0].http.get("/health")).json()
        with pytest.raises(ConfigError) as refused:  # such a one that starts now
            async with proxy(tmp_path / "late", "", KIMI_PROXY_DATABASE_URL=url):
                pass

    assert texts == [turn(number)[-1].text for number in (1, 2, 3)] * 2  # type: ignore[union-attr]
    assert len(sessions) == 3
    assert "store" not in health
    assert str(refused.value) == (
        f"the database was written by a newer kimi-proxy (schema {len(newer)}, this one knows {len(MIGRATIONS)}): "
        "upgrade this one, or name another database in KIMI_PROXY_DATABASE_URL"
    )


async def test_tables_of_every_version_before_are_brought_up(server: str, tmp_path: Path) -> None:
    for before in range(len(MIGRATIONS)):
        url = url_of(server, tmp_path / str(before))
        async with await AsyncConnection.connect(url) as connection:
            await bring_up(connection, MIGRATIONS[:before])
            await bring_up(connection)
            with pytest.raises(SchemaTooNew):
                await bring_up(connection, MIGRATIONS[:before])
            rows = await connection.execute("SELECT version FROM schema_version ORDER BY version")
            assert [row[0] for row in await rows.fetchall()] == list(range(1, len(MIGRATIONS) + 1))


ADA = Caller("person/ada", "ada", is_admin=False)
BEN = Caller("person/ben", "ben", is_admin=False)
OLD_SESSION = """INSERT INTO sessions (id, name, title, provider, model, created, last_used, scope, person)
  VALUES (%s, %s, 'a plan', 'p', 'm', 1, 1, %s, 'ada')"""
OLD_COMPRESSION = """INSERT INTO compression_log (handle, session_id, timestamp, original_tokens, compressed_tokens,
    cut, kept, fingerprint, hash, frame, original, summary_by, kind, automatic, undone, compression_ratio)
  SELECT %s, session_id, 1, 9, 1, 0, '', '', hash, frame, '', 'm', 'k', false, NULL, 0 FROM compression_log LIMIT 1"""


async def test_a_server_of_the_version_before_writes_on_while_sessions_have_secret_ids(
    server: str, tmp_path: Path
) -> None:
    url, public = url_of(server, tmp_path), SessionIds(ADA.scope).session_named("plan").id
    async with await AsyncConnection.connect(url, autocommit=True) as old, AsyncExitStack() as alive:
        await bring_up(old, MIGRATIONS[:8])
        await old.execute(OLD_SESSION.encode(), (public, "plan", ADA.scope))
        stores = [await alive.enter_async_context(opened(server, tmp_path)) for _ in range(2)]
        first, second = (SessionNames(store.sessions) for store in stores)
        # Of two servers that start at once, both have the one secret.
        secrets = await asyncio.gather(*(store.sessions.secret() for store in stores))
        made = CompressionRecord("cmp_1", public, 1.0, 9, 1, 0, (), b"", "words", "words", "", "m", "k", False)
        assert await stores[0].decisions.add_compression(ADA, made)
        await old.execute(OLD_SESSION.encode(), (SessionIds(ADA.scope).session_named("late").id, "late", ADA.scope))
        await old.execute(OLD_COMPRESSION.encode(), ("cmp_2",))

        found = [await names.id_of(ADA, "plan") for names in (first, second)]
        listed = [one.id for one in await stores[1].decisions.compressions(ADA, public)]
        assert (secrets[0], found) == (secrets[1], [public, public])
        assert (listed, await stores[1].decisions.compressions(BEN, public)) == (["cmp_2", "cmp_1"], [])
        assert await first.id_of(ADA, "new") == await second.id_of(ADA, "new")
        assert await first.id_of(BEN, "plan") not in (public, SessionIds(BEN.scope).session_named("plan").id)


# What servers did with the one table of decisions and facts, before there were two.
OLD_COLUMNS = "place, why, hash, shown, ids, preview, session, tokens_before, tokens_after, created, last_used"
OLD_PUT = f"INSERT INTO pin (scope, {OLD_COLUMNS}) VALUES ({', '.join(['%s'] * 12)}) ON CONFLICT DO NOTHING"
OLD_GET = "SELECT place, hash, shown FROM pin WHERE scope = %s AND place = ANY(%s)"
OLD_USE = "UPDATE pin SET last_used = %s WHERE scope = %s AND place = ANY(%s)"
OLD_FORGET = "DELETE FROM pin WHERE scope = %s AND place = ANY(%s)"
OLD_REPLACE = """DELETE FROM pin USING unnest(%s::bytea[], %s::float8[]) AS old (place, created)
  WHERE pin.scope = %s AND pin.place = old.place AND pin.created = old.created"""
OLD_EXPIRE = """DELETE FROM pin WHERE seq IN (SELECT seq FROM pin WHERE last_used < %s ORDER BY last_used LIMIT %s
  FOR UPDATE SKIP LOCKED)"""


class OldServer:
    """The statements of a server of the version before, on a connection that was open before the upgrade."""

    def __init__(self, connection: AsyncConnection[tuple[object, ...]]) -> None:
        self._connection = connection

    async def put(self, key: bytes, why: str, shown: bytes, id: str = "", at: float = 0.0) -> bytes:
        """Add a decision as it did, and return what is decided then."""
        text, at = compress(shown), at or time.time()
        row = (ADA.scope.encode(), key, why, text.hash, text.frame, id.encode(), b"", b"", 9 * bool(id), 0, at, at)
        await self._connection.execute(OLD_PUT.encode(), row)
        return (await self.get([key]))[key]

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        rows = await self._connection.execute(OLD_GET.encode(), (ADA.scope.encode(), list(keys)))
        found = await rows.fetchall()
        return {key: decompress(CompressedText(hashed, frame)) for key, hashed, frame in found}  # type: ignore[misc, arg-type]

    async def run(self, statement: str, *values: object) -> None:
        await self._connection.execute(statement.encode(), values)


async def test_servers_of_both_versions_share_what_a_conversation_began_with(server: str, tmp_path: Path) -> None:
    async with await AsyncConnection.connect(url_of(server, tmp_path), autocommit=True) as connection:
        await bring_up(connection, MIGRATIONS[:14])
        old = OldServer(connection)
        for _ in range(7):  # so often that its statements are prepared
            await old.put(b"began before", "memory", b"tabs")
            await old.put(b"cut before", "pruned", b"shown", "prn_1")
        async with opened(server, tmp_path) as store:
            facts, decisions = store.facts, store.decisions
            began = await facts.get(ADA, "memory", [b"began before"])
            cut = await decisions.get(ADA, [b"began before", b"cut before"])
            of_old = await old.put(b"began there", "tool", b"offered")
            await facts.put_if_absent(ADA, "memory", {b"began here": b"spaces"})
            await decisions.add(ADA, [DecisionRecord(b"cut here", "aged", b"less", ("prn_2",), tokens_before=5)])
            there = await old.get([b"began before", b"began here", b"cut here", b"nobody"])
            # The first one stays, whichever server puts it.
            late = await old.put(b"began here", "memory", b"other"), await old.put(b"cut here", "pruned", b"other", "x")
            later = await facts.put_if_absent(ADA, "tool", {b"began there": b"other"})
            totals, strangers = await decisions.totals(ADA), await facts.get(BEN, "memory", [b"began before"])

    assert began == {b"began before": b"tabs"}
    assert {key: record.shown for key, record in cut.items()} == {b"cut before": b"shown"}
    assert there == {b"began before": b"tabs", b"began here": b"spaces", b"cut here": b"less"}
    assert (of_old, late, later) == (b"offered", (b"spaces", b"less"), {b"began there": b"offered"})
    assert (totals, strangers) == (DecisionTotals({"pruned": 1, "aged": 1}, 14, 0), {})


async def test_a_server_of_the_version_before_uses_replaces_and_forgets(server: str, tmp_path: Path) -> None:
    scope, now = ADA.scope.encode(), time.time()
    async with (
        opened(server, tmp_path, ttl_s=1e9) as store,
        await AsyncConnection.connect(url_of(server, tmp_path), autocommit=True) as connection,
    ):
        old = OldServer(connection)
        for at, name in enumerate(("used", "expired", "forgotten")):
            await old.put(f"fact {name}".encode(), "routed", b"model", at=now - 1000 + at)
            await old.put(f"cut {name}".encode(), "pruned", b"shown", f"prn_{at}", at=now - 1000 + at)
        await old.put(b"replaced", "pruned", b"shown", "prn_9", at=now - 500)
        await old.run(OLD_USE, now, scope, [b"fact used", b"cut used"])
        await old.run(OLD_FORGET, scope, [b"fact forgotten", b"cut forgotten"])
        await old.run(OLD_REPLACE, [b"replaced", b"cut used"], [now - 500, now - 500], scope)
        left = await old.get([b"replaced", b"cut used", b"fact used", b"fact expired"])
        await old.run(OLD_EXPIRE, now - 10, 200)
        names = [b"used", b"expired", b"forgotten"]
        facts = await store.facts.get(ADA, "routed", [b"fact " + name for name in names])
        cuts = await store.decisions.get(ADA, [b"cut " + name for name in names])

    assert set(left) == {b"cut used", b"fact used", b"fact expired"}
    assert (set(facts), set(cuts)) == ({b"fact used"}, {b"cut used"})


@pytest.mark.parametrize("step", MIGRATIONS[1:], ids=range(2, len(MIGRATIONS) + 1))
def test_a_step_only_adds(step: str) -> None:
    stated = KEEPS_ITS_NAME.sub("", re.sub(r"--.*", "", step))
    assert TAKES_AWAY.findall(stated) == []
    assert HAS_NO_DEFAULT.findall(stated) == []


@pytest.mark.parametrize(
    "step",
    [
        "ALTER TABLE pin DROP COLUMN why;",
        "ALTER TABLE pin RENAME TO decision; CREATE VIEW pin AS SELECT * FROM decision;",
        "ALTER TABLE pin ALTER COLUMN why TYPE BYTEA;",
        "ALTER TABLE pin ADD COLUMN more TEXT NOT NULL, ADD COLUMN other TEXT NOT NULL DEFAULT '';",
    ],
)
def test_a_step_that_takes_away_would_be_noticed(step: str) -> None:
    stated = KEEPS_ITS_NAME.sub("", step)
    assert TAKES_AWAY.findall(stated) or HAS_NO_DEFAULT.findall(stated)
