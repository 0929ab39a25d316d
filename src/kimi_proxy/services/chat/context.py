"""Token counts of requests, the newest request of each session for the dashboard, and re-injection of a buried system
prompt.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TypeAlias, TypedDict
from weakref import WeakKeyDictionary

from kimi_proxy.core import tokens
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Message, Request, read
from kimi_proxy.core.config.sections import ReinjectionSettings as Settings
from kimi_proxy.core.errors import InvalidParams, NothingSeen, Reason
from kimi_proxy.features import tool_weights as tools
from kimi_proxy.features.accounting import MILLION, prices_of
from kimi_proxy.features.chat import context, context_map
from kimi_proxy.features.chat.context import (
    HEADING,
    SPOILS_CACHE,
    TOO_LONG,
    Composition,
    CompositionBody,
    Reminder,
    Weigh,
    instructions,
    is_certainly_below,
    is_reminded,
    scaled_to,
    sink,
    with_repeated_instructions,
)
from kimi_proxy.features.chat.context_map import MessageRowBody, Pair, SummarizedRowBody
from kimi_proxy.features.chat.memory import TextWeight, weigh_text
from kimi_proxy.features.chat.pipeline import ActiveCompression, ChangingStage, Draft
from kimi_proxy.features.metering import window_percent
from kimi_proxy.features.models import Models, Target
from kimi_proxy.features.models.routing import room_beside
from kimi_proxy.services.chat.observers import ChatObserver
from kimi_proxy.services.chat.relay import Exchange
from kimi_proxy.services.events import iso_time
from kimi_proxy.services.remembered import Memory, Remembered, stays, with_session
from kimi_proxy.services.store.protocols import SessionRecord

MAX_KNOWN = 10_000
# A request up to so many bytes, with no more than so many new characters, is counted in the event loop.
SHORT_BYTES, SHORT_CHARS = 256 * 1024, 16 * 1024
SLICE_CHARS = 16 * 1024  # the tokenizer holds the interpreter's lock: less than a millisecond at a time
PAUSE_S = 0.0005
MAX_COUNTED_CHARS = (
    4_000_000  # of a text; what is longer fits no context window, and counting it would delay all others
)


class _TooLong(Exception):
    """More is new than can be counted in the event loop."""


class TokenCounter:
    """Counts short requests at once, and the rest in a thread, one request at a time and with many pauses.

    There are two threads, so that a request in flight does not wait for counts requested by the journal.
    """

    def __init__(self, count: Callable[[str], int] = tokens.count, memory: Memory | None = None) -> None:
        self._count = count
        self._known: Remembered[tuple[int, int], TextWeight] = Remembered(
            memory or Memory(), "tokens of texts", size=MAX_KNOWN, forget=stays
        )
        self._lock = threading.Lock()
        # Several stages ask about the same request; its composition is dropped with the request.
        self._compositions: WeakKeyDictionary[Request, Composition] = WeakKeyDictionary()
        self._urgent = ThreadPoolExecutor(1, thread_name_prefix="counting")
        self._later = ThreadPoolExecutor(1, thread_name_prefix="noting")
        self._is_warm = False  # the first count loads a vocabulary

    async def composition(self, request: Request) -> Composition:
        """Return the composition of a request, in tokens."""
        return await self._of(request, self._urgent)

    async def both(self, received: Request, outgoing: Request) -> tuple[Composition, Composition]:
        """Return the counts of a request as received and as sent, for notes that can wait."""
        before = await self._of(received, self._later)
        if context.is_same(received, outgoing):
            return before, before
        if context.has_same_messages(received, outgoing):  # often our tool is all that differs
            count = partial(context.composition_with_tools, before, outgoing)
            return before, await self._weigh(outgoing, self._later, count)
        return before, await self._of(outgoing, self._later)

    def forget(self, who: Caller, session: str | None) -> None:
        """Forget the counts that quote how memory begins; whose it was is not known."""
        with self._lock:
            for key, weight in self._known.items():
                if weight.found:
                    self._known.forget(key)

    def close(self) -> None:
        for thread in (self._urgent, self._later):
            thread.shutdown(wait=False, cancel_futures=True)

    async def _of(self, request: Request, thread: ThreadPoolExecutor) -> Composition:
        weighed = self._compositions.get(request)
        if weighed is None:
            count = partial(context.composition, request)
            self._compositions[request] = weighed = await self._weigh(request, thread, count)
        return weighed

    async def _weigh(
        self, request: Request, thread: ThreadPoolExecutor, count: Callable[[Weigh], Composition]
    ) -> Composition:
        if self._is_warm and len(request.body) <= SHORT_BYTES:
            with suppress(_TooLong):
                return count(self._in_passing())
        loop = asyncio.get_running_loop()
        weighed = await loop.run_in_executor(thread, count, self._weigh_text)
        self._is_warm = True
        return weighed

    def _in_passing(self) -> Callable[[str], TextWeight]:
        left = SHORT_CHARS

        def weigh(text: str) -> TextWeight:
            nonlocal left
            known = self._known_weight(text)
            if known is not None:
                return known
            left -= len(text)
            if left < 0:
                raise _TooLong
            return self._weigh_text(text)

        return weigh

    def _weigh_text(self, text: str) -> TextWeight:
        weight = self._known_weight(text)
        if weight is None:
            weight = weigh_text(text, self._count_text)
            with self._lock:
                self._known.put(_key(text), weight)
        return weight

    def _known_weight(self, text: str) -> TextWeight | None:
        with self._lock:
            return self._known.get(_key(text))

    def _count_text(self, text: str) -> int:
        if len(text) > MAX_COUNTED_CHARS:
            return tokens.estimate(text)
        first, *rest = tokens.slices(text, SLICE_CHARS)
        counted = self._count(first)
        for piece in rest:
            time.sleep(PAUSE_S)
            counted += self._count(piece)
        return counted


def _key(text: str) -> tuple[int, int]:
    """Python's hash is keyed by a secret of this process: no client can make two texts look the same."""
    return len(text), hash(text)


DAY_S = 86_400
MAX_SESSIONS, MAX_BYTES = 1_000, 12 * 1024**2  # some twenty long sessions; those that are idle longest go first
MAX_SHOWN_CHARS = 200_000  # of a message that is looked at
MAX_MESSAGES = 5_000
MAX_TOOLS = 200
COUNT_S = 1.0  # a request that is not counted by then is sent without counts


class ApartBody(TypedDict):
    system_tokens: int
    tool_definitions_tokens: int
    buried: bool


class SentToolsBody(tools.DescribedToolsBody):
    """Tools as the client described them."""

    left_out: int  # of them, in the request as it left
    session_usd: float | None  # about what describing them cost in this session; None without a price


class ContextBody(TypedDict):
    """The newest request of a session, message by message."""

    session_id: str
    at: str
    model: str
    max_context: int | None
    tokens: int
    percent: float | None
    composition: CompositionBody
    apart: ApartBody
    described_tools: list[SentToolsBody]
    buried: bool
    messages: list[MessageRowBody]
    left_out: int
    summary_index: int | None
    summarized: list[SummarizedRowBody]


class ContextMessageBody(TypedDict):
    index: int
    role: str
    sent: str
    received: str
    changed: bool
    is_shortened: bool


class SummarizedMessageBody(TypedDict):
    index: int
    role: str
    received: str
    sent: str
    summary_index: int
    is_shortened: bool


@dataclass(frozen=True, slots=True)
class LatestRequest:
    """A request as received and as sent, with the visible part of its response."""

    at: float
    target: Target
    received: Request
    outgoing: Request
    compression: ActiveCompression | None
    running: str = ""  # the id of the request, as long as its answer is not over
    counted: int | None = None  # its tokens as the provider counted them

    @property
    def size(self) -> int:
        return len(self.outgoing.body) + (0 if self.received.body is self.outgoing.body else len(self.received.body))

    @property
    def pairs(self) -> list[Pair]:
        return context_map.pairs(self.received, self.outgoing, self.compression)

    @property
    def summarized_messages(self) -> Mapping[int, Message]:
        return context_map.summarized_messages(self.received, self.compression)


class LatestRequests(ChatObserver):
    """The newest request of each session, as received and as sent; in memory only, because it is people's text."""

    def __init__(
        self,
        counter: TokenCounter,
        models: Models,
        now: Callable[[], float] = time.time,
        memory: Memory | None = None,
    ) -> None:
        self._counter = counter
        self._models = models
        self._now = now
        # By scope and session.
        self._requests: Remembered[tuple[str, str], LatestRequest] = Remembered(
            memory or Memory(),
            "newest requests",
            size=MAX_SESSIONS,
            max_bytes=MAX_BYTES,
            life_s=DAY_S,
            now=now,
            forget=with_session,
        )

    def on_start(self, received: Draft, outgoing: Draft) -> None:
        # Only the bytes: the parsed form takes several times their memory.
        before, after = (Request(draft.request.wire, draft.request.body) for draft in (received, outgoing))
        latest = LatestRequest(self._now(), outgoing.target, before, after, outgoing.compression, outgoing.id)
        self._requests.put((outgoing.caller.scope, outgoing.session.id), latest, latest.size)

    def on_end(self, exchange: Exchange) -> None:
        place = exchange.draft.caller.scope, exchange.draft.session.id
        latest = self._requests.get(place)
        if latest is None or latest.running != exchange.draft.id:
            return
        usage = exchange.recalled.first or exchange.reply.usage
        ended = replace(latest, running="", counted=usage.input_tokens if usage else None)
        self._requests.put(place, ended, ended.size)

    async def context(self, who: Caller, session: str, record: SessionRecord | None = None) -> ContextBody:
        """Return the messages of the newest request, to scale; `record` has what the session cost."""
        latest = self._latest(who, session)
        weighed = await self._counter.composition(latest.outgoing)
        window = self._models.window(latest.target)
        total = latest.counted or weighed.total
        weighed = scaled_to(weighed, total)  # so that all views show the one count
        pairs = latest.pairs
        summarized = latest.summarized_messages
        received = await self._counter.composition(latest.received) if summarized else weighed
        rows = [
            context_map.summarized_to_json(index, message, received)
            for index, message in islice(summarized.items(), MAX_MESSAGES)
        ]
        return {
            "session_id": session,
            "at": iso_time(latest.at),
            "model": latest.target.key or latest.target.model,
            "max_context": window,
            "tokens": total,
            "percent": window_percent(total, window),
            "composition": weighed.to_json(),
            "apart": {
                "system_tokens": weighed.apart.tokens,
                "tool_definitions_tokens": weighed.definitions,
                "buried": weighed.is_buried(weighed.apart, window),
            },
            "described_tools": await asyncio.to_thread(_describe_tools, latest, self._usd_per_token(latest, record)),
            "buried": sink(weighed, window).is_sunk,
            "messages": [context_map.sent_to_json(pair, weighed, window) for pair in pairs[:MAX_MESSAGES]],
            "left_out": max(0, len(pairs) - MAX_MESSAGES),
            "summary_index": _summary(pairs).index if latest.compression else None,
            "summarized": rows,
        }

    async def message(self, who: Caller, session: str, index: int) -> ContextMessageBody:
        """Return the text sent at a position, and the text received for it."""
        pairs = self._latest(who, session).pairs
        if not 0 <= index < len(pairs):
            raise InvalidParams("index", f"the newest request has {len(pairs)} messages; the index starts at 0")
        pair = pairs[index]
        received = "\n\n".join(context_map.words(message) for message in pair.received)
        sent = context_map.words(pair.sent)
        return {
            "index": index,
            "role": pair.sent.role,
            "sent": sent[:MAX_SHOWN_CHARS],
            "received": received[:MAX_SHOWN_CHARS],
            "changed": pair.is_changed,
            "is_shortened": max(len(sent), len(received)) > MAX_SHOWN_CHARS,
        }

    async def summarized_messages(self, who: Caller, session: str, index: int) -> SummarizedMessageBody:
        """Return a message that was not sent, and the summary that replaces it and its neighbours."""
        latest = self._latest(who, session)
        message = latest.summarized_messages.get(index)
        if message is None:
            raise InvalidParams("index", "no summary replaced a message with this index in the newest request")
        summary = _summary(latest.pairs)
        received = context_map.words(message)
        sent = context_map.words(summary.sent)
        return {
            "index": index,
            "role": message.role,
            "received": received[:MAX_SHOWN_CHARS],
            "sent": sent[:MAX_SHOWN_CHARS],
            "summary_index": summary.index,
            "is_shortened": max(len(sent), len(received)) > MAX_SHOWN_CHARS,
        }

    def _usd_per_token(self, latest: LatestRequest, record: SessionRecord | None) -> float | None:
        """Return about what a token cost that was in every prompt of a session."""
        prices = prices_of(self._models.model(latest.target))
        if record is None or record.cost_usd is None or prices is None or not record.input_tokens:
            return None
        read_usd = record.cost_usd - record.output_tokens * prices.output / MILLION
        return max(0.0, read_usd) * record.requests / record.input_tokens

    def _latest(self, who: Caller, session: str) -> LatestRequest:
        latest = self._requests.get((who.scope, session))
        if latest is None:
            raise NothingSeen(session)
        return latest


def _describe_tools(latest: LatestRequest, usd_per_token: float | None) -> list[SentToolsBody]:
    """Return the tokens of the client's tool definitions; calls are those of the conversation so far."""
    weights = tools.tool_weights(latest.received, tokens.count)
    client = tools.client_of(one.name for one in weights)
    outgoing = latest.outgoing
    sent = {name for name, raw in outgoing.format.tools(outgoing.json) if not read.is_deferred(raw)}
    return [_describe(one, sent, usd_per_token) for one in tools.by_server(weights, client)[:MAX_TOOLS]]


def _describe(one: tools.DescribedTools, sent: Collection[str], usd_per_token: float | None) -> SentToolsBody:
    left_out = sum(name not in sent for name in one.names)
    tokens_sent = one.tokens * (1 - left_out / one.tools)
    usd = None if usd_per_token is None else round(tokens_sent * usd_per_token, 6)
    return {**tools.to_json(one), "left_out": left_out, "session_usd": usd}


def _summary(pairs: Sequence[Pair]) -> Pair:
    return next(pair for pair in pairs if pair.is_summary)


@dataclass(frozen=True, slots=True)
class ReminderPlan:
    """The instructions to repeat, or why they are not."""

    reminder: Reminder | None = None
    why_not: Reason | None = None


# Returns how many tokens the provider counts for each that we estimate.
CountRatio: TypeAlias = Callable[[Draft], Awaitable[float]]


class Reinjection(ChangingStage[ReminderPlan]):
    """Repeats the system prompt at the end of a request in which it is buried."""

    def __init__(self, settings: Settings, models: Models, counter: TokenCounter, ratio: CountRatio) -> None:
        self.is_on = settings.enabled
        self._settings = settings
        self._models = models
        self._counter = counter
        self._ratio = ratio

    async def decide(self, draft: Draft) -> ReminderPlan | None:
        """Return the instructions to repeat at the end, if they are buried and not too long."""
        window = self._models.window(draft.target)
        limits = self._settings
        if not self.is_on or window is None or is_certainly_below(draft.request, window * limits.threshold):
            return None
        async with asyncio.timeout(COUNT_S):
            made = await self._counter.composition(draft.request)
            found = sink(made, window, limits.threshold)
        words = instructions(draft.request) if found.is_sunk else ""
        if not words or is_reminded(draft.request):
            return None
        # Never repeat instructions if the cache matches whole breakpoints or units: it would never hit again.
        if self._models.cache_rules(draft.target).match in ("breakpoints", "units"):
            return ReminderPlan(why_not=SPOILS_CACHE)
        if found.system_tokens > limits.max_tokens:
            return ReminderPlan(why_not=TOO_LONG)
        text = f"{HEADING}\n{words}"
        reminder = Reminder(text, tokens.count(text), found)
        room = room_beside(draft.request.format.output_limit(draft.request.json), window)
        if (made.total + reminder.tokens) * await self._ratio(draft) > room:
            return ReminderPlan(why_not=TOO_LONG)
        return ReminderPlan(reminder)

    def render(self, draft: Draft, plan: ReminderPlan) -> Draft:
        if plan.reminder is not None:
            return with_repeated_instructions(draft, plan.reminder)
        return replace(draft, reasons=(*draft.reasons, plan.why_not)) if plan.why_not else draft
