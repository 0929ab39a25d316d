"""Every method of a store, called as another person: it finds nothing of theirs and changes nothing of theirs."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from inspect import getmembers, isfunction
from pathlib import Path

import pytest
from tests.services.store.contract.conftest import Opening
from tests.support.fakes import Clock
from tests.support.services.store.making import a_metric, a_session, an_original

from kimi_proxy.core.caller import ANONYMOUS, LOCAL, Caller
from kimi_proxy.core.errors import PruneIdNotFound, StoreUnavailable
from kimi_proxy.features.chat.context import Context, Layout, MemoryFound, Sink
from kimi_proxy.services.store.protocols import (
    NEWEST,
    CompressionRecord,
    DecisionRecord,
    Decisions,
    DecisionTotals,
    FactStore,
    MemoryStore,
    Originals,
    SessionStore,
    Store,
    StoredMemory,
)

ADA = Caller("person/ada", "ada", is_admin=False, person_id="ada")
BEN = Caller("person/ben", "ben", is_admin=False, person_id="ben")
DEE = Caller("person/dee", "dee", is_admin=True, person_id="dee")  # an admin
TEAM = Caller("team/x", "eve", "x", is_admin=False, also_reads=("person/eve",), person_id="eve")
OTHERS = {"a member": BEN, "an admin": DEE, "another team": TEAM, "the server itself": LOCAL, "nobody": ANONYMOUS}

SECRET = b"a secret"
ORIGINAL = replace(an_original(SECRET), scope=ADA.scope)
DECISION = DecisionRecord(b"k" * 32, "pruned", b"shown", (ORIGINAL.id,), "a secret", "ses_a", 100, 10)
SESSION = replace(
    a_session("ses_a", title="a secret", name="secret"), scope=ADA.scope, person="ada", directory="/secret"
)
LAYOUT = Layout((MemoryFound("@recall", 2, 30, "a secret"),), (), Sink(0, 0, None), is_reminded=False)
METRIC = replace(a_metric(), scope=ADA.scope, person="ada", context=Context(1, 30, 1, 1, LAYOUT))
FACT = b"f" * 32
MADE = CompressionRecord(
    "cmp_1", "ses_a", 1.0, 90, 9, 4, (), b"f", "a secret", "a secret", ORIGINAL.id, "m", "k", False
)

FIGURES = object()  # what an admin sees of everyone, and others of themselves

Try = Callable[[Store, Caller], Awaitable[object]]


async def _recovered(store: Store, who: Caller) -> object:
    with pytest.raises(PruneIdNotFound) as error:
        await store.originals.get(who, ORIGINAL.id)
    return error.value.reason


async def _kept(store: Store, who: Caller) -> object:
    """The id of another names another text here, or the same one for oneself."""
    await store.originals.keep(replace(ORIGINAL, scope=who.scope, text=b"mine", key=b"m" * 32))
    return (await store.originals.get(who, ORIGINAL.id)).text


async def _decided(store: Store, who: Caller) -> object:
    forget = {DECISION.key: (await store.decisions.times(ADA, [DECISION.key]))[DECISION.key]}
    made = await store.decisions.add(who, [replace(DECISION, shown=b"mine", session="")], [DECISION.key], forget)
    await store.decisions.add(who, [], [DECISION.key])
    return made[DECISION.key].shown


async def _stated(store: Store, who: Caller) -> object:
    found = await store.facts.put_if_absent(who, "memory", {FACT: b"mine"}, "ses_a")
    await store.facts.delete(who, "memory", [FACT])
    return found


async def _remembered(store: Store, who: Caller) -> object:
    await store.project_memory.save(who, StoredMemory(b'"mine"', 1.0))
    saved = await store.project_memory.load(who)
    await store.project_memory.delete(who.person_id)
    return saved


async def _compressed(store: Store, who: Caller) -> object:
    return await store.decisions.add_compression(who, replace(MADE, id=f"cmp_{who.scope}", message="mine"))


async def _written(store: Store, who: Caller) -> object:
    """What the session of another would become if a request of this person were in it."""
    layout = Layout((MemoryFound("@recall", 1, 9, "mine"),), (), Sink(0, 0, None), is_reminded=False)
    context = Context(1, 9, 1, 1, layout)
    session = replace(SESSION, scope=who.scope, person=who.person, title="mine", last_used=1e9, created=0.0)
    metric = replace(METRIC, id=f"req_{who.scope}", scope=who.scope, person=who.person, model="mine", context=context)
    await store.sessions.write([session], [metric])
    own = [one.session for one in await store.sessions.newest_metrics(replace(who, is_admin=False), 10)]
    await store.sessions.delete_all(who)
    return own


ORIGINALS: Mapping[str, tuple[Try, object]] = {
    "find": (lambda store, who: store.originals.find(who, ORIGINAL.key), None),
    "find_hash": (lambda store, who: store.originals.find_hash(who, sha256(SECRET).digest()), None),
    "get": (_recovered, "unknown"),
    "live": (lambda store, who: store.originals.live(who, [ORIGINAL.id]), frozenset()),
    "note": (lambda store, who: store.originals.note(who, ORIGINAL.id), None),
    "page": (lambda store, who: store.originals.page(who, NEWEST, 10), []),
    "texts": (lambda store, who: store.originals.texts(who, NEWEST, 10), []),
    "of_sessions": (lambda store, who: store.originals.of_sessions(who, None), frozenset()),
    "of_person": (lambda store, who: store.originals.of_person(who, "ada"), {}),
    "delete": (lambda store, who: store.originals.delete(who, [ORIGINAL.id]), frozenset()),
    "keep": (_kept, b"mine"),
}
DECISIONS: Mapping[str, tuple[Try, object]] = {
    "get": (lambda store, who: store.decisions.get(who, [DECISION.key]), {}),
    "times": (lambda store, who: store.decisions.times(who, [DECISION.key]), {}),
    "of_original": (lambda store, who: store.decisions.of_original(who, ORIGINAL.id), None),
    "totals": (lambda store, who: store.decisions.totals(who), DecisionTotals({}, 0, 0)),
    "add": (_decided, b"mine"),
    "compressions": (lambda store, who: store.decisions.compressions(who, "ses_a"), []),
    "undo_compression": (lambda store, who: store.decisions.undo_compression(who, "cmp_1", 2.0), None),
    "page": (lambda store, who: store.decisions.page(who, 0, 10), []),
    "sole_originals": (lambda store, who: store.decisions.sole_originals(who, None), frozenset()),
    "forget_sessions": (lambda store, who: store.decisions.forget_sessions(who, None), 0),
    "compressed_sessions": (lambda store, who: store.decisions.compressed_sessions(who), frozenset()),
    "compression_totals": (lambda store, who: store.decisions.compression_totals(who, "ses_a"), FIGURES),
    "add_compression": (_compressed, True),
}
FACTS: Mapping[str, tuple[Try, object]] = {
    "get": (lambda store, who: store.facts.get(who, "memory", [FACT]), {}),
    "read": (lambda store, who: store.facts.read(who, {"memory": [FACT]}), {}),
    "keys": (lambda store, who: store.facts.keys(who, "memory", 10), []),
    "page": (lambda store, who: store.facts.page(who, 0, 10), []),
    "delete": (lambda store, who: store.facts.delete(who, "memory", [FACT]), None),
    "forget_sessions": (lambda store, who: store.facts.forget_sessions(who, ["ses_a"]), None),
    "put_if_absent": (_stated, {FACT: b"mine"}),
}
MEMORY: Mapping[str, tuple[Try, object]] = {
    "load": (lambda store, who: store.project_memory.load(who), None),
    "save": (_remembered, StoredMemory(b'"mine"', 1.0)),
}
SESSIONS: Mapping[str, tuple[Try, object]] = {
    "own_ids": (lambda store, who: store.sessions.own_ids(who, ["ses_a"]), frozenset()),
    "get": (lambda store, who: store.sessions.get(who, "ses_a"), FIGURES),
    "newest": (lambda store, who: store.sessions.newest(who, 10), FIGURES),
    "search": (lambda store, who: store.sessions.search(who, "secret", 10), []),
    "count": (lambda store, who: store.sessions.count(who), FIGURES),
    "totals": (lambda store, who: store.sessions.totals(who), FIGURES),
    "memory_totals": (lambda store, who: store.sessions.memory_totals(who), FIGURES),
    "newest_context": (lambda store, who: store.sessions.newest_context(who, "ses_a"), (None, None)),
    "rename": (lambda store, who: store.sessions.rename(who, "ses_a", "mine"), False),
    "delete": (lambda store, who: store.sessions.delete(who, ["ses_a"]), []),
    "delete_all": (lambda store, who: store.sessions.delete_all(who), []),
    "newest_request": (lambda store, who: store.sessions.newest_request(who, "ses_a"), None),
    "newest_metric": (lambda store, who: store.sessions.newest_metric(who, "ses_a"), FIGURES),
    "newest_metrics": (lambda store, who: store.sessions.newest_metrics(who, 10, "ses_a"), FIGURES),
    "metrics": (lambda store, who: store.sessions.metrics(who, None, 0, 10), FIGURES),
    "accounts": (lambda store, who: store.sessions.accounts(who, 0.0), FIGURES),
    "write": (_written, ["ses_a"]),
}
# What no person asks for: a key, and ids, that stay inside of the server; and what an admin erases a person by.
OF_SERVERS = {"secret", "newest_ids", "ids_of_person", "people", "delete"}
TRIES = {
    Originals: ORIGINALS,
    Decisions: DECISIONS,
    FactStore: FACTS,
    MemoryStore: MEMORY,
    SessionStore: SESSIONS,
}


@pytest.mark.parametrize("protocol", TRIES)
def test_no_method_of_a_store_is_left_out(protocol: type):
    methods = {name for name, _ in getmembers(protocol, isfunction) if not name.startswith("_")}
    assert methods == {*TRIES[protocol], *(OF_SERVERS & methods)}


async def _of_ada(store: Store) -> list[object]:
    """All that ada has, as she reads it."""
    return [
        await store.originals.get(ADA, ORIGINAL.id),
        await store.decisions.get(ADA, [DECISION.key]),
        await store.facts.get(ADA, "memory", [FACT]),
        await store.project_memory.load(ADA),
        await store.decisions.compressions(ADA, "ses_a"),
        await store.decisions.compression_totals(ADA),
        await store.sessions.get(ADA, "ses_a"),
        await store.sessions.newest_context(ADA, "ses_a"),
        await store.sessions.metrics(ADA, "ses_a", 0, 10),
        await store.sessions.memory_totals(ADA),
        await store.sessions.accounts(ADA, 0.0),
    ]


@pytest.mark.parametrize("who", OTHERS.values(), ids=OTHERS)
async def test_whatever_another_person_calls_finds_and_changes_nothing(opened: Opening, tmp_path: Path, who: Caller):
    async with opened(tmp_path, now=Clock()) as store, opened(tmp_path / "empty", now=Clock()) as empty:
        await store.originals.keep(ORIGINAL)
        await store.decisions.add(ADA, [DECISION])
        await store.facts.put_if_absent(ADA, "memory", {FACT: SECRET}, "ses_a")
        await store.project_memory.save(ADA, StoredMemory(b'"a secret"', 1.0))
        await store.sessions.write([SESSION], [METRIC])
        assert await store.decisions.add_compression(ADA, MADE)
        before = await _of_ada(store)
        assert "secret" in str(before)

        for name, (call, expected) in [entry for tries in TRIES.values() for entry in tries.items()]:
            found = await call(store, who)
            # An admin counts what everyone does, and reads nothing of it.
            assert "secret" not in str(found), name
            if expected == FIGURES:
                assert who.is_admin or found == await call(empty, who), name
            else:
                assert found == expected, name
            assert await _of_ada(store) == before, name


async def test_a_compression_of_a_server_of_the_version_before_belongs_to_whom_its_session_does(
    opened: Opening, tmp_path: Path
):
    async with opened(tmp_path, now=Clock()) as store:
        await store.sessions.write([SESSION], [METRIC])
        await store.decisions.add_compression(ADA, MADE)
        database = store.decisions.database  # type: ignore[attr-defined]
        await database.change("UPDATE compression_log SET scope = NULL RETURNING 1")

        assert [one.id for one in await store.decisions.compressions(ADA, "ses_a")] == ["cmp_1"]
        assert await store.decisions.compressions(BEN, "ses_a") == []
        await store.decisions.undo_compression(BEN, "cmp_1", 2.0)
        assert [one.undone for one in await store.decisions.compressions(ADA, "ses_a")] == [None]


async def test_the_secret_of_sessions_is_made_once_and_stays(opened: Opening, tmp_path: Path):
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        first = await store.sessions.secret()
        assert (await other.sessions.secret(), len(first)) == (first, 32)
    async with opened(tmp_path) as later:
        assert await later.sessions.secret() == first


async def test_what_people_do_to_texts_is_noted_under_their_name_with_how_it_ended(opened: Opening, tmp_path: Path):
    noted: list[tuple[str, str, str, str]] = []

    def note(who: Caller, action: str, subject: str, *, outcome: str = "ok") -> None:
        noted.append((who.person, action, subject, outcome))

    async with opened(tmp_path, now=Clock()) as store:
        store.audit_by(note)
        await store.originals.keep(ORIGINAL)
        await store.sessions.write([SESSION], [METRIC])
        with pytest.raises((PruneIdNotFound, StoreUnavailable)):
            await store.originals.get(BEN, ORIGINAL.id)
        await store.originals.get(ADA, ORIGINAL.id)
        await store.originals.texts(BEN, NEWEST, 10)
        await store.originals.texts(BEN, 5, 10)  # the same search goes on
        await store.sessions.metrics(ADA, None, 0, 10)
        await store.decisions.add_compression(ADA, MADE)
        await store.decisions.undo_compression(ADA, "cmp_1", 2.0)
        await store.originals.delete(BEN, [ORIGINAL.id])
        await store.originals.delete(ADA, [ORIGINAL.id])
        await store.sessions.delete(ADA, ["ses_a", "ses_b"])
        await store.sessions.delete_all(DEE)
    assert noted == [
        ("ben", "recover", ORIGINAL.id, "unknown"),
        ("ada", "recover", ORIGINAL.id, "ok"),
        ("ben", "search", "", "ok"),
        ("ada", "export", "all", "ok"),
        ("ada", "compress", "ses_a", "ok"),
        ("ada", "undo_compression", "cmp_1", "ok"),
        ("ben", "delete_original", ORIGINAL.id, "unknown"),
        ("ada", "delete_original", ORIGINAL.id, "ok"),
        ("ada", "delete_session", "ses_a", "ok"),
        ("ada", "delete_session", "ses_b", "unknown"),
        ("dee", "delete_session", "all", "ok"),
    ]
