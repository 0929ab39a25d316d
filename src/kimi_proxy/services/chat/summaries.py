"""Summaries of old exchanges: written by the provider of the conversation, or put together here."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from kimi_proxy.core import tokens
from kimi_proxy.core.chat import Message
from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.core.errors import KimiProxyError, UpstreamUnreadable
from kimi_proxy.features.chat import compression
from kimi_proxy.features.chat.compression import outline, transcript
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.proxy.headers import UpstreamRequest
from kimi_proxy.services.chat.providers import RateLimiter
from kimi_proxy.services.chat.relay import ProviderClient
from kimi_proxy.services.metrics import Metrics

MAX_ANSWER_BYTES = 1024**2
MAX_TRANSCRIPT_TOKENS = 60_000
TRANSCRIPT_SHARE = 0.5  # of the context window

log = logging.getLogger(__name__)


class SummaryCost(TypedDict):
    summary_input_tokens: int
    summary_output_tokens: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The words that replace old exchanges, and who wrote them."""

    text: str
    by: str  # provider or heuristic
    usage: Usage | None = None  # the provider's charge for it

    def cost_to_json(self) -> SummaryCost:
        usage = self.usage or Usage()
        return {"summary_input_tokens": usage.input_tokens, "summary_output_tokens": usage.output_tokens}


@dataclass(frozen=True, slots=True)
class SummaryTask:
    """The messages to summarize, and the summary of the messages before them."""

    messages: Sequence[Message]
    before: str
    max_tokens: int
    window: int | None

    def transcript(self) -> str:
        room = min(MAX_TRANSCRIPT_TOKENS, int(TRANSCRIPT_SHARE * (self.window or MAX_TRANSCRIPT_TOKENS)))
        return transcript(self.messages, room, tokens.count)


class Summaries:
    """Asks the provider for summaries, and falls back to an outline made here."""

    def __init__(
        self, upstreams: ProviderClient | None, rate_limiter: RateLimiter, metrics: Metrics, timeout_s: float
    ) -> None:
        self._upstreams = upstreams
        self._rate_limiter = rate_limiter
        self._metrics = metrics
        self._timeout_s = timeout_s

    async def from_provider(self, draft: Draft, task: SummaryTask) -> Summary:
        """Return the provider's summary; if it gives no usable one in time, the outline."""
        try:
            async with asyncio.timeout(self._timeout_s):
                summary = await self._ask_model(draft, task)
            if 0 < await asyncio.to_thread(tokens.count, summary.text) <= task.max_tokens:
                return summary
            self._fell_back("too_long" if summary.text else "no_words")
            # An unusable summary was paid for too.
            return replace(await self.outline(task), usage=summary.usage)
        except TimeoutError:
            self._fell_back("timeout")
        except KimiProxyError as e:
            self._fell_back(e.code)
        return await self.outline(task)

    async def outline(self, task: SummaryTask) -> Summary:
        """Return a summary put together from the messages themselves, without a provider."""
        text = await asyncio.to_thread(outline, task.messages, task.before, task.max_tokens, tokens.count)
        return Summary(text, "heuristic")

    async def _ask_model(self, draft: Draft, task: SummaryTask) -> Summary:
        """Return the summary that the session's own model writes. Raise UpstreamError if there is none."""
        if self._upstreams is None:
            raise UpstreamUnreadable("no provider is configured")
        wire = draft.request.wire
        target = draft.target
        text = await asyncio.to_thread(task.transcript)
        body = compression.body(wire, target.model, task.before, text, task.max_tokens)
        await self._rate_limiter.take(target.provider)
        question = UpstreamRequest(wire, body, draft.headers, caller=draft.caller)
        async with self._upstreams.send(target.provider, question) as answer:
            if answer.status != 200 or answer.encoding:
                raise UpstreamUnreadable(f"{target.provider} answered HTTP {answer.status} when asked for a summary")
            held = bytearray()
            async for piece in answer.pieces():
                held += piece
                if len(held) > MAX_ANSWER_BYTES:
                    raise UpstreamUnreadable(f"{target.provider} returned too long a response when asked for a summary")
        usage = wire.format.facts_of(bytes(held)).usage
        return Summary(compression.summary_in(wire, bytes(held)), "provider", usage)

    def _fell_back(self, code: str) -> None:
        self._metrics.chat_faults.labels("summary", code).inc()
        log.warning("no summary from the provider", extra={"what": code})
