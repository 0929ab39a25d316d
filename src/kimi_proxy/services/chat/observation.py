"""Requests that are only observed: they leave unchanged, and the stages say what they would have done with them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.chat.pipeline import Draft, OnFault, Stage, run_stages
from kimi_proxy.services.chat.newest_requests import NewestRequests
from kimi_proxy.services.chat.prompt_cache import PromptCaches
from kimi_proxy.services.remembered import Memory, Remembered, with_session
from kimi_proxy.services.settings import ObserveMode

MAX_SESSIONS = 10_000
DISK_S = 0.25
LIFE_S, MARGIN_S = 300.0, 30.0  # of a prompt cache with unknown state, and the margin added to every lifetime

ScopedSession = tuple[str, str]


class Observation:
    """The requests that are only observed, and how they would have been changed."""

    def __init__(
        self,
        mode: ObserveMode,
        stages: Sequence[Stage],
        on_fault: OnFault,
        caches: PromptCaches,
        newest: NewestRequests,
        now: Callable[[], float],
        memory: Memory | None = None,
    ) -> None:
        self._mode = mode
        self._stages = stages
        self._on_fault = on_fault
        self._caches = caches
        self._newest = newest
        self._now = now
        # True: observed when last seen.
        self._sessions: Remembered[ScopedSession, bool] = Remembered(
            memory or Memory(), "observed sessions", size=MAX_SESSIONS, forget=with_session
        )

    async def covers(self, draft: Draft) -> bool:
        """Return whether a request is only observed.

        An observed conversation stays so after the switch until its prompt cache is cold: cached text does not change.
        """
        place = draft.caller.scope, draft.session.id
        if self._mode.is_on:
            self._sessions.put(place, True)
            return True
        was_observed = self._sessions.get(place)
        if was_observed is None:
            was_observed = await self._was_observed(draft)
        elif was_observed:
            was_observed = self._caches.is_warm(draft)
        self._sessions.put(place, was_observed)
        return was_observed

    async def _was_observed(self, draft: Draft) -> bool:
        """Return whether an earlier process observed a conversation that is still in the prompt cache."""
        if not any(message.role == "assistant" for message in draft.request.messages):
            return False
        try:
            async with asyncio.timeout(DISK_S):
                last = await self._newest.read(draft.caller, draft.session.id)
        except (StoreUnavailable, TimeoutError):
            return False
        if last is None or last.noted_at is None or not last.was_observed:
            return False
        return self._now() - last.noted_at < (last.cache_life_s or LIFE_S) + MARGIN_S

    async def decide(self, received: Draft, outgoing: Draft) -> Draft:
        """Return `outgoing` with the draft that would have been sent in its place.

        The same stages decide, for a caller of whom nothing is stored: their decisions are only remembered, so that
        later requests repeat them.
        """
        if received.is_attested or outgoing.cache is None:
            return outgoing
        watched = replace(received, caller=received.caller.observed, cache=outgoing.cache)
        would = await run_stages(watched, self._stages, self._on_fault)
        return replace(outgoing, would=would)
