"""A store that is copied into PostgreSQL: ids given out before work there, whatever interrupted the copy."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from tests.support.deep import deep
from tests.support.services.store import making, postgres_server
from tests.support.services.store.making import a_metric, a_session, an_original

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import ConfigError, StoreUnavailable
from kimi_proxy.core.markers import new_id
from kimi_proxy.services.store.protocols import NEWEST, CompressionRecord, DecisionRecord, Original, Store
from kimi_proxy.services.store.usage import UsageKey, UsageSum, day_of
from kimi_proxy.team.records import AuditEntry, PersonRecord, Spent, TokenRecord, UsageRange
from kimi_proxy.team.store.copy import LEFT_OUT, TABLES, CopyProgress, CopyResult, copy_store, sqlite_file
from kimi_proxy.team.tables import team_tables

COUNT = 450  # more than two transactions
MADE = CompressionRecord(
    *("cmp_1", "ses_a", 100.0, 9000, 900, 12, (2, 5), b"f" * 32),
    *("read this", "summary é", "prn_1", "provider", "compression", True),
)
ADA = PersonRecord("ada", "admin", "platform", 100.0, 150.0, None, "https://login.example.org 1", "per_ada")
USE = UsageKey(day_of(a_metric().at), ADA.id, "platform", a_metric().model)
AUDIT = [AuditEntry(100.0, "ada", "recover", "prn_1"), AuditEntry(101.0, "ada", "export", "all", "x")]
DECISION = DecisionRecord(b"k" * 32, "pruned", b"kept\n", ("prn_1",), "kept", "ses_a", 900, 90)
FACT = {b"m" * 32: b"tabs, not spaces"}
OWN_TOKEN = TokenRecord("tok_1", ADA.id, "laptop", 200.0, 9e9)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server.serving() as url:
        yield url


async def _filled(home: Path, count: int = COUNT) -> list[Original]:
    """Fill a store in a file; every third original has the same text."""
    texts = [
        f"text {number if number % 3 else 0}\n\ud800\0".encode("utf-8", "surrogatepass") for number in range(count)
    ]
    originals = [an_original(text, key=number.to_bytes(32, "big")) for number, text in enumerate(texts)]
    async with making.opened(home, ttl_s=1e9) as store:
        for original in originals:
            await store.originals.keep(original)
        await store.decisions.add(LOCAL, [DECISION])
        await store.facts.put_if_absent(LOCAL, "memory", FACT)
        await store.decisions.add_compression(LOCAL, MADE)
        await store.sessions.write([a_session()], [replace(a_metric(), person=ADA.id, team="platform")])
        await team_tables(store).add_person(ADA, b"hash of a token", None)
        await team_tables(store).add_token(OWN_TOKEN, b"hash of her own token", b"hash of a token", 1)
        await team_tables(store).admit(USE, [UsageRange(USE.day)], lambda spent: True)
        await team_tables(store).add_audit(AUDIT)
    return originals


async def test_every_id_works_in_the_database_afterwards(server: str, tmp_path: Path):
    originals = await _filled(tmp_path)
    url, shown = postgres_server.url_of(server, tmp_path), set()
    done = await _in_thread(sqlite_file(str(tmp_path)), url, lambda what, at, total: shown.add((what, at, total)))
    again = await _in_thread(sqlite_file(f"sqlite://{tmp_path}/store/originals.sqlite3"), url)
    async with postgres_server.opened(server, tmp_path, ttl_s=1e9) as store, making.opened(tmp_path, ttl_s=1e9) as old:
        found = [await store.originals.get(LOCAL, each.id) for each in originals[::10]]
        decided = await store.decisions.get(LOCAL, [DECISION.key])
        facts = await store.facts.get(LOCAL, "memory", list(FACT))
        compressions = await store.decisions.compressions(LOCAL, "ses_a")
        sessions = await store.sessions.newest(LOCAL, 9), await store.sessions.newest_metrics(LOCAL, 9)
        before = await old.sessions.newest(LOCAL, 9), await old.sessions.newest_metrics(LOCAL, 9)
        usage = await store.usage()
        team = await _team(store), await _team(old)

    assert team[0] == team[1]
    assert team[0].people == [ADA]
    assert (team[0].with_token, team[0].with_own_token) == (ADA, ADA)
    assert team[0].spent == [Spent(1, a_metric().cost_usd or 0.0)]
    assert [entry for _, entry in team[0].audit] == AUDIT[::-1]
    assert [key.person for key, _ in team[0].usage] == ["ada"]
    assert found == originals[::10]
    assert replace(decided[DECISION.key], created=0.0, last_used=0.0) == DECISION
    assert (facts, list(compressions)) == (FACT, [MADE])
    assert sessions == before
    assert (done.verified, usage.originals, done.damaged) == (COUNT, COUNT, ())
    assert (done.copied["text"], done.copied["record"]) == (COUNT - COUNT // 3 + 1, COUNT)
    assert set(again.copied.values()) == {0}
    assert ("comparing", COUNT, COUNT) in shown


async def test_a_copy_that_is_resumed_revives_no_token_and_takes_back_none_of_the_database(server: str, tmp_path: Path):
    url = postgres_server.url_of(server, tmp_path)
    people = [replace(ADA, name=name, subject="", id=f"per_{name}") for name in ("ada", "ben", "cy")]
    async with making.opened(tmp_path, ttl_s=1e9) as old:
        for one in people:
            await team_tables(old).add_person(one, f"first of {one.name}".encode(), None)
        await _in_thread(sqlite_file(str(tmp_path)), url)
        await team_tables(old).rotate_person("ada", 300.0, b"second of ada", None)
        await team_tables(old).revoke_person("ben", 300.0)
    async with postgres_server.opened(server, tmp_path, ttl_s=1e9) as store:
        await store.team.rotate_person("cy", 400.0, b"second of cy", None)
        await _in_thread(sqlite_file(str(tmp_path)), url)
        tokens = [b"first of ada", b"second of ada", b"first of ben", b"first of cy", b"second of cy"]
        found = [await store.team.person_with(token, 500.0) for token in tokens]

    assert [one and one.name for one in found] == [None, "ada", None, None, "cy"]


@dataclass(frozen=True)
class KeptTeam:
    people: Sequence[PersonRecord]
    with_token: PersonRecord | None
    with_own_token: PersonRecord | None
    usage: Sequence[tuple[UsageKey, UsageSum]]
    spent: Sequence[Spent]
    audit: Sequence[tuple[int, AuditEntry]]


async def _team(store: Store) -> KeptTeam:
    """Return everything that a store keeps for a team; tokens work, and budgets go on where they were."""
    team = team_tables(store)
    return KeptTeam(
        await team.people(),
        await team.person_with(b"hash of a token", 0.0),
        await team.person_with(b"hash of her own token", 0.0),
        await team.usage("1970-01-01"),
        await team.admit(USE, [UsageRange(USE.day)], lambda spent: False),
        await team.audit(NEWEST, 10),
    )


def _no_bar(what: str, done: int, total: int) -> None:
    """Show nothing."""


async def _in_thread(file: Path, url: str, progress: CopyProgress = _no_bar) -> CopyResult:
    """It has an event loop of its own, as a command has."""
    return await asyncio.to_thread(copy_store, file, url, progress)


async def test_every_row_of_every_table_is_in_the_database_afterwards(server: str, tmp_path: Path):
    await _filled(tmp_path, 5)
    file, url = sqlite_file(str(tmp_path)), postgres_server.url_of(server, tmp_path)
    with closing(sqlite3.connect(file)) as source, source:
        names = _names_of_tables(source)
        for name in names:
            _add_rows(source, name)
        here = {name: _rows(source, name) for name in names}
    await _in_thread(file, url)
    await _in_thread(file, url)
    with psycopg.connect(url) as target:
        there = {name: _rows(target, name, here[name].columns) for name in names}

    assert min(sum(table.rows.values()) for table in here.values()) > 1
    assert there == here


async def test_every_table_of_both_databases_is_copied_or_left_out_for_a_reason(server: str, tmp_path: Path):
    async with making.opened(tmp_path), postgres_server.opened(server, tmp_path):
        with closing(sqlite3.connect(sqlite_file(str(tmp_path)))) as source:
            in_file = _names_of_tables(source)
        with psycopg.connect(postgres_server.url_of(server, tmp_path)) as target:
            in_database = target.execute(
                """SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
                   AND NOT EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid = pg_class.oid)"""
            ).fetchall()

    assert sorted(TABLES) == sorted(in_file)
    assert {name for (name,) in in_database} == {*TABLES, *LEFT_OUT}
    assert all(reason.endswith(".") for reason in LEFT_OUT.values())


@dataclass(frozen=True)
class TableRows:
    """The rows of a table, each with the number of times that it is there."""

    columns: Sequence[str]
    rows: Counter[tuple[object, ...]]


def _names_of_tables(source: sqlite3.Connection) -> list[str]:
    return [str(name) for (name,) in source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def _rows(
    database: "sqlite3.Connection | psycopg.Connection[tuple[object, ...]]",
    name: str,
    columns: Sequence[str] | None = None,
) -> TableRows:
    """Return what a table holds; numbers of rows, which each database gives itself, are resolved or left out."""
    if columns is None:
        columns = [str(column) for column, _, _ in _columns(database, name)]
    chosen = ", ".join(columns)
    if name == "record":
        text = "(SELECT hash FROM text WHERE text.seq = record.text) AS text"
        chosen = ", ".join(text if column == "text" else column for column in columns)
    rows = database.execute(f"SELECT {chosen} FROM {name}").fetchall()
    return TableRows(columns, Counter(rows))


def _columns(source: sqlite3.Connection, name: str) -> list[tuple[str, str, bool]]:
    """Return the columns of a table with their types, and whether they may be NULL, but for the number of a row."""
    return [
        (column, kind, not is_required and not is_key)
        for _, column, kind, is_required, _, is_key, is_computed in source.execute(f"PRAGMA table_xinfo({name})")
        if not is_computed and not (is_key and kind == "INTEGER")
    ]


def _add_rows(source: sqlite3.Connection, name: str) -> None:
    """Add a row with a value in each column, and one without those that may be NULL."""
    columns = _columns(source, name)
    chosen = ", ".join(column for column, _, _ in columns)
    places = ", ".join("?" for _ in columns)
    for number in (1, 2):
        values = [None if number == 2 and may_be_null else _sample(kind, number) for _, kind, may_be_null in columns]
        source.execute(f"INSERT INTO {name} ({chosen}) VALUES ({places})", values)


def _sample(kind: str, number: int) -> object:
    samples: dict[str, object] = {
        "TEXT": f"é {number}",
        "BLOB": f"\0 {number}".encode(),
        "REAL": number / 8,
        "INTEGER": 1,
    }
    return samples[kind]


@deep("the test of a second, complete run copies by the same numbers")
async def test_a_copy_that_was_interrupted_goes_on_where_it_was(server: str, tmp_path: Path):
    originals = await _filled(tmp_path)
    url = postgres_server.url_of(server, tmp_path)

    def interrupt(what: str, done: int, total: int) -> None:
        if what == "record" and done == 200:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        await _in_thread(sqlite_file(str(tmp_path)), url, interrupt)
    done = await _in_thread(sqlite_file(str(tmp_path)), url)

    assert done.copied["record"] == COUNT - 200
    assert done.copied["text"] == 0
    assert done.verified == len(originals)


async def test_what_differs_after_the_copy_is_an_error_and_what_was_damaged_before_is_named(
    server: str, tmp_path: Path
):
    originals = await _filled(tmp_path, 5)
    file, url = sqlite_file(str(tmp_path)), postgres_server.url_of(server, tmp_path)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE text SET frame = x'00' WHERE seq = 2")
    done = await _in_thread(file, url)
    with psycopg.connect(url) as target:
        target.execute("UPDATE text SET frame = '\\x00' WHERE seq = 3")
    with pytest.raises(StoreUnavailable, match="differs in PostgreSQL"):
        await _in_thread(file, url)

    assert (done.verified, done.damaged) == (4, (originals[1].id,))


async def test_a_file_with_texts_that_only_an_earlier_version_reads_is_not_copied(server: str, tmp_path: Path):
    await _filled(tmp_path, 5)
    file, url = sqlite_file(str(tmp_path)), postgres_server.url_of(server, tmp_path)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE text SET frame = CAST('KPE1' || frame AS BLOB) WHERE seq = 2")
    with pytest.raises(ConfigError, match="encrypted, which this version cannot read"):
        await _in_thread(file, url)


async def test_what_is_no_store_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="is not a file"):
        sqlite_file(f"sqlite://{tmp_path}/{new_id('prn')}")
