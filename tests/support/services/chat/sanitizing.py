"""A sanitizer over a real store, and conversations that pass it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.services.store.making import opened

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Request
from kimi_proxy.core.config.sections import SanitizerSettings as Settings
from kimi_proxy.features.chat.pipeline import Draft, run_stages
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target
from kimi_proxy.services.chat.decisions import ChatDecisions
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.notes import Notes
from kimi_proxy.services.chat.prompt_cache import LastRequest, PromptCaches, never
from kimi_proxy.services.chat.sanitizer import Sanitizer
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store.protocols import Decisions, FactStore, Originals
from kimi_proxy.services.store.sqlite.store import SqliteStore
from kimi_proxy.services.workers.pool import Workers

# Tests of the budget say how much there is; all others have time, however loaded the machine.
PATIENT = Settings(budget_ms=60_000, threshold_tokens=1000)


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, slots=True)
class World:
    sanitizer: Sanitizer
    store: SqliteStore
    metrics: Metrics
    decisions: ChatDecisions
    facts: ChatFacts

    async def send(self, request: Request, session: str = "s-1") -> Draft:
        """The draft as it would leave."""
        draft = Draft(request, Target("kimi", "kimi-k2"), Session(session), LOCAL)
        return await run_stages(draft, (self.sanitizer.change,), lambda step, error: None)


@asynccontextmanager
async def world(
    home: Path,
    settings: Settings = PATIENT,
    workers: Workers | None = None,
    originals: Originals | None = None,
    stored_decisions: Decisions | None = None,
    stored_facts: FactStore | None = None,
    clock: Clock | None = None,
    last_request: LastRequest = never,
) -> AsyncIterator[World]:
    # Everything in threads: a child per test would take longer than the tests.
    workers = workers or Workers(thread_max_chars=10**9)
    try:
        async with opened(home) as real:
            metrics = Metrics()
            decisions = ChatDecisions(originals or real.originals, stored_decisions or real.decisions)
            facts = ChatFacts(Notes(stored_facts or real.facts))
            caches = PromptCaches(last_request, now=clock or Clock())
            sanitizer = Sanitizer(settings, "http://127.0.0.1:8000", decisions, facts, workers, metrics, caches)
            try:
                yield World(sanitizer, real, metrics, decisions, facts)
            finally:
                await decisions.close()
                await facts.close()
    finally:
        await workers.close()
