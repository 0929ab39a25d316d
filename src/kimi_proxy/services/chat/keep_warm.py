"""Keeps the prompt caches of conversations warm while their users pause: opt-in, and bounded in number and money."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat.reply import ReplyReader, Usage
from kimi_proxy.core.config.sections import CacheSettings
from kimi_proxy.core.errors import KimiProxyError, StoreUnavailable
from kimi_proxy.core.markers import new_id
from kimi_proxy.features.accounting import MILLION, Prices, account_ping, prices_of
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.prompt_cache import HIT, KEPT_WARM, LEAST_TOKENS, due_in_s, ping_of, worthwhile_pings
from kimi_proxy.features.metering import PAID, Metric
from kimi_proxy.features.models import Models
from kimi_proxy.proxy.headers import UpstreamRequest, credential, value_of
from kimi_proxy.services.chat.handler import ChatObserver
from kimi_proxy.services.chat.prompt_cache import PromptCaches
from kimi_proxy.services.chat.providers import RateLimiter
from kimi_proxy.services.chat.relay import Exchange, ProviderClient
from kimi_proxy.services.journal import Journal
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store.protocols import SessionStore

MAX_HELD, HELD_BYTES = 200, 64 * 1024**2
MAX_SIGNS = 1_000
ANSWER_S = 60.0
LOCAL_ZONE: tzinfo | None = None  # in which days begin
RUN = b"x-kimi-proxy-run"  # the process of `kimi-proxy run` that runs the client
CALLING = frozenset({"tool_use", "tool_calls"})  # how an answer ends that waits for its tools

log = logging.getLogger(__name__)

Place = tuple[str, bytes]  # whose conversation, and which


@dataclass(frozen=True, slots=True)
class _HeldRequest:
    """The newest request of a conversation: it is in memory only, with its credential, until the last ping."""

    draft: Draft
    due: float
    pings_left: int
    tokens: int  # that the provider counted, in the request before while its answer runs
    is_waiting: bool = True  # for its answer, or for a tool


class SignsOfLife:
    """The time of each client's last call other than a request: from a hook or a status line, by session name."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._seen: LruCache[tuple[str, str], float] = LruCache(MAX_SIGNS)

    def note(self, who: Caller, session: str) -> None:
        if session:
            self._seen.put((who.scope, session), self._now())

    def is_alive(self, draft: Draft, within_s: float) -> bool:
        """Return whether a client is known to run: it is connected, has called lately, or its process exists."""
        seen = self._seen.get((draft.caller.scope, draft.session.name))
        has_called = seen is not None and self._now() - seen <= within_s
        return has_called or draft.is_connected() or _runs(draft)


def _runs(draft: Draft) -> bool:
    """Return whether the `kimi-proxy run` that a request names still runs; only on this machine can we know."""
    number = value_of(draft.headers, RUN)
    if draft.caller.scope != LOCAL.scope or not number.isdigit() or len(number) > 10:
        return False
    try:
        os.kill(int(number), 0)
    except (OSError, OverflowError):
        return False
    return int(number) > 1


class KeepWarm(ChatObserver):
    """Sends the newest request of a conversation again, for one token, shortly before its cache expires.

    A ping and the cut of old results are one decision: while we ping, the cache counts as warm and nothing in it
    changes; once we give up it expires, and the next request is cut as after any pause.
    """

    def __init__(
        self,
        settings: CacheSettings,
        client: ProviderClient,
        models: Models,
        caches: PromptCaches,
        signs: SignsOfLife,
        journal: Journal,
        sessions: SessionStore,
        rate_limiter: RateLimiter,
        metrics: Metrics,
        token: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._client = client
        self._models = models
        self._caches = caches
        self._signs = signs
        self._journal = journal
        self._sessions = sessions
        self._rate_limiter = rate_limiter
        self._metrics = metrics
        self._token = token
        self._now = now
        self._held: LruCache[Place, _HeldRequest] = LruCache(MAX_HELD, max_bytes=HELD_BYTES)
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()
        self._reserved_usd = 0.0  # for pings that are on their way
        self._working = asyncio.create_task(self._keep_pinging())

    @property
    def held_count(self) -> int:
        """Return how many requests are in memory."""
        return len(self._held.items())

    def on_start(self, received: Draft, outgoing: Draft) -> None:
        place = _place_of(outgoing)
        if place is None:
            return
        self._held.forget(place)
        if outgoing.is_observed:
            return  # while observing, no request of our own is sent
        moment = outgoing.cache
        pings = worthwhile_pings(moment.rules, self._settings.keep_warm_pings) if moment else 0
        if moment is None or not pings or not self._may_ping(outgoing):
            return
        # A ping does not need the results of the stages or the client's view.
        draft = replace(outgoing, received=None, uncompressed=None)
        held = _HeldRequest(draft, self._now() + due_in_s(moment.rules), pings, moment.tokens_before)
        self._held.put(place, held, len(draft.request.body))
        self._news.set()

    def on_end(self, exchange: Exchange) -> None:
        place = _place_of(exchange.draft)
        held = self._held.get(place) if place else None
        if place is None or held is None or held.draft.request is not exchange.draft.request:
            return
        usage = exchange.recalled.first or exchange.usage
        is_plan_s = bool(exchange.quota) and exchange.draft.target.provider not in self._settings.keep_warm_plans
        tokens = usage.input_tokens if usage else 0
        is_waiting = exchange.reply.finish in CALLING
        # If one conversation has ended while another of its session waits for a tool, the ended one is a sub-agent's.
        is_helper = not is_waiting and any(
            other.is_waiting and other.draft.session == held.draft.session and key != place
            for key, other in self._held.items()
        )
        if exchange.status != PAID or is_plan_s or tokens < LEAST_TOKENS or is_helper:
            self._held.forget(place)
            return
        held = replace(held, tokens=tokens, is_waiting=is_waiting)
        self._held.put(place, held, len(exchange.draft.request.body))

    def forget(self, who: Caller, session: str | None) -> None:
        """Forget the requests of a session that was deleted, or all of a person's."""
        for place, held in self._held.items():
            if place[0] == who.scope and session in (None, held.draft.session.id):
                self._held.forget(place)

    async def close(self) -> None:
        self._working.cancel()
        await asyncio.wait([self._working])
        self._held.forget_matching(lambda _: True)

    async def ping_due(self) -> float | None:
        """Send the pings that are due; return the seconds until the next one, None if there is none."""
        now = self._now()
        due = [(place, held) for place, held in self._held.items() if held.due <= now]
        await asyncio.gather(*(self._ping_or_forget(place, held) for place, held in due))
        left = [held.due for _, held in self._held.items()]
        return max(0.0, min(left) - self._now()) if left else None

    async def _keep_pinging(self) -> None:
        while True:
            self._news.clear()
            wait_s = await self.ping_due()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()

    def _may_ping(self, draft: Draft) -> bool:
        """Return whether pings are allowed for a request, by who pays for it and by who signed it."""
        provider = draft.target.provider
        if draft.is_attested or draft.upstream_wire not in (None, draft.request.wire):
            return False
        is_plan_s = self._models.is_paid_by_plan(provider, credential(draft.headers, self._token))
        if is_plan_s and provider not in self._settings.keep_warm_plans:
            return False
        return prices_of(self._models.model(draft.target)) is not None  # without a price there is no ceiling

    async def _ping_or_forget(self, place: Place, held: _HeldRequest) -> None:
        self._held.forget(place)
        rules = held.draft.cache.rules if held.draft.cache else None
        prices, ping = prices_of(self._models.model(held.draft.target)), ping_of(held.draft.request)
        if rules is None or prices is None or ping is None or held.tokens < LEAST_TOKENS:
            return
        if not self._signs.is_alive(held.draft, rules.life_s) or not (most := await self._reserve(held, prices)):
            return
        began = self._now()
        try:
            await self._rate_limiter.take(held.draft.target.provider)
            if not await self._caches.renew(held.draft.caller, place[1]):
                return
            async with asyncio.timeout(ANSWER_S):
                status, usage = await self._send(held.draft, ping.body)
            self._note(held, began, status, usage, prices)
        except (KimiProxyError, TimeoutError) as e:
            self._count(held, e.code if isinstance(e, KimiProxyError) else "timeout")
            return
        finally:
            self._reserved_usd -= most
        # The client may have sent a newer request in the meantime: keep that one.
        if _has_hit(held, status, usage) and held.pings_left > 1 and place not in self._held:
            again = replace(held, due=began + due_in_s(rules), pings_left=held.pings_left - 1)
            self._held.put(place, again, len(held.draft.request.body))

    async def _send(self, draft: Draft, body: bytes) -> tuple[int, Usage | None]:
        question = UpstreamRequest(draft.request.wire, body, draft.headers, caller=draft.caller)
        async with self._client.send(draft.target.provider, question) as reply:
            reader = ReplyReader(draft.request.wire, reply.media_type == "text/event-stream", reply.encoding)
            async for piece in reply.pieces():
                reader.feed(piece)
        return reply.status, reader.facts.usage

    async def _reserve(self, held: _HeldRequest, prices: Prices) -> float:
        """Return the maximum cost of a ping, that of a cache miss; 0 if the day's ceiling does not allow it."""
        is_long = held.draft.cache is not None and held.draft.cache.rules.is_long
        price = max(prices.input, prices.cache_write, prices.long_write if is_long else 0.0)
        most = (held.tokens * price + prices.output) / MILLION
        now = datetime.fromtimestamp(self._now(), LOCAL_ZONE)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
        async with self._turn:
            try:
                await self._journal.flush()
                spent = await self._sessions.keep_warm_usd(held.draft.caller, midnight)
            except StoreUnavailable:
                return 0.0
            if spent + self._reserved_usd + most > self._settings.keep_warm_usd_per_day:
                return 0.0
            self._reserved_usd += most
        return most

    def _note(self, held: _HeldRequest, began: float, status: int, usage: Usage | None, prices: Prices) -> None:
        draft = held.draft
        is_paid = status == PAID
        cost = prices.cost_usd(usage or Usage(held.tokens, 1)) if is_paid else 0.0
        self._count(held, "hit" if _has_hit(held, status, usage) else "miss" if is_paid else f"http_{status}")
        self._journal.add(
            Metric(
                id=new_id("req"),
                session=draft.session.id,
                at=round(began, 3),
                provider=draft.target.provider,
                model=self._models.counted_name(draft.target)[:200],
                api=draft.request.wire.format.name,
                tokens_estimated=0,
                tokens_saved=0,
                reasons=(),
                max_context=None,
                status=status,
                outcome=KEPT_WARM,
                cost_usd=cost,
                account=account_ping(cost),
                scope=draft.caller.scope,
                person=draft.caller.person,
                team=draft.caller.team,
            )
        )

    def _count(self, held: _HeldRequest, outcome: str) -> None:
        self._metrics.keep_warm_pings.labels(held.draft.target.provider, outcome).inc()
        log.info("refreshed a prompt cache", extra={"session": held.draft.session.id, "outcome": outcome})


def _has_hit(held: _HeldRequest, status: int, usage: Usage | None) -> bool:
    return status == PAID and usage is not None and usage.cached_tokens >= HIT * held.tokens


def _place_of(draft: Draft) -> Place | None:
    return (draft.caller.scope, draft.cache.conversation) if draft.cache else None
