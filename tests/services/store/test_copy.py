"""A store that is copied into PostgreSQL: ids given out before work there, whatever interrupted the copy."""

import asyncio
import sqlite3
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
from kimi_proxy.services.store.copy import CopyProgress, CopyResult, copy_store, sqlite_file
from kimi_proxy.services.store.protocols import NEWEST, CompressionRecord, DecisionRecord, Original, Store
from kimi_proxy.services.store.team import (
    AuditEntry,
    PersonRecord,
    Spent,
    UsageKey,
    UsageRange,
    UsageSum,
    day_of,
)

COUNT = 450  # more than two transactions
MADE = CompressionRecord(
    *("cmp_1", "ses_a", 100.0, 9000, 900, 12, (2, 5), b"f" * 32),
    *("read this", "summary é", "prn_1", "provider", "compression", True),
)
ADA = PersonRecord("ada", "admin", "platform", 100.0, 150.0, None, "https://login.example.org 1")
USE = UsageKey(day_of(a_metric().at), "ada", "platform", a_metric().model)
AUDIT = [AuditEntry(100.0, "ada", "recover", "prn_1"), AuditEntry(101.0, "ada", "export", "all", "x")]
DECISION = DecisionRecord(b"k" * 32, "pruned", b"kept\n", ("prn_1",), "kept", "ses_a", 900, 90)
FACT = {b"m" * 32: b"tabs, not spaces"}


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
        await store.sessions.write([a_session()], [replace(a_metric(), person="ada", team="platform")])
        await store.team.add_person(ADA, b"hash of a token")
        await store.team.admit(USE, [UsageRange(USE.day)], lambda spent: True)
        await store.team.add_audit(AUDIT)
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
    assert team[0].people == [ADA] and team[0].with_token == ADA
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


@dataclass(frozen=True)
class KeptTeam:
    people: Sequence[PersonRecord]
    with_token: PersonRecord | None
    usage: Sequence[tuple[UsageKey, UsageSum]]
    spent: Sequence[Spent]
    audit: Sequence[tuple[int, AuditEntry]]


async def _team(store: Store) -> KeptTeam:
    """Return everything that a store keeps for a team; tokens work, and budgets go on where they were."""
    team = store.team
    return KeptTeam(
        await team.people(),
        await team.person_with(b"hash of a token", 0.0),
        await team.usage("1970-01-01"),
        await team.admit(USE, [UsageRange(USE.day)], lambda spent: False),
        await team.audit(NEWEST, 10),
    )


def _no_bar(what: str, done: int, total: int) -> None:
    """Show nothing."""


async def _in_thread(file: Path, url: str, progress: CopyProgress = _no_bar) -> CopyResult:
    """It has an event loop of its own, as a command has."""
    return await asyncio.to_thread(copy_store, file, url, progress)


@deep
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


async def test_what_is_no_store_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="is not a file"):
        sqlite_file(f"sqlite://{tmp_path}/{new_id('prn')}")
