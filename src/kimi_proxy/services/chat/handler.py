"""The life of a chat request, from the client's bytes to the provider's and back."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kimi_proxy.core import chat, json, tokens
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import Config
from kimi_proxy.core.config.providers import Provider
from kimi_proxy.core.errors import KimiProxyError, NoProvider, RateLimited
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.context import tokens_of
from kimi_proxy.features.models import Models
from kimi_proxy.features.pipeline import Draft, Stage, Step, ask_usage, name_model, run_stages, run_steps
from kimi_proxy.features.sessions import session_of
from kimi_proxy.proxy.headers import Header, Question
from kimi_proxy.services.chat.recall import OnRecall, Recall
from kimi_proxy.services.chat.relay import Answer, Exchange, Relay, ReplyStream
from kimi_proxy.services.metrics import Metrics

if TYPE_CHECKING:
    from kimi_proxy.proxy.upstream import Upstreams


MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Rate:
    """`per_minute` requests may come at once, and then as many as trickle in; 0 sets no limit."""

    per_minute: int
    spent: float = 0.0
    counted_at: float = 0.0

    def wait_s(self, now: float) -> float:
        """Seconds until the next request may leave; 0 if one may now."""
        if self.per_minute == 0:
            return 0.0
        return max(0.0, (self._spent(now) + 1 - self.per_minute) * MINUTE_S / self.per_minute)

    def taken(self, now: float) -> "Rate":
        return self if self.per_minute == 0 else Rate(self.per_minute, self._spent(now) + 1, now)

    def _spent(self, now: float) -> float:
        return max(0.0, self.spent - max(0.0, now - self.counted_at) * self.per_minute / MINUTE_S)


class RateLimiter:
    def __init__(self, providers: Mapping[str, Provider], now: Callable[[], float] = time.monotonic) -> None:
        self._rates = {name: Rate(provider.requests_per_minute) for name, provider in providers.items()}
        self._now = now

    def take(self, provider: str) -> None:
        """RateLimited if it is too early to ask again."""
        rate, now = self._rates[provider], self._now()
        wait_s = rate.wait_s(now)
        if wait_s > 0:
            raise RateLimited(provider, wait_s)
        self._rates[provider] = rate.taken(now)

    def limits(self) -> Mapping[str, tuple[Rate, float]]:
        """How often each provider may be asked, and the seconds until it may be again."""
        now = self._now()
        return {name: (rate, rate.wait_s(now)) for name, rate in self._rates.items()}


# Told what becomes of a request; they keep nobody waiting.
Ended = Callable[[Exchange], None]
Began = Callable[[Draft, Draft], Ended]  # as it came, and as it leaves


def unheard(exchange: Exchange) -> None:
    """Where nobody listens."""


def unwatched(came: Draft, leaves: Draft) -> Ended:
    """Where nobody watches."""
    return unheard


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came."""

    wire: Wire
    body: bytes
    headers: tuple[Header, ...] = ()
    query: str = ""


class Chat:
    def __init__(
        self,
        config: Config,
        upstreams: "Upstreams | None",
        metrics: Metrics,
        began: Began = unwatched,
        now: Callable[[], float] = time.monotonic,
        steps: Sequence[Step] = (),  # everything that may change a request on its way, in this order
        recall: Recall | None = None,
        turns: RateLimiter | None = None,
    ) -> None:
        self.models = Models(config.providers, config.models)
        self._upstreams = upstreams
        self._metrics = metrics
        self._began = began
        self._now = now
        self._steps = steps
        self.turns = turns or RateLimiter(config.providers, now)
        self._recall = recall
        self._addressing: tuple[Stage, ...] = (name_model, ask_usage(config.providers))

    @asynccontextmanager
    async def answer(self, asked: Asked) -> AsyncIterator[Answer]:
        """Ask the provider of the model that is named; the answer is open as long as the block runs."""
        request = chat.parse(asked.body, asked.wire)
        target = self.models.target(request.model, asked.wire)
        session = session_of(request, dict(asked.headers), target.provider)
        whole = Draft(request, target, session, request, asked.headers)
        draft = await run_steps(whole, self._steps, self._stage_failed)
        draft = run_stages(draft, self._addressing, self._stage_failed)

        # If no stage had anything to say, these are the caller's own bytes.
        question = Question(asked.wire, chat.encode(draft.request), asked.headers, asked.query)
        async with self._asked(draft, question, self._began(whole, draft)) as answer:
            yield answer

    @asynccontextmanager
    async def count_tokens(self, asked: Asked) -> AsyncIterator[Answer]:
        """Let an Anthropic provider count; for the models of others, we do."""
        request = chat.parse(asked.body, asked.wire)
        try:
            target = self.models.target(request.model, asked.wire)
        except NoProvider:
            counted = await asyncio.to_thread(tokens_of, request, tokens.count)
            yield _json(asked.wire.format.token_count(counted))
            return
        draft = name_model(Draft(request, target, session_of(request, dict(asked.headers), target.provider)))
        question = Question(
            asked.wire, chat.encode(draft.request), asked.headers, asked.query, asked.wire.format.count_tokens
        )
        async with self._asked(draft, question) as answer:
            yield answer

    @asynccontextmanager
    async def _asked(self, draft: Draft, question: Question, ended: Ended = unheard) -> AsyncIterator[Answer]:
        relay, provider = Relay(draft, self._now), draft.target.provider
        try:
            self.turns.take(provider)
            async with self._replied(draft, question, relay.on_recall) as reply:
                yield _telling(await relay.answer(reply), draft)
        except KimiProxyError as e:
            relay.failed(e)
            raise
        finally:
            # A client that hangs up ends us here; what its request came to is counted all the same.
            exchange = relay.exchange()
            self._record(exchange)
            ended(exchange)

    def _replied(
        self, draft: Draft, question: Question, on_recall: OnRecall
    ) -> AbstractAsyncContextManager[ReplyStream]:
        """The provider's reply; calls of a tool of ours are answered before anybody else hears of them."""
        ask = partial(self._connected().send, draft.target.provider)
        if self._recall is None or not draft.own_tool:
            return ask(question)
        return self._recall.answered(ask, question, draft, on_recall)

    def _connected(self) -> "Upstreams":
        if self._upstreams is None:
            raise NoProvider("no provider is switched on")
        return self._upstreams

    def _stage_failed(self, stage: str, error: Exception) -> None:
        self._metrics.chat_faults.labels(stage, type(error).__name__).inc()

    def _record(self, exchange: Exchange) -> None:
        provider, usage = exchange.draft.target.provider, exchange.reply.usage
        self._metrics.chat_requests.labels(provider, exchange.outcome, str(exchange.status)).inc()
        self._metrics.chat_seconds.labels(provider).observe(exchange.elapsed_s)
        if exchange.first_byte_s is not None:
            self._metrics.chat_first_byte_seconds.labels(provider).observe(exchange.first_byte_s)
        if usage is not None:
            self._metrics.chat_tokens.labels(provider, "input").inc(usage.input_tokens)
            self._metrics.chat_tokens.labels(provider, "cached").inc(usage.cached_tokens)
            self._metrics.chat_tokens.labels(provider, "output").inc(usage.output_tokens)


def _telling(answer: Answer, draft: Draft) -> Answer:
    return replace(answer, headers=(*answer.headers, *draft.said)) if draft.said else answer


def _json(value: JsonObject) -> Answer:
    body = json.encode(value)
    headers = ((b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()))
    return Answer(200, headers, body)


def together(*witnesses: Began) -> Began:
    def began(came: Draft, leaves: Draft) -> Ended:
        told = [witness(came, leaves) for witness in witnesses]

        def ended(exchange: Exchange) -> None:
            for ended in told:
                ended(exchange)

        return ended

    return began
