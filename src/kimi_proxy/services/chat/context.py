"""The newest request of each session, as it came and as it left; in memory only, because people said it."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from kimi_proxy.core import tokens
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.chat import Request
from kimi_proxy.core.config.sections import ReinjectionSettings as Settings
from kimi_proxy.core.errors import InvalidParams, NothingSeen
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features import context_map
from kimi_proxy.features.context import (
    HEADING,
    TOO_LONG,
    Reminder,
    instructions,
    is_certainly_below,
    is_reminded,
    reinjected,
    sink,
)
from kimi_proxy.features.context_map import Pair
from kimi_proxy.features.metering import window_percent
from kimi_proxy.features.models import Models, Target
from kimi_proxy.features.pipeline import ActiveCompression, Draft, Stage, unchanged
from kimi_proxy.services.chat.counting import TokenCounter
from kimi_proxy.services.chat.relay import Exchange
from kimi_proxy.services.events import moment

DAY_S = 86_400
MAX_SESSIONS, MAX_BYTES = 1_000, 64 * 1024**2
MAX_CHARS = 200_000  # of a message that is looked at
MAX_MESSAGES = 5_000


@dataclass(frozen=True, slots=True)
class LatestRequest:
    at: float
    target: Target
    came: Request
    leaves: Request
    cut: ActiveCompression | None


class LatestRequests:
    def __init__(
        self, counting: TokenCounter, window: Callable[[Target], int | None], now: Callable[[], float] = time.time
    ) -> None:
        self._counting = counting
        self._window = window
        self._now = now
        self._seen: LruCache[str, LatestRequest] = LruCache(
            ttl_s=DAY_S, max_entries=MAX_SESSIONS, max_bytes=MAX_BYTES, now=now
        )

    def began(self, came: Draft, leaves: Draft) -> Callable[[Exchange], None]:
        # Only the bytes: what was read in them takes several times their room.
        before, after = (Request(draft.request.wire, draft.request.body) for draft in (came, leaves))
        weight = len(after.body) + (0 if before.body is after.body else len(before.body))
        self._seen.put(leaves.session.id, LatestRequest(self._now(), leaves.target, before, after, leaves.cut), weight)
        return _unheard

    def forget(self, session: str | None = None) -> None:
        if session is None:
            self._seen.clear()
        else:
            self._seen.forget(session)

    async def context(self, session: str) -> JsonObject:
        """The messages of the newest request, to scale."""
        seen = self._of(session)
        weighed, window = await self._counting.composition(seen.leaves), self._window(seen.target)
        pairs = self._pairs(seen)
        messages: list[JsonValue] = [context_map.told(pair, weighed, window) for pair in pairs[:MAX_MESSAGES]]
        return {
            "session_id": session,
            "at": moment(seen.at),
            "model": seen.target.key or seen.target.model,
            "max_context": window,
            "tokens": weighed.total,
            "percent": window_percent(weighed.total, window),
            "composition": {
                "system": weighed.system,
                "memory": weighed.memory,
                "tools": weighed.tools,
                "chat": weighed.chat,
            },
            "apart": {
                "system_tokens": weighed.apart.tokens,
                "tool_definitions_tokens": weighed.definitions,
                "buried": context_map.is_buried(weighed.apart, weighed, window),
            },
            "buried": sink(weighed, window).is_sunk,
            "messages": messages,
            "left_out": max(0, len(pairs) - MAX_MESSAGES),
            "summary_index": _summary(pairs).index if seen.cut else None,
            "gave_way": await self._gave_way(seen),
        }

    async def message(self, session: str, index: int) -> JsonObject:
        """What was sent in a place, and what it was."""
        pairs = self._pairs(self._of(session))
        if not 0 <= index < len(pairs):
            raise InvalidParams("index", f"the newest request has {len(pairs)} messages, counted from 0")
        pair = pairs[index]
        came = "\n\n".join(context_map.words(message) for message in pair.came)
        sent = context_map.words(pair.sent)
        return {
            "index": index,
            "role": pair.sent.role,
            "sent": sent[:MAX_CHARS],
            "came": came[:MAX_CHARS],
            "changed": pair.is_changed,
            "is_shortened": max(len(sent), len(came)) > MAX_CHARS,
        }

    async def gave_way(self, session: str, index: int) -> JsonObject:
        """A message that was not sent, and the summary that stands for it and its neighbours."""
        seen = self._of(session)
        message = context_map.gave_way(seen.came, seen.cut).get(index)
        if message is None:
            raise InvalidParams("index", "no message of the newest request that has this index gave way to a summary")
        summary = _summary(self._pairs(seen))
        came, sent = context_map.words(message), context_map.words(summary.sent)
        return {
            "index": index,
            "role": message.role,
            "came": came[:MAX_CHARS],
            "sent": sent[:MAX_CHARS],
            "summary_index": summary.index,
            "is_shortened": max(len(sent), len(came)) > MAX_CHARS,
        }

    async def _gave_way(self, seen: LatestRequest) -> list[JsonValue]:
        found = context_map.gave_way(seen.came, seen.cut)
        if not found:
            return []
        weighed = await self._counting.composition(seen.came)
        return [
            context_map.summarized_to_json(index, message, weighed)
            for index, message in islice(found.items(), MAX_MESSAGES)
        ]

    def _of(self, session: str) -> LatestRequest:
        seen = self._seen.get(session)
        if seen is None:
            raise NothingSeen(session)
        return seen

    def _pairs(self, seen: LatestRequest) -> list[Pair]:
        return context_map.pairs(seen.came, seen.leaves, seen.cut)


def _summary(pairs: Sequence[Pair]) -> Pair:
    """Of a request whose old messages gave way."""
    return next(pair for pair in pairs if pair.is_summary)


def _unheard(exchange: Exchange) -> None:
    """How it ended changes nothing of what was sent."""


COUNT_S = 1.0  # a request that is not weighed by then goes as it is


def _too_long(draft: Draft) -> Draft:
    return replace(draft, reasons=(*draft.reasons, TOO_LONG))


class Reinjection:
    def __init__(self, settings: Settings, models: Models, counting: TokenCounter) -> None:
        self.is_on = settings.enabled
        self._settings = settings
        self._models = models
        self._counting = counting

    async def stage(self, draft: Draft) -> Stage:
        window = self._models.window(draft.target)
        if not self.is_on or window is None:
            return unchanged
        if is_certainly_below(draft.request, window * self._settings.threshold):
            return unchanged
        async with asyncio.timeout(COUNT_S):
            found = sink(await self._counting.composition(draft.request), window, self._settings.threshold)
        words = instructions(draft.request) if found.is_sunk else ""
        if not words or is_reminded(draft.request):
            return unchanged
        if found.system_tokens > self._settings.max_tokens:
            return _too_long
        text = f"{HEADING}\n{words}"
        reminder = Reminder(text, tokens.count(text), found)
        return lambda draft: reinjected(draft, reminder)
