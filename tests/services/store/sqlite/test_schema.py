"""Migrations are numbered, appended and all-or-nothing."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.sqlite.schema import MIGRATIONS, VERSION, bring_up, version


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


def test_every_migration_leaves_its_own_number(connection: sqlite3.Connection) -> None:
    for number, step in enumerate(MIGRATIONS, start=1):
        assert step.__name__.startswith(f"_{number}_")
        step(connection)
        assert version(connection) == number


def test_bringing_up_twice_changes_nothing(connection: sqlite3.Connection) -> None:
    bring_up(connection)
    before = connection.execute("SELECT sql FROM sqlite_master").fetchall()
    bring_up(connection)
    assert connection.execute("SELECT sql FROM sqlite_master").fetchall() == before
    assert version(connection) == VERSION


def test_a_newer_schema_is_refused_in_words_that_help(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreUnavailable, match=r"newer kimi-proxy \(schema 99, .*KIMI_PROXY_HOME"):
        bring_up(connection)


def test_facts_leave_the_table_of_decisions_as_they_are(connection: sqlite3.Connection) -> None:
    for step in MIGRATIONS[:17]:
        step(connection)
    insert = "INSERT INTO pin VALUES (NULL, 'me', ?, ?, 'hash', ?, ?, '', 'ses_1', 0, 0, 1.0, 2.0)"
    connection.execute(insert, ("k1", "memory", "frame", b""))
    connection.execute(insert, ("k2", "pruned", "shown", b"prn_1"))
    connection.execute(insert, ("k3", "switched_off", None, b""))
    bring_up(connection)

    facts = connection.execute("SELECT scope, kind, key, hash, frame, session, created, last_used FROM fact").fetchall()
    decisions = connection.execute("SELECT place, why FROM decision").fetchall()
    assert facts == [("me", "memory", "k1", "hash", "frame", "ses_1", 1.0, 2.0)]
    assert decisions == [("k2", "pruned"), ("k3", "switched_off")]
