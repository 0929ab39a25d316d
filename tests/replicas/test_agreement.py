"""Replicas that share a database answer as one: what one has decided, kept or been told, the others know."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import httpx
import psycopg
import pytest
from tests.support.api.watching import watching
from tests.support.conversations import Assistant, Call, Item, Result, User, request
from tests.support.fakes import Clock
from tests.support.processes import until
from tests.support.replicas.world import STORE, ReplicaWorld, replicated, turn
from tests.support.services.store.postgres_server import opened, serving

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config.sections import SanitizerSettings
from kimi_proxy.features.chat.conversations import conversation_with
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.prompt_cache import SentPrefix
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target
from kimi_proxy.services.chat.decisions import ChatDecisions
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.notes import Notes
from kimi_proxy.services.chat.prompt_cache import PromptCaches
from kimi_proxy.services.chat.sanitizer import Sanitizer
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store.protocols import Replicas, StoredEvent
from kimi_proxy.services.workers.pool import Workers
from kimi_proxy.team.store.postgres.store import PostgresStore


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as url:
        yield url


async def test_replicas_that_cut_the_same_results_at_once_send_the_same_bytes(server: str, tmp_path: Path):
    async with replicated(server, tmp_path) as here:
        for number in range(6):
            items = turn(number)
            await asyncio.gather(*(here.ask(at, items) for at in (0, 1, 0, 1)))
    sent = here.left()

    for number in range(6):
        same = sent[4 * number : 4 * number + 4]
        assert same[0] == same[1] == same[2] == same[3]
        assert b"PRUN" in same[0][-1]


async def test_turns_that_alternate_between_replicas_keep_their_prefix(server: str, tmp_path: Path):
    items: list[Item] = []
    async with replicated(server, tmp_path, 3) as here:
        for number in range(9):
            items += turn(number)
            await here.ask(number % 3, items)
            items.append(Assistant("I see."))
    sent = here.left()

    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(sent))
    assert all(b"PRUN" in later[-1] for later in sent)


async def test_what_one_replica_cut_another_gives_back(server: str, tmp_path: Path):
    items = turn(1)
    async with replicated(server, tmp_path) as here:
        await here.ask(0, items)
        (mask,) = (await here.replicas[1].http.get("/api/mask")).json()["masks"]
        whole = (await here.replicas[1].http.get(f"/api/mask/{mask['id']}")).json()

    assert whole["text"] == items[-1].text  # type: ignore[union-attr]


async def test_a_decision_that_one_replica_replaces_is_repeated_by_the_others(server: str, tmp_path: Path):
    """As at a cold prompt cache: another server must not go on with what it remembers."""
    items = [*turn(1), Assistant("I see."), User("And now?")]
    async with replicated(server, tmp_path) as here:
        await here.ask(0, items[:3])
        await here.ask(1, items)
        keys = await _renewed(here, b"other bytes")
        await here.ask(0, items)
        await here.ask(1, items)
    sent = here.left()

    assert len(keys) == 1
    assert sent[2] == sent[3] != sent[1]
    assert b"other bytes" in sent[3][3]


async def _renewed(here: ReplicaWorld, shown: bytes) -> list[bytes]:
    """Replace the one decision about a cut."""
    store = here.replicas[1].runtime.store
    (listed,) = await store.originals.page(LOCAL, 2**62, 9)
    decision = await store.decisions.of_original(LOCAL, listed.id)
    assert decision is not None
    made = await store.decisions.times(LOCAL, [decision.key])
    await store.decisions.add(LOCAL, [replace(decision, shown=shown)], replaces=made)
    return list(made)


async def test_a_compression_on_one_replica_is_repeated_by_the_others_and_undone_by_them(server: str, tmp_path: Path):
    items: list[Item] = []
    for number in range(8):
        items += [User(f"Question {number} " + "about the importer " * 40), Assistant("Answer " * 60)]
    later = [*items, User("And now?")]
    async with replicated(server, tmp_path) as here:
        for at in (0, 1):
            await here.ask(at, items, "s")
        done = await here.replicas[0].http.post("/api/compaction/s?force=true")
        assert done.status_code == 200, done.text
        for at in (0, 1):
            await here.ask(at, later, "s")
        undone = await here.replicas[1].http.post("/api/compress/s/undo")
        assert undone.status_code == 200, undone.text
        for at in (0, 1):
            await here.ask(at, later, "s")
    sent = here.left()[-4:]

    assert sent[0] == sent[1]
    assert sent[2] == sent[3]
    assert len(sent[0]) < len(sent[2])


async def test_a_session_is_compressed_by_a_replica_that_relayed_it_whichever_is_asked(server: str, tmp_path: Path):
    items: list[Item] = []
    for number in range(8):
        items += [User(f"Question {number} " + "about the importer " * 40), Assistant("Answer " * 60)]
    later = [*items, User("And now?")]
    async with replicated(server, tmp_path, 3) as here:
        other = here.replicas[2].http
        for at in (0, 1):  # two have it, and one of them does it
            await here.ask(at, items, "s")

        async def ask(path: str) -> httpx.Response:
            """Again while the servers may not listen to each other yet."""
            async with asyncio.timeout(60):
                while (got := await other.post(path)).status_code == 404:
                    pass
            return got

        simulated = (await ask("/api/compaction/s/simulate")).json()
        done = (await ask("/api/compaction/s?force=true")).json()
        again = await ask("/api/compaction/s?force=true")
        stats = (await other.get("/api/compress/s/stats")).json()
        for at in range(3):
            await here.ask(at, later, "s")
    sent = here.left()[-3:]

    assert (simulated["simulated"], simulated["summary"]) == (True, "")
    assert simulated["messages_removed"] == done["messages_removed"] > 0
    assert "the user said: Question" in done["summary"]
    assert [one["compression_id"] for one in stats["history"]] == [done["compression_id"]]
    assert (again.status_code, again.json()["error"]["reason"]) == (409, "nothing_to_compress")
    assert sent[0] == sent[1] == sent[2]
    assert len(sent[0]) < len(later)


async def test_a_session_that_no_replica_has_in_memory_is_not_compressed(server: str, tmp_path: Path):
    async with replicated(server, tmp_path) as here:
        await here.ask(0, [User("Hello")], "s")
    async with replicated(server, tmp_path) as restarted:
        refused = await restarted.replicas[1].http.post("/api/compress/s?force=true")

    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "no_request_seen")


async def test_replicas_that_compress_a_session_at_once_send_the_first_summary(server: str, tmp_path: Path):
    """Without a summary of the provider's, so that both are made in the same moment."""
    settings = """[models.kimi-k2]
provider = "openai-evil"
max_context_size = 2000
[compression]
automatic = true
ask_provider = false
keep_exchanges = 2
"""
    items: list[Item] = []
    for number in range(12):
        items += [User(f"Question {number} " + "about the importer " * 40), Assistant("Answer " * 60)]
    later = [*items, User("And now?")]
    async with replicated(server, tmp_path, settings=STORE + settings) as here:
        for session in ("a", "b", "c"):
            await asyncio.gather(*(here.ask(at, items, session) for at in (0, 1)))
            for at in (0, 1):
                await here.ask(at, later, session)
        made = [(await here.replicas[0].http.get(f"/api/compress/{name}/stats")).json() for name in ("a", "b", "c")]
    sent = here.left()

    for number in range(3):
        first, second, *after = sent[4 * number : 4 * number + 4]
        assert first == second
        assert len(first) < len(items)
        assert all(each[: len(first)] == first for each in after)
    assert [one["compressions"] for one in made] == [1, 1, 1]


async def test_a_viewer_of_any_replica_sees_the_requests_of_all(server: str, tmp_path: Path):
    async with AsyncExitStack() as alive:
        here = await alive.enter_async_context(replicated(server, tmp_path))
        watchers = [await alive.enter_async_context(watching(one.port)) for one in here.replicas]
        for at in (0, 1):
            await here.ask(at, [User(f"Hello {at}")], f"s{at}")

        def ended(at: int) -> set[str]:
            metrics = [event["metric"] for event in watchers[at].events if event["type"] == "metric_updated"]
            return {str(metric["id"]) for metric in metrics if isinstance(metric, dict)}

        await until(lambda: len(ended(0)) == len(ended(1)) == 2)
        created = [[e["type"] for e in one.events].count("session_created") for one in watchers]

    assert ended(0) == ended(1)
    assert created == [2, 2]


async def test_events_are_followed_again_after_the_connection_was_lost(server: str, tmp_path: Path):
    got: list[str] = []
    async with opened(server, tmp_path) as one, opened(server, tmp_path) as other:
        following = asyncio.create_task(other.replicas.follow(lambda event: got.append(event.name)))
        try:
            await _arrives(one, "before", got)
            with psycopg.connect(server) as connection:
                connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
            one.replicas.publish(StoredEvent("meanwhile", 2.0, {}))
            await until(lambda: "meanwhile" in got)
            await _arrives(one, "after", got)
        finally:
            following.cancel()
            await asyncio.wait([following])

    assert got.count("meanwhile") == 1


async def _arrives(store: PostgresStore, name: str, got: list[str]) -> None:
    """Publish it until it has arrived: who does not listen yet misses what comes before."""
    async with asyncio.timeout(60):
        while name not in got:
            store.replicas.publish(StoredEvent(name, 1.0, {"n": 1}))
            await asyncio.sleep(0.2)


async def test_what_is_switched_on_one_replica_is_switched_on_all(server: str, tmp_path: Path):
    async with replicated(server, tmp_path) as here:
        one, other = here.replicas

        async def is_off() -> bool:
            await one.http.post("/api/sanitizer/toggle", json={"enabled": False})
            return not other.runtime.sanitizer.is_on

        async with asyncio.timeout(60):
            while not await is_off():  # asked again, because it may not listen yet
                pass


async def test_a_prompt_cache_that_another_replica_keeps_warm_is_warm(server: str, tmp_path: Path):
    """Of two that take turns every four minutes, each sees its own last request eight minutes ago."""
    clock, cold = Clock(), []

    async def send(caches: PromptCaches, number: int) -> None:
        items = [User("Hello"), Assistant("Hi"), User(f"And {number}?")]
        sent = request(Wire.MESSAGES, items, metadata={"cache_control": {"type": "ephemeral"}})
        draft = Draft(sent, Target("anthropic", "claude-opus-5"), Session("s-1"), LOCAL)
        cold.append((await caches.observe(draft)).is_cold)
        clock.advance(240)

    async with opened(server, tmp_path) as one, opened(server, tmp_path) as other:
        caches = [PromptCaches(now=clock, replicas=store.replicas) for store in (one, other)]
        for number in range(8):
            await send(caches[number % 2], number)
        clock.advance(240)
        await send(caches[1], 8)
        clock.advance(-240)
        await send(caches[0], 8)  # the same once more: it is judged as before

    assert cold == [True, *[False] * 7, True, True]


@pytest.mark.parametrize(("pause_s", "is_cold"), [(10, False), (3600, True)])
async def test_a_fork_has_the_prompt_cache_of_its_parent_which_another_replica_has_just_sent(
    server: str, tmp_path: Path, pause_s: int, is_cold: bool
):
    """The store's row of the session is written behind: it may say nothing of that request yet."""
    clock = Clock()
    items = [User("Go on."), Assistant("I see."), User("Go on.")]
    came = request(Wire.MESSAGES, items, metadata={"cache_control": {"type": "ephemeral"}})
    target = Target("anthropic", "claude-opus-5")
    parent = conversation_with("s-1", b"words", is_kept=False)
    fork = replace(conversation_with("s-2", b"words", is_kept=False), parent=parent)
    async with opened(server, tmp_path) as one, opened(server, tmp_path) as other:
        here, there = [PromptCaches(now=clock, replicas=store.replicas) for store in (one, other)]
        await here.observe(Draft(came, target, Session("s-1"), LOCAL, known_as=parent))
        clock.advance(pause_s)
        forked = await there.observe(Draft(came, target, Session("s-2"), LOCAL, known_as=fork))

    assert forked.is_cold is is_cold


class Overtaken:
    """The notes of all servers, as a database answers where the second request is noted before the first one."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._second = asyncio.Event()
        self._calls = 0

    async def note_sent(
        self, conversation: bytes, sent: SentPrefix, digest: bytes, if_unknown: bool, parent: bytes = b""
    ) -> tuple[bool, bytes]:
        self._calls += 1
        if self._calls == 1:
            await self._second.wait()
        answer = await self._replicas.note_sent(conversation, sent, digest, if_unknown, parent)
        self._second.set()
        return answer

    async def take_turn(self, name: str, per_minute: int) -> float:
        raise NotImplementedError

    def publish(self, event: StoredEvent) -> None:
        raise NotImplementedError

    async def follow(self, receive: Callable[[StoredEvent], None]) -> None:
        raise NotImplementedError


async def test_equal_requests_that_begin_a_conversation_are_all_free_to_be_cut_whichever_is_noted_first(
    server: str, tmp_path: Path
):
    came = request(Wire.MESSAGES, [User("Hello")], metadata={"cache_control": {"type": "ephemeral"}})
    draft = Draft(came, Target("anthropic", "claude-opus-5"), Session("s-1"), LOCAL)
    async with opened(server, tmp_path) as store:
        caches = PromptCaches(now=Clock(), replicas=Overtaken(store.replicas))
        async with asyncio.timeout(60):
            moments = await asyncio.gather(caches.observe(draft), caches.observe(draft))

    assert [moment.is_cold for moment in moments] == [True, True]


async def test_results_that_one_replica_cuts_at_a_cold_moment_stay_cut_on_all(server: str, tmp_path: Path):
    """None of them is long enough to be cut when it enters: each server remembers those that it saw as short."""
    clock, items, workers = Clock(), list[Item]([User("Tidy up.")]), Workers(thread_max_chars=10**9)
    sent: list[list[bytes]] = []

    async def send(at: int) -> None:
        came = request(Wire.MESSAGES, items, metadata={"cache_control": {"type": "ephemeral"}})
        draft = Draft(came, Target("anthropic", "claude-opus-5"), Session("s-1"), LOCAL)
        left = (await sanitizers[at].change(draft)).request
        sent.append([left.body[message.start : message.end] for message in left.messages])
        clock.advance(10)

    async with opened(server, tmp_path) as one, opened(server, tmp_path) as two, opened(server, tmp_path) as three:
        sanitizers = [
            Sanitizer(
                SanitizerSettings(budget_ms=60_000),
                "http://127.0.0.1:8000",
                ChatDecisions(store.originals, store.decisions, 600.0, clock, is_shared=True),
                ChatFacts(Notes(store.facts, 600.0, clock, is_shared=True)),
                workers,
                Metrics(),
                PromptCaches(now=clock, replicas=store.replicas),
            )
            for store in (one, two, three)
        ]
        await send(0)
        for number in range(8):
            text = "\n".join(f"value_{number}_{row} = lookup({row * number}, default={row})" for row in range(40))
            call = Call(f"c{number}", "bash", {"command": f"./values {number}"})
            items += [Assistant("", (call,)), Result(f"c{number}", text)]
            clock.advance(3600 if number == 6 else 0)
            await send(number % 3)
        for at in (1, 2, 0):
            await send(at)
    await workers.close()
    cut = [sum(b"PRUN" in message for message in messages) for messages in sent]

    assert cut == [0, 0, 0, 0, 0, 0, 0, 5, 5, 5, 5, 5]  # the newest two stay
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(sent[7:]))


async def test_all_replicas_together_keep_to_a_providers_rate(server: str, tmp_path: Path):
    async with opened(server, tmp_path) as one, opened(server, tmp_path) as other:
        waits = await asyncio.gather(*(store.replicas.take_turn("p", 5) for store in (one, other) * 5))

    # A minute has five; on a slow machine some of them drain meanwhile.
    assert 5 <= sum(wait == 0 for wait in waits) <= 7
    assert all(0 <= wait <= 12 for wait in waits)


async def test_a_viewer_sees_of_other_replicas_only_what_is_theirs(server: str, tmp_path: Path):
    ada, bea = (Caller(scope, is_admin=False) for scope in ("person:ada", "person:bea"))
    async with replicated(server, tmp_path) as here, asyncio.timeout(60):
        one, other = (replica.runtime.hub for replica in here.replicas)
        with other.join(bea) as viewer:
            seen = asyncio.create_task(viewer.next())
            while not seen.done():  # again, because the other one may not listen yet
                for who in (ada, bea):
                    one.publish(who, "prune_event", {"of": who.scope})
                await asyncio.wait([seen], timeout=0.2)

    assert json.loads(await seen)["of"] == bea.scope
