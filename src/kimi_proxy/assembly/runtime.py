"""Everything alive, built in one function and ended in the reverse order."""

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from kimi_proxy.api.addon import Given
from kimi_proxy.assembly import addons
from kimi_proxy.assembly.addons import AddonFiles, AddonForms
from kimi_proxy.assembly.store import open_store
from kimi_proxy.assembly.tools import pruner_tools
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat.messages import RememberedMessages
from kimi_proxy.core.config import Config
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.markers import Entropy
from kimi_proxy.features.chat.compression import Preset, presets
from kimi_proxy.features.chat.pipeline import Stage
from kimi_proxy.features.metering import no_newer_count
from kimi_proxy.features.models import Models
from kimi_proxy.features.pruning.goal import forget_words
from kimi_proxy.features.tool import AnyTool
from kimi_proxy.proxy.local_server import local_url
from kimi_proxy.services.chat.compression import AutoCompression, Compressor, SessionCompressions, works_of
from kimi_proxy.services.chat.context import LatestRequests, Reinjection, TokenCounter
from kimi_proxy.services.chat.decisions import ChatDecisions
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.handler import Chat
from kimi_proxy.services.chat.lineage import Lineage
from kimi_proxy.services.chat.memory import Memories, ProjectMemory
from kimi_proxy.services.chat.messages import Messages
from kimi_proxy.services.chat.models import ModelWindows, Routing, count_ratio
from kimi_proxy.services.chat.newest_requests import NewestRequests
from kimi_proxy.services.chat.notes import Notes
from kimi_proxy.services.chat.observation import Observation
from kimi_proxy.services.chat.observers import ChatObserver
from kimi_proxy.services.chat.prompt_cache import CacheMarks, PromptCaches, ThinkingClearer, last_request_in
from kimi_proxy.services.chat.providers import LazyUpstreams, RateLimiter, TranslatingClient
from kimi_proxy.services.chat.recall import Recall
from kimi_proxy.services.chat.rescue import Rescue
from kimi_proxy.services.chat.sanitizer import Sanitizer
from kimi_proxy.services.chat.session_lookup import (
    Conversations,
    RememberedSessions,
    SessionNames,
    SessionsByAnswer,
    SessionsByResponse,
)
from kimi_proxy.services.chat.summaries import Summaries
from kimi_proxy.services.cuts import Cuts
from kimi_proxy.services.events import Hub, HubEvent
from kimi_proxy.services.gateway import Gateway
from kimi_proxy.services.gateway.supervisor import Supervisor
from kimi_proxy.services.journal import DELETED, Journal
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.pruner import Pruner, reranker
from kimi_proxy.services.recover import Recovery
from kimi_proxy.services.remembered import Memory
from kimi_proxy.services.sessions import Forget, Sessions
from kimi_proxy.services.settings import OBSERVE, LiveSettings, ObserveMode, Switchable
from kimi_proxy.services.store.protocols import Replicas, Store, StoredEvent
from kimi_proxy.services.tools.agent import agent_tools
from kimi_proxy.services.workers.pool import Workers

if TYPE_CHECKING:
    from kimi_proxy.team.calls import ReplicaCalls
    from kimi_proxy.team.erasures import Erasures
    from kimi_proxy.team.team import Team

ANSWER_S = 30.0
REMEMBER_S = 60.0  # decisions that were read within this time are not read again


@dataclass(frozen=True, slots=True)
class Runtime:
    config: Config
    store: Store
    pruner: Pruner
    tools: Mapping[str, AnyTool]  # by name, and by every alias
    metrics: Metrics
    recovery: Recovery
    gateway: Gateway
    supervisor: Supervisor  # of the MCP servers that we run; it rests until it is started
    hub: Hub
    agent_tools: Mapping[str, AnyTool]  # read, grep and bash
    cuts: Cuts
    settings: LiveSettings
    chat: Chat
    sanitizer: Sanitizer
    sessions: Sessions
    latest_requests: LatestRequests
    compressions: SessionCompressions
    project_memory: ProjectMemory
    messages: Messages  # that other gateways hand over
    model_windows: ModelWindows
    given: Given  # to the addons
    team: "Team | None" = None  # that shares this server


@dataclass(frozen=True, slots=True)
class ChatStages:
    """Everything that may change a chat request."""

    lineage: Lineage
    memory: ProjectMemory
    caches: PromptCaches
    sanitizer: Sanitizer
    thinking: ThinkingClearer
    compressor: Compressor
    automatic: AutoCompression
    rescue: Rescue
    added: Sequence[Stage]  # of addons
    marks: CacheMarks
    reinjection: Reinjection
    routing: Routing
    mode: ObserveMode

    @property
    def in_order(self) -> tuple[Stage, ...]:
        return (
            self.lineage.recognize,
            self.memory.change,
            self.sanitizer.change,
            self.thinking.change,
            self.compressor.change,
            # Whether instructions are buried depends on the window of the model that gets the request.
            # Repeated instructions are not in the next request, so no cache mark may follow them.
            self.automatic.change,
            self.rescue.change,
            *self.added,
            self.routing.change,
            self.marks.change,
            self.reinjection.change,
        )

    @property
    def repeating(self) -> tuple[Stage, ...]:
        """Return those that repeat what earlier requests of a conversation were sent with, and may do no more."""
        return (
            self.lineage.recognize,
            self.sanitizer.change,
            self.thinking.change,
            self.compressor.change,
            *self.added,
        )

    @property
    def switches(self) -> Mapping[str, Switchable]:
        """Return those that can be switched while they run, by their names in the file."""
        return {
            "sanitizer.enabled": self.sanitizer,
            OBSERVE: self.mode,
            "sanitizer.routing.heavy_duty_fallback": self.routing,
            "memory.inject": self.memory,
            "reinjection.enabled": self.reinjection,
            "compression.automatic": self.automatic,
            "compression.rescue": self.rescue,
        }


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts that most services are built from; `alive` ends them."""

    alive: AsyncExitStack
    config: Config
    store: Store
    hub: Hub
    metrics: Metrics
    workers: Workers
    counter: TokenCounter
    models: Models
    now: Callable[[], float]
    draw: Entropy
    memory: Memory
    notes: Notes
    is_erased: Callable[[str], bool]  # whether the data of the person of an id was erased

    @property
    def is_shared(self) -> bool:
        """Return whether other servers have the same store."""
        return self.store.replicas is not None

    def end(self, it: "Closable") -> "Closable":
        """Return `it`, which is closed at the end."""
        return _close_at_end(self.alive, it)


@dataclass(frozen=True, slots=True)
class _Conversations:
    """The facts that are remembered about conversations."""

    names: SessionNames
    decisions: ChatDecisions
    facts: ChatFacts
    by_response: SessionsByResponse
    by_answers: Conversations
    by_answer: SessionsByAnswer
    messages: RememberedMessages

    @property
    def finder(self) -> RememberedSessions:
        return RememberedSessions(self.names, self.by_answers, self.by_response)


@dataclass(frozen=True, slots=True)
class _Providers:
    client: TranslatingClient
    rate_limiter: RateLimiter


@dataclass(frozen=True, slots=True)
class _Observers:
    """The observers of chat requests, in order; some of them depend on others."""

    journal: Journal
    latest: LatestRequests
    model_windows: ModelWindows
    in_order: tuple[ChatObserver, ...]


@asynccontextmanager
async def running(
    config: Config,
    hub: Hub | None = None,
    observers: Sequence[ChatObserver] = (),  # in addition to our own
    thread_max_chars: int = 0,
    now: Callable[[], float] = time.time,
    env: Mapping[str, str] = os.environ,  # of the programs that we start, and which secrets there are
    draw: Entropy = secrets.token_bytes,  # what the ids of cuts are made of
) -> AsyncIterator[Runtime]:
    """Start everything but the servers, and end it in the reverse order.

    Texts of up to `thread_max_chars` are pruned in this process, for a command that ends before a worker would start.
    """
    memory = Memory()
    metrics = Metrics()
    hub = hub or Hub()
    models = Models.of(config)
    counter = TokenCounter(memory=memory)
    async with AsyncExitStack() as alive:
        store = _close_at_end(alive, await open_store(config))
        team = None
        if config.team.enabled:
            from kimi_proxy.team.team import Team

            made = Team(config, store, AddonFiles(config), hub.publish, count_budget=metrics.count_budget)
            team = _close_at_end(alive, made)
        workers = _close_at_end(alive, Workers(thread_max_chars=thread_max_chars))
        alive.callback(counter.close)
        is_erased = team.erasures.covers if team else lambda person_id: False
        parts = _Parts(
            alive=alive,
            config=config,
            store=store,
            hub=hub,
            metrics=metrics,
            workers=workers,
            counter=counter,
            models=models,
            now=now,
            draw=draw,
            memory=memory,
            notes=Notes(store.facts, remember_s(config), is_shared=store.replicas is not None, memory=memory),
            is_erased=is_erased,
        )
        mode = ObserveMode(config.sanitizer.mode == "observe")
        pruner = _pruner(parts)
        recovery = Recovery(store.originals, metrics)
        gateway = parts.end(Gateway(config, store.originals, pruner, metrics, env=env, publish=hub.publish, mode=mode))
        supervisor = parts.end(Supervisor(gateway))

        known = await _conversations(parts, team)
        providers = await _providers(parts)
        summaries = Summaries(providers.client, providers.rate_limiter, metrics, config.compression.summary_timeout_s)
        newest = NewestRequests(store.sessions, now, memory)
        forgetters: list[Forget] = []
        given = _given(parts, known, mode, env, forgetters)
        built = [addon.build(given) for addon in addons.switched_on(config) if addon.build]
        added_stages = [each.stage for each in built if each.stage]
        stages = _stages(parts, known, summaries, mode, (*added_stages, *await addons.late_stages(given)), newest)
        await _look(parts, known, stages)
        added = [observer for each in built for observer in each.observers]
        seen_by = _observers(parts, known, providers, stages, (*added, *observers))
        newer_count = next((each.newer_count for each in built if each.newer_count), no_newer_count)

        cuts = Cuts(store.originals, store.decisions, pruner, recovery)
        forgetters += _forgetters(parts, known, stages, seen_by)
        forgetters += [pruner.forget, gateway.forget, cuts.forget]
        sessions = Sessions(
            store,
            known.names,
            seen_by.journal,
            forgetters,
            now,
            newer_count=newer_count,
            display=config.display,
        )
        publish = team.audit.publishing(hub.publish) if team else hub.publish
        settings = LiveSettings(config, stages.switches, env, publish, lists=given.lists)
        both = presets(config.compression, config.compaction)
        calls = None
        if store.replicas is not None:
            calls = parts.end(_calls(config, store, store.replicas, stages.compressor, both))
        ask_elsewhere = calls.ask if calls else None
        compressions = SessionCompressions(stages.compressor, sessions, store.sessions, *both, elsewhere=ask_elsewhere)
        if store.replicas is not None and calls is not None:
            await alive.enter_async_context(_following(store.replicas, hub, sessions, settings, calls))
        if team:
            await alive.enter_async_context(_forgetting(team.erasures, sessions))
        yield Runtime(
            config=config,
            store=store,
            pruner=pruner,
            tools=pruner_tools(pruner, recovery),
            metrics=metrics,
            recovery=recovery,
            gateway=gateway,
            supervisor=supervisor,
            hub=hub,
            agent_tools=await alive.enter_async_context(agent_tools(config, store.originals, pruner, env)),
            cuts=cuts,
            settings=settings,
            chat=Chat(
                config,
                providers.client,
                metrics,
                stages.in_order,
                seen_by.in_order,
                Recall(recovery, known.facts, config.sanitizer.recover_rounds),
                providers.rate_limiter,
                models,
                sessions=known.finder,
                budgets=team.budgets if team else None,
                shared_keys=team.shared_keys if team else None,
                repeating=stages.repeating,
                memory=memory,
                observation=Observation(mode, stages.in_order, metrics.count_fault, stages.caches, newest, now, memory),
                remembered=known.messages,
            ),
            sanitizer=stages.sanitizer,
            sessions=sessions,
            latest_requests=seen_by.latest,
            compressions=compressions,
            project_memory=stages.memory,
            messages=_messages(parts, known, stages, recovery),
            model_windows=seen_by.model_windows,
            given=given,
            team=team,
        )


def _pruner(parts: _Parts) -> Pruner:
    rerank = reranker(parts.config)
    if rerank is not None:
        parts.end(rerank)
    originals = parts.store.originals
    publish = parts.hub.publish
    return Pruner(parts.config.mcp_pruner, originals, parts.workers, rerank, parts.metrics, publish=publish)


def remember_s(config: Config) -> float:
    """How long what was read is not read again."""
    return min(REMEMBER_S, config.mcp_pruner.prune_id_ttl_s / 10)


async def _conversations(parts: _Parts, team: "Team | None") -> _Conversations:
    store = parts.store
    is_shared = parts.is_shared
    names = SessionNames(store.sessions, parts.memory)
    if team:
        await names.read_secret()
    by_answer = parts.end(SessionsByAnswer(store.facts, is_shared, parts.memory))
    return _Conversations(
        names,
        parts.end(
            ChatDecisions(
                store.originals, store.decisions, remember_s(parts.config), is_shared=is_shared, memory=parts.memory
            )
        ),
        parts.end(ChatFacts(parts.notes)),
        SessionsByResponse(by_answer, is_shared),
        Conversations(by_answer, parts.memory),
        by_answer,
        RememberedMessages(),
    )


async def _providers(parts: _Parts) -> _Providers:
    config = parts.config
    store = parts.store
    upstreams = parts.end(LazyUpstreams(config))
    if any(provider.enabled for provider in config.providers.values()):
        await upstreams.open()
    client = TranslatingClient(upstreams, config.providers, upstreams.model_list, AddonForms(config.providers))
    return _Providers(client, RateLimiter(config.providers, replicas=store.replicas))


def _observers(
    parts: _Parts, known: _Conversations, providers: _Providers, stages: ChatStages, more: Sequence[ChatObserver]
) -> _Observers:
    store = parts.store
    models = parts.models
    publish = parts.hub.publish
    now = parts.now
    journal = parts.end(Journal(store.sessions, models, parts.counter, parts.metrics, publish, now, store.usage_by_day))
    latest = LatestRequests(parts.counter, models, memory=parts.memory)
    model_windows = parts.end(ModelWindows(models, providers.client.model_list, publish, parts.memory))
    own = journal, stages.caches, latest, known.by_response, known.by_answers, model_windows
    return _Observers(journal, latest, model_windows, (*own, *more))


def _given(
    parts: _Parts, known: _Conversations, mode: ObserveMode, env: Mapping[str, str], forgetters: list[Forget]
) -> Given:
    return Given(
        alive=parts.alive,
        config=parts.config,
        env=env,
        store=parts.store,
        models=parts.models,
        names=known.names,
        facts=known.facts,
        workers=parts.workers,
        metrics=parts.metrics,
        mode=mode,
        publish=parts.hub.publish,
        memory=parts.memory,
        now=parts.now,
        lists=addons.lists_of(parts.config),
        is_erased=parts.is_erased,
        forgetters=forgetters,
    )


def _forgetters(parts: _Parts, known: _Conversations, stages: ChatStages, seen_by: _Observers) -> list[Forget]:
    """Return what makes the chat path forget a session that is deleted, or all of a person's."""
    config = parts.config
    forgetters: list[Forget] = [
        parts.memory.forget,
        also_observed(stages.lineage.forget),
        lambda who, session: known.messages.forget(),
        parts.counter.forget,
    ]
    forgetters += [observer.forget for observer in seen_by.in_order if observer is not seen_by.journal]
    forgetters += [AddonFiles(config).forget, parts.hub.forget, lambda who, session: forget_words()]
    return forgetters


def also_observed(forget: Forget) -> Forget:
    def forget_both(who: Caller, session: str | None) -> None:
        forget(who, session)
        forget(who.observed, session)

    return forget_both


def _messages(parts: _Parts, known: _Conversations, stages: ChatStages, recovery: Recovery) -> Messages:
    shortening = (stages.lineage.recognize, stages.sanitizer.change)
    on_fault = parts.metrics.count_fault
    return Messages(shortening, known.names.session_of, recovery, known.facts, on_fault, mode=stages.mode)


def _stages(
    parts: _Parts,
    known: _Conversations,
    summaries: Summaries,
    mode: ObserveMode,
    added: Sequence[Stage],
    newest: NewestRequests,
) -> ChatStages:
    config = parts.config
    store = parts.store
    models = parts.models
    counter = parts.counter
    usual, _ = presets(config.compression, config.compaction)
    address = local_url(config.proxy.host, config.proxy.port)  # where people find the proxy
    facts = known.facts
    workers = parts.workers
    metrics = parts.metrics
    compressor = Compressor(
        models,
        counter,
        store.originals,
        store.decisions,
        summaries,
        config.sanitizer.recover_tool,
        parts.hub.publish,
        parts.now,
        draw=parts.draw,
        pending_results=facts.pending_results,
        is_shared=parts.is_shared,
        memory=parts.memory,
    )
    caches = PromptCaches(
        last_request_in(newest),
        parts.now,
        replicas=store.replicas,
        rules=models.cache_rules,
        settings=config.cache,
        memory=parts.memory,
    )
    routing = Routing(config.sanitizer.routing, models, counter, parts.notes, store.sessions, parts.memory)
    memory = parts.end(ProjectMemory(_memories(parts), config.memory, parts.notes, store.sessions, memory=parts.memory))
    sanitizer = Sanitizer(
        config.sanitizer,
        address,
        known.decisions,
        facts,
        workers,
        metrics,
        caches,
        mode=mode,
        draw=parts.draw,
        window_of=models.window,
        memory=parts.memory,
    )
    heirs = (memory.inherit, sanitizer.inherit, facts.inherit, compressor.inherit)
    return ChatStages(
        lineage=parts.end(
            Lineage(parts.notes, heirs, metrics, (facts.wanted, memory.wanted, routing.wanted), parts.memory)
        ),
        memory=memory,
        caches=caches,
        sanitizer=sanitizer,
        thinking=ThinkingClearer(config.cache.clear_thinking, facts),
        compressor=compressor,
        automatic=AutoCompression(config.compression, usual, compressor, store.sessions, parts.now, parts.memory),
        rescue=Rescue(config.compression, usual, compressor, routing.largest_window, store.sessions),
        added=added,
        marks=CacheMarks(config.cache),
        reinjection=Reinjection(config.reinjection, models, counter, partial(count_ratio, store.sessions)),
        routing=routing,
        mode=mode,
    )


async def _look(parts: _Parts, known: _Conversations, stages: ChatStages) -> None:
    """Read what would otherwise keep the first request waiting; people of a team are looked up when they come."""
    if parts.config.team.enabled or parts.is_shared:
        return
    with suppress(StoreUnavailable):
        await known.by_answer.look(LOCAL)
        await stages.compressor.look(LOCAL)
        await stages.memory.look()


def _memories(parts: _Parts) -> Memories:
    return Memories(parts.store.project_memory, parts.config.home, parts.config.memory.max_bytes)


def _calls(
    config: Config, store: Store, replicas: Replicas, compressor: Compressor, both: Sequence[Preset | None]
) -> "ReplicaCalls":
    """Return the calls between servers: only one of them has the messages of a session that is to be compressed."""
    from kimi_proxy.team.calls import ReplicaCalls

    # The summary also needs counting and the database.
    answer_s = config.compression.summary_timeout_s + ANSWER_S
    return ReplicaCalls(replicas, store.facts, works_of(compressor, both), compressor.has_seen, answer_s)


@asynccontextmanager
async def _following(
    replicas: Replicas, hub: Hub, sessions: Sessions, settings: LiveSettings, calls: "ReplicaCalls"
) -> AsyncIterator[None]:
    """Show what happens on other servers, and do what people did there, as long as the block runs."""

    def receive(event: StoredEvent) -> None:
        if calls.receive(event):
            return
        hub.show(event.scope, event.name, event.at, event.fields)
        sessions.follow(Caller(event.scope, is_admin=False), event.name, event.fields)
        settings.follow(event.name, event.fields)

    hub.share(lambda event: replicas.publish(_stored(event)))
    async with _beside(replicas.follow(receive)):
        yield


def _stored(event: HubEvent) -> StoredEvent:
    return StoredEvent(event.name, event.at, dict(event.fields), event.scope, event.person_id)


@asynccontextmanager
async def _forgetting(erasures: "Erasures", sessions: Sessions) -> AsyncIterator[None]:
    """Forget what is remembered of people whose data was erased, as long as the block runs."""

    def forget(who: Caller) -> None:
        sessions.follow(who, DELETED, {"session_id": None})

    async with _beside(erasures.follow(forget)):
        yield


@asynccontextmanager
async def _beside(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Let something that does not end by itself run as long as the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


class _Closable(Protocol):
    async def close(self) -> None: ...


Closable = TypeVar("Closable", bound=_Closable)


def _close_at_end(alive: AsyncExitStack, it: Closable) -> Closable:
    """Return `it`, which is closed at the end."""
    alive.push_async_callback(it.close)
    return it
