"""For a person whose data was erased nothing is written any more, whatever was under way."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from tests.services.store.contract.conftest import Opening
from tests.support.fakes import Clock
from tests.support.processes import until
from tests.support.services.store import postgres_server
from tests.support.services.store.making import a_metric, a_session, an_original

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.chat.context import Context, Layout, MemoryFound, Sink
from kimi_proxy.services.store.protocols import CompressionRecord, DecisionRecord, Store
from kimi_proxy.services.store.usage import OpenRequest, UsageKey, UsageSum
from kimi_proxy.team.records import ErasedPerson, LoginRecord, PersonRecord, TokenRecord, UsageRange
from kimi_proxy.team.tables import team_tables

PERSON = PersonRecord("ada", "member", "x", 1.0, 1.0, id="per_ada")
OWN = Caller("person/per_ada", "ada", "x", is_admin=False, person_id="per_ada")
SHARING = Caller("team/x", "ada", "x", is_admin=False, also_reads=("person/per_ada",), person_id="per_ada")
BEN = Caller("team/x", "ben", "x", is_admin=False, also_reads=("person/per_ben",), person_id="per_ben")
USE = UsageKey("1970-01-01", "per_ada", "x", "m")
DECISION = DecisionRecord(b"k" * 32, "pruned", b"shown", ("prn_1",), "a secret", "ses_a", 100, 10)
MADE = CompressionRecord("cmp_1", "ses_a", 1.0, 90, 9, 4, (), b"f", "a secret", "a secret", "prn_1", "m", "k", False)
LAYOUT = Layout((MemoryFound("@recall", 2, 30, "a secret"),), (), Sink(0, 0, None), is_reminded=False)

Write = Callable[[Store, Caller], Awaitable[object]]


async def _keep(store: Store, who: Caller) -> object:
    return await store.originals.keep(replace(an_original(scope=who.scope), person=who.person_id))


async def _write_request(store: Store, who: Caller) -> object:
    owner = {"scope": who.scope, "person": who.person_id, "team": who.team}
    session = replace(a_session("ses_a", title="a secret"), **owner)
    metric = replace(a_metric(), context=Context(1, 30, 1, 1, LAYOUT), **owner)
    return await store.sessions.write([session], [metric])


WRITES: Mapping[str, Write] = {
    "an original": _keep,
    "a decision": lambda store, who: store.decisions.add(who, [DECISION]),
    "a compression": lambda store, who: store.decisions.add_compression(who, MADE),
    "a fact": lambda store, who: store.facts.put_if_absent(who, "memory", {b"f" * 32: b"a secret"}, "ses_a"),
    "a session": _write_request,
    "an open request": lambda store, who: team_tables(store).hold_open(
        [OpenRequest("req_2", USE, 0.5, 9, 1e9)], [], 1e9
    ),
    "an admitted request": lambda store, who: team_tables(store).admit(USE, [UsageRange(USE.day)], lambda spent: True),
    "a relayed request": lambda store, who: team_tables(store).close_requests([("req_3", USE, UsageSum(requests=1))]),
    "a login": lambda store, who: team_tables(store).keep_login(LoginRecord(b"login", 1.0, 1e9, who.person_id)),
    "a token": lambda store, who: team_tables(store).add_token(
        TokenRecord("tok_1", who.person_id, "", 1.0, 1e9), b"own", b"of ada", 9
    ),
}
# What no one can be recognized by: totals by day, the requests that count towards them, and the key of all sessions.
NAMELESS = ("usage_day", "open_request", "erased", "kept", "schema_version", "secret", "sqlite_sequence")


async def _rows(store: Store) -> dict[str, list[object]]:
    """Return what is in each table."""
    database = store.decisions.database  # type: ignore[attr-defined]
    is_file = hasattr(database, "path")
    names = (
        "SELECT name FROM sqlite_master WHERE type = 'table'"
        if is_file
        else "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    )
    tables = [str(name) for (name,) in await database.rows(names)]
    return {name: await database.rows(f"SELECT * FROM {name}") for name in tables}


@pytest.mark.parametrize("who", [OWN, SHARING], ids=["in their own scope", "in that of their team"])
async def test_nothing_is_written_for_an_erased_person(opened: Opening, tmp_path: Path, who: Caller):
    async with opened(tmp_path, now=Clock()) as store:
        await team_tables(store).add_person(PERSON, b"of ada", None)
        await team_tables(store).revoke_person("ada", 2.0)
        await team_tables(store).erase_person(PERSON.id, ["person/per_ada", "team/x"], 3.0)
        await team_tables(store).remove_person(PERSON.id)

        for name, write in WRITES.items():
            try:
                await write(store, who)
            except StoreUnavailable as e:
                assert "erased" in str(e), name
            left = {table: rows for table, rows in (await _rows(store)).items() if table not in NAMELESS and rows}
            assert left == {}, name
        nameless = await _rows(store)
        assert PERSON.id not in str([nameless["usage_day"], nameless["open_request"]])
        used = await team_tables(store).usage("1970-01-01")
        assert sum(one.requests for _, one in used) == 2  # what the provider was asked is still paid for
        assert (await store.usage()).state == "ok"


async def test_others_of_the_team_are_written_as_before(opened: Opening, tmp_path: Path):
    async with opened(tmp_path, now=Clock()) as store:
        await team_tables(store).erase_person(PERSON.id, ["person/per_ada", "team/x"], 3.0)
        for name in ("an original", "a decision", "a compression", "a fact", "a session"):
            await WRITES[name](store, BEN)

        assert len(await store.originals.page(BEN, 2**62, 9)) == 1
        assert list(await store.decisions.get(BEN, [DECISION.key])) == [DECISION.key]
        assert [one.id for one in await store.decisions.compressions(BEN, "ses_a")] == ["cmp_1"]
        assert await store.facts.get(BEN, "memory", [b"f" * 32]) == {b"f" * 32: b"a secret"}
        assert [one.title for one in await store.sessions.newest(BEN, 9)] == ["a secret"]


async def test_servers_are_told_whose_data_was_erased_in_order_and_a_token_brings_no_one_back(
    opened: Opening, tmp_path: Path
):
    async with opened(tmp_path, now=Clock()) as store:
        await team_tables(store).add_person(PERSON, b"of ada", None)
        await team_tables(store).revoke_person("ada", 2.0)
        await team_tables(store).erase_person("per_x", ["person/per_x"], 3.0)
        await team_tables(store).erase_person(PERSON.id, ["person/per_ada"], 4.0)
        await team_tables(store).erase_person(PERSON.id, ["person/per_ada", "team/x"], 5.0)

        first, second = await team_tables(store).erased_since(0)
        assert (first.id, second) == ("per_x", ErasedPerson(second.seq, PERSON.id, ("person/per_ada", "team/x")))
        assert await team_tables(store).erased_since(first.seq) == [second]
        assert await team_tables(store).erased_since(second.seq) == []
        assert await team_tables(store).rotate_person("ada", 6.0, b"new", None) is None


def _waiting(connection: "psycopg.Connection[tuple[object, ...]]") -> int:
    """Return how many transactions wait for a lock."""
    return len(connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall())


async def test_an_erasure_waits_for_what_is_being_written(tmp_path: Path):
    """Between the look at who is erased and the commit, PostgreSQL lets other transactions in."""
    with postgres_server.serving() as server:
        async with postgres_server.opened(server, tmp_path) as store:
            with psycopg.connect(postgres_server.url_of(server, tmp_path)) as other:
                other.execute("LOCK TABLE record IN EXCLUSIVE MODE")
                keeping = asyncio.create_task(_keep(store, OWN))
                await until(lambda: _waiting(other) == 1)
                erasing = asyncio.create_task(team_tables(store).erase_person(PERSON.id, [], 3.0))
                await until(lambda: _waiting(other) == 2)
                assert not keeping.done() and not erasing.done()
            await keeping
            await erasing
            (kept,) = await store.originals.page(OWN, 2**62, 9)

            assert await store.originals.delete(OWN, [kept.id]) == {kept.id}
            with pytest.raises(StoreUnavailable, match="erased"):
                await _keep(store, OWN)
