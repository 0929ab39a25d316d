"""Requests are noted behind their backs: announced, concluded, written down, and dropped when nothing else helps."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.support.fakes import Clock
from tests.support.processes import until
from tests.support.services.store.making import a_metric, opened
from tests.support.texts import a_log

from kimi_proxy.core import tokens
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.chat.reply import ReplyFacts, Usage
from kimi_proxy.core.config.providers import Model
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.markers import new_id
from kimi_proxy.features.chat.pipeline import Draft, Note
from kimi_proxy.features.chat.sessions import LOCAL_IDS, Session, session_of
from kimi_proxy.features.models import Models, Target
from kimi_proxy.services import journal as journals
from kimi_proxy.services.chat.context import TokenCounter
from kimi_proxy.services.chat.relay import Exchange
from kimi_proxy.services.journal import LEASE_S, Journal, WriteQueue
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store.sqlite.store import SqliteStore

MODELS = {"p/m": Model(provider="p", max_context_size=1000, input_usd_per_million=1, output_usd_per_million=1)}


@dataclass
class World:
    journal: Journal
    store: SqliteStore
    metrics: Metrics
    events: list[tuple[str, Mapping[str, JsonValue]]] = field(default_factory=list)

    def said(self, event: str) -> list[Mapping[str, JsonValue]]:
        return [fields for name, fields in self.events if name == event]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    @property
    def concluded(self) -> int:
        return self.names.count("metric_updated")

    def dropped(self, reason: str) -> float:
        return dropped(self.metrics, reason)

    async def written(self) -> list[str]:
        return [metric.id for _, metric in await self.store.sessions.metrics(LOCAL, None, 0, 100_000)]


@asynccontextmanager
async def noting(home: Path, clock: Clock | None = None, counting: TokenCounter | None = None) -> AsyncIterator[World]:
    async with opened(home, timeout_s=60) as store:
        metrics, events = Metrics(), list[tuple[str, Mapping[str, JsonValue]]]()

        def publish(who: Caller, event: str, fields: Mapping[str, JsonValue]) -> None:
            events.append((event, fields))

        counting = counting or TokenCounter()
        journal = Journal(
            store.sessions, Models({}, MODELS), counting, metrics, publish, clock or Clock(1_800_000_000.0)
        )
        try:
            yield World(journal, store, metrics, events)
        finally:
            await journal.close()
            counting.close()


def a_draft(text: str = "hi", session: Session | None = None, model: str = "p/m") -> Draft:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": text}]}).encode()
    request = parse(body, Wire.CHAT)
    key = model if model in MODELS else None
    return Draft(
        request, Target("p", "m" if key else model, key), session or session_of(request, {}, "p", LOCAL_IDS), LOCAL
    )


def ended(draft: Draft, input_tokens: int = 0, outcome: str = "ok") -> Exchange:
    usage = Usage(input_tokens=input_tokens, output_tokens=5) if input_tokens else None
    return Exchange(draft, 200, outcome, ReplyFacts("m", "stop", usage), 0.01, 0.02)


def note(world: World, draft: Draft, input_tokens: int = 0) -> None:
    world.journal.on_start(draft, draft)
    world.journal.on_end(ended(draft, input_tokens))


def dropped(metrics: Metrics, reason: str) -> float:
    return metrics.registry.get_sample_value("kimi_proxy_journal_dropped_total", {"reason": reason}) or 0


async def test_a_request_is_announced_with_an_estimate_and_concluded_with_the_count(tmp_path: Path):
    draft = a_draft()
    async with noting(tmp_path) as world:
        world.journal.on_start(draft, draft)
        await until(lambda: "metric" in world.names)
        world.journal.on_end(ended(draft, 500))
        await world.journal.caught_up()

        assert world.names == ["session_created", "metric", "memory_metrics_update", "metric_updated"]
        first, last = world.said("metric")[0]["metric"], world.said("metric_updated")[0]["metric"]
        assert isinstance(first, Mapping)
        assert isinstance(last, Mapping)
        assert first["id"] == last["id"]
        assert (first["outcome"], first["counted_by"], first["tokens"]) == ("running", "estimate", 5)
        assert (last["outcome"], last["counted_by"], last["tokens"], last["percent"]) == ("ok", "provider", 500, 50.0)
        assert last["cost_usd"] == 0.000505
        assert first["reasons"] == ("nothing_to_do",)
        assert await world.written() == [last["id"]]


async def test_a_session_is_created_once_also_across_restarts(tmp_path: Path):
    async with noting(tmp_path) as world:
        note(world, a_draft())
        note(world, a_draft())
        await world.journal.caught_up()
        assert world.names.count("session_created") == 1
    async with noting(tmp_path) as world:
        note(world, a_draft())
        note(world, a_draft("something else"))
        await world.journal.caught_up()
        assert world.names.count("session_created") == 1
        assert len(await world.store.sessions.newest(LOCAL, 10)) == 2
        assert len(await world.written()) == 4


async def test_a_new_session_gets_a_title_and_its_folder_and_keeps_what_a_person_calls_it(tmp_path: Path):
    draft = a_draft("Working directory: /work/shop\nwith sk-ant-api03-0123456789abcdef")
    async with noting(tmp_path) as world:
        note(world, draft)
        await world.journal.caught_up()
        (session,) = await world.store.sessions.newest(LOCAL, 10)
        assert (session.title, session.directory) == ("Working directory: /work/shop with •••", "/work/shop")
        await world.store.sessions.rename(LOCAL, session.id, "mine")
    async with noting(tmp_path) as world:
        note(world, draft)
        await world.journal.caught_up()
        (session,) = await world.store.sessions.newest(LOCAL, 10)
        assert session.title == "mine"


async def test_what_a_stage_saved_is_estimated_from_both_requests(tmp_path: Path):
    came, leaves = a_draft(a_log(200)), a_draft(a_log(20))
    leaves = replace(leaves, notes=(Note("sanitizer_event", {"outputs": 1}),), reasons=("nothing_to_cut",))
    async with noting(tmp_path) as world:
        world.journal.on_start(came, leaves)
        world.journal.on_end(ended(leaves))
        await world.journal.caught_up()

        (metric,) = (metric for _, metric in await world.store.sessions.metrics(LOCAL, None, 0, 10))
        assert metric.tokens_saved == tokens.count(a_log(200)) - tokens.count(a_log(20))
        assert metric.reasons == ()
        assert world.said("sanitizer_event") == [{"session_id": metric.session, "request_id": metric.id, "outputs": 1}]


async def test_a_request_that_nothing_was_saved_of_says_why(tmp_path: Path):
    draft = replace(a_draft(), reasons=("below_threshold", "nothing_to_cut"))
    async with noting(tmp_path) as world:
        note(world, draft)
        await world.journal.caught_up()
        (metric,) = (metric for _, metric in await world.store.sessions.metrics(LOCAL, None, 0, 10))
    assert (metric.tokens_saved, metric.reasons) == (0, ("below_threshold", "nothing_to_cut"))


async def test_that_a_client_refused_to_read_back_stands_beside_what_earlier_cuts_save(tmp_path: Path):
    came, leaves = a_draft(a_log(200)), replace(a_draft(a_log(20)), reasons=("recall_refused", "nothing_to_cut"))
    async with noting(tmp_path) as world:
        world.journal.on_start(came, leaves)
        world.journal.on_end(ended(leaves))
        await world.journal.caught_up()
        (metric,) = (metric for _, metric in await world.store.sessions.metrics(LOCAL, None, 0, 10))

    assert metric.tokens_saved > 0 and metric.reasons == ("recall_refused",)


async def test_an_alert_comes_once_for_each_level_and_again_after_the_window_was_emptied(tmp_path: Path):
    draft = a_draft()
    async with noting(tmp_path) as world:
        for counted in (700, 805, 810, 905, 999, 960, 300, 950):
            note(world, draft, counted)
        await world.journal.caught_up()
    alerts = [(alert["level"], alert["tokens"]) for alert in world.said("context_alert")]
    assert alerts == [("caution", 805), ("warning", 905), ("critical", 999), ("critical", 950)]


async def test_an_estimate_between_two_counts_is_no_way_back(tmp_path: Path):
    draft = a_draft()
    async with noting(tmp_path) as world:
        for counted in (850, 0, 850, 0, 860):
            note(world, draft, counted)
        await world.journal.caught_up()
    assert [alert["tokens"] for alert in world.said("context_alert")] == [850]


async def test_estimates_alone_raise_an_alert_too(tmp_path: Path):
    draft = a_draft("word " * 900)
    async with noting(tmp_path) as world:
        note(world, draft)
        await world.journal.caught_up()
    assert [(a["level"], a["counted_by"]) for a in world.said("context_alert")] == [("warning", "estimate")]


async def test_an_unknown_window_has_no_share_and_no_alert(tmp_path: Path):
    draft = a_draft(model="stranger")
    async with noting(tmp_path) as world:
        note(world, draft, 10**6)
        await world.journal.caught_up()
        (metric,) = (metric for _, metric in await world.store.sessions.metrics(LOCAL, None, 0, 10))
    assert (metric.percent, metric.cost_usd, metric.input_tokens) == (None, None, 10**6)
    assert "context_alert" not in world.names


async def test_requests_of_two_conversations_that_interleave_stay_apart(tmp_path: Path):
    one, other = a_draft("fix the parser"), a_draft("write the docs")
    async with noting(tmp_path) as world:
        for _ in range(5):
            begun = [replace(draft, id=new_id("req")) for draft in (one, other)]
            for draft in begun:
                world.journal.on_start(draft, draft)
            for draft in reversed(begun):
                world.journal.on_end(ended(draft, 10 if draft.session == one.session else 20))
        await world.journal.caught_up()
        sums = {session.id: session.input_tokens for session in await world.store.sessions.newest(LOCAL, 10)}
    assert sums == {one.session.id: 50, other.session.id: 100}


async def test_a_session_that_somebody_deletes_while_it_talks_begins_again(tmp_path: Path):
    draft = a_draft()
    async with noting(tmp_path) as world:
        world.journal.on_start(draft, draft)
        await world.journal.caught_up()
        await world.store.sessions.delete(LOCAL, [draft.session.id])
        world.journal.forget(LOCAL, draft.session.id)
        world.journal.on_end(ended(draft, 10))
        await world.journal.caught_up()
        assert world.names.count("session_created") == 2
        assert [session.requests for session in await world.store.sessions.newest(LOCAL, 10)] == [1]


async def test_what_cannot_be_written_waits_for_the_disk_to_heal(tmp_path: Path):
    home = tmp_path / "home"
    home.write_text("in the way")
    async with noting(home) as world:
        note(world, a_draft(), 10)
        await until(lambda: "metric_updated" in world.names)
        assert "session_created" in world.names  # whoever watches is told all the same
        home.unlink()
        await world.journal.flush()
        assert len(await world.written()) == 1


async def test_notes_are_written_without_a_reader_and_again_after_a_pause(tmp_path: Path):
    async with noting(tmp_path) as world, asyncio.timeout(60):
        for requests in (1, 2):
            note(world, a_draft(), 10)
            while len(await world.written()) < requests:  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.05)


async def test_a_disk_that_never_heals_costs_the_oldest_notes_and_no_memory(tmp_path: Path):
    home, metrics = tmp_path / "home", Metrics()
    home.write_text("in the way")
    async with opened(home) as store:
        queue = WriteQueue(store.sessions, metrics)
        for noted in range(journals.MAX_UNWRITTEN + 25):
            queue.add(a_metric(id=f"req_{noted}"))
        with pytest.raises(StoreUnavailable):
            await queue.flush()
        await queue.close()
    assert [dropped(metrics, reason) for reason in ("disk", "stopped")] == [25, journals.MAX_UNWRITTEN]


async def test_too_many_requests_at_once_are_dropped_and_counted_and_nobody_waits(tmp_path: Path):
    draft = a_draft()
    async with noting(tmp_path) as world:
        for _ in range(journals.MAX_QUEUED + 10):
            world.journal.on_start(draft, draft)
        assert world.dropped("busy") == 10
        await until(lambda: world.names.count("metric") == journals.MAX_QUEUED, within_s=60)
        note(world, draft)
        await world.journal.caught_up()
        assert len(await world.written()) == 1


async def test_large_requests_do_not_pile_up_in_memory_and_are_judged_by_their_length_instead(tmp_path: Path):
    draft = a_draft("word " * (journals.MAX_QUEUED_BYTES // 20))
    size = len(draft.request.body)
    assert 2 * size < journals.MAX_QUEUED_BYTES < 4 * size
    async with noting(tmp_path) as world:
        for _ in range(5):
            note(world, draft)
        await until(lambda: world.concluded == 5, within_s=60)
        await world.journal.caught_up()
        estimates = [metric.tokens_estimated for _, metric in await world.store.sessions.metrics(LOCAL, None, 0, 10)]
    assert estimates[1:] == [size // journals.BYTES_PER_TOKEN] * 4
    assert estimates[0] != estimates[1]
    assert world.dropped("busy") == 0


async def test_a_note_that_fails_is_counted_and_the_next_one_is_taken(tmp_path: Path):
    def count(text: str) -> int:
        if text == "poison":
            raise ZeroDivisionError
        return 1

    async with noting(tmp_path, counting=TokenCounter(count)) as world:
        note(world, a_draft("poison"))
        note(world, a_draft("bread"))
        await world.journal.caught_up()
        assert world.dropped("fault") == 1
        assert len(await world.written()) == 1


async def test_closing_writes_what_waits(tmp_path: Path):
    async with noting(tmp_path) as world:
        for _ in range(30):
            note(world, a_draft(), 10)
    async with opened(tmp_path) as store:
        assert len(await store.sessions.metrics(LOCAL, None, 0, 100)) == 30


async def test_what_a_killed_process_had_sent_is_in_the_account_of_the_next_one(tmp_path: Path):
    """Its cost was lost: only the end of an answer wrote it down."""
    clock, draft = Clock(1_800_000_000.0), replace(a_draft("word " * 100_000), id="req_killed")
    async with opened(tmp_path, timeout_s=60) as store:

        def journal() -> Journal:
            models, counter = Models({}, MODELS), TokenCounter(len)
            return Journal(store.sessions, models, counter, Metrics(), now=clock, open_requests=store.usage_by_day)

        others = asyncio.all_tasks()
        killed = journal()
        killed.on_start(draft, draft)
        await killed.flush()
        for task in asyncio.all_tasks() - others:
            task.cancel()
        survivor = journal()
        clock.at += LEASE_S / 2
        await survivor.flush()
        assert await store.usage_by_day.usage("2027-01-01") == []
        clock.at += LEASE_S
        await survivor.flush()
        ((_, lost),) = await store.usage_by_day.usage("2027-01-01")
        await survivor.close()

    assert (lost.requests, lost.input_tokens) == (1, len(draft.request.body) // 4)
    assert lost.cost_usd > 0
