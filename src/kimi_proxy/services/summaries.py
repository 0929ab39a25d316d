"""Gets a summary of old messages: from the conversation's own provider, else one that nobody has to be asked for."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kimi_proxy.core import tokens
from kimi_proxy.core.chat import Message, seen
from kimi_proxy.core.chat.usage import Usage
from kimi_proxy.core.errors import KimiProxyError, UpstreamUnreadable
from kimi_proxy.features.compression import asking
from kimi_proxy.features.compression.outline import outline
from kimi_proxy.features.compression.transcript import transcript
from kimi_proxy.features.pipeline import Draft
from kimi_proxy.proxy.question import Question
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.turns import Turns

if TYPE_CHECKING:
    from kimi_proxy.proxy.upstream import Upstreams

MAX_ANSWER_BYTES = 1024**2
MAX_TRANSCRIPT_TOKENS = 60_000
TRANSCRIPT_SHARE = 0.5  # of the window

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Summary:
    text: str
    by: str  # provider or heuristic
    usage: Usage | None = None  # what the provider charges for it


@dataclass(frozen=True, slots=True)
class Story:
    """What is to be summarised: messages, and the summary of what came before them."""

    messages: Sequence[Message]
    before: str
    max_tokens: int
    window: int | None


class Summaries:
    def __init__(self, upstreams: "Upstreams | None", turns: Turns, metrics: Metrics, timeout_s: float) -> None:
        self._upstreams = upstreams
        self._turns = turns
        self._metrics = metrics
        self._timeout_s = timeout_s

    async def asked(self, draft: Draft, story: Story) -> Summary:
        """The provider's summary; whatever keeps it from giving a good one, there is another."""
        try:
            async with asyncio.timeout(self._timeout_s):
                summary = await self._answered(draft, story)
            if 0 < await asyncio.to_thread(tokens.count, summary.text) <= story.max_tokens:
                return summary
            self._fell_back("too_long" if summary.text else "no_words")
            # What is of no use was paid for all the same.
            return replace(await self.outlined(story), usage=summary.usage)
        except TimeoutError:
            self._fell_back("timeout")
        except KimiProxyError as e:
            self._fell_back(e.code)
        return await self.outlined(story)

    async def outlined(self, story: Story) -> Summary:
        text = await asyncio.to_thread(outline, story.messages, story.before, story.max_tokens, tokens.count)
        return Summary(text, "heuristic")

    async def _answered(self, draft: Draft, story: Story) -> Summary:
        if self._upstreams is None:
            raise UpstreamUnreadable("no provider is switched on")
        room = min(MAX_TRANSCRIPT_TOKENS, int(TRANSCRIPT_SHARE * (story.window or MAX_TRANSCRIPT_TOKENS)))
        told = await asyncio.to_thread(transcript, story.messages, room, tokens.count)
        wire, target = draft.request.wire, draft.target
        body = asking.body(wire, target.model, story.before, told, story.max_tokens)
        self._turns.take(target.provider)
        async with self._upstreams.send(target.provider, Question(wire, body, draft.headers)) as reply:
            if reply.status != 200 or reply.encoding:
                raise UpstreamUnreadable(f"{target.provider} answered HTTP {reply.status} when asked for a summary")
            answer = bytearray()
            async for piece in reply.pieces():
                answer += piece
                if len(answer) > MAX_ANSWER_BYTES:
                    raise UpstreamUnreadable(f"{target.provider} answered at great length when asked for a summary")
        return Summary(asking.summary_in(wire, bytes(answer)), "provider", seen.of_body(wire, bytes(answer)).usage)

    def _fell_back(self, code: str) -> None:
        self._metrics.chat_faults.labels("summary", code).inc()
        log.warning("no summary from the provider", extra={"what": code})
