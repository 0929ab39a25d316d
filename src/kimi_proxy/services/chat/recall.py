"""Answers calls of our own tools: the provider is called again, and the client gets one response."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import reduce
from typing import TypeVar

from kimi_proxy.core import json
from kimi_proxy.core.chat import Request, edit
from kimi_proxy.core.chat.reply import EventSplitter, Usage
from kimi_proxy.core.chat.wires.calls import CallStream
from kimi_proxy.core.chat.wires.protocol import RecallCall, RecallRounds, RecallStream
from kimi_proxy.core.errors import (
    InvalidParams,
    KimiProxyError,
    ParseError,
    PruneIdNotFound,
    StoreUnavailable,
    UpstreamDisconnected,
    UpstreamError,
    UpstreamRefused,
    UpstreamUnreadable,
)
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.markers import is_id
from kimi_proxy.core.timing import measure_time
from kimi_proxy.features import recovery
from kimi_proxy.features.accounting import Recalled
from kimi_proxy.features.chat.pipeline import Draft, Header
from kimi_proxy.features.recovery import Recover
from kimi_proxy.features.sanitizer.stage import unique_call_id
from kimi_proxy.features.tool import validate
from kimi_proxy.proxy.headers import UpstreamRequest, retry_after_s, value_of
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.relay import ReplyStream, RewrittenReply, read_up_to
from kimi_proxy.services.recover import Recovery

MAX_ERROR_BYTES = 256 * 1024
MAX_HELD_BYTES = 16 * 1024**2  # a longer body, or event, is passed on unread
SHORT_CHARS = 2_000  # a result up to this length is hardly why a provider rejects a request as too long
REFUSED_ROUNDS = 2  # after the last in which it may read: its calls get NO_MORE, and it may go on without them
MAX_READ_CHARS = 4_000_000  # in one answer: more than the largest context window has room for
PENDING_CHARS = 32_000  # text appended to another tool's result stays in the conversation permanently

# A client that is left without a byte gives up after 90 s (Claude Code) to 300 s (Codex, undici): pings keep it. Of all
# that it could bear it waits this long for one answer, which most limits by the minute are over in.
MAX_WAIT_S, PING_S = 90.0, 5.0
MAX_SILENCE_S = 10.0  # of all waits where no ping can be sent: clients give up, and send the whole request again
MAX_BACKOFF_S = 15.0  # where the provider does not say how long

NO_MORE = (
    "no_more: no more may be read in this answer. Go on with what you have: answer, or call another tool; after its "
    "result you may read again."
)

# The limit may count tokens: without the recovered text, the model can continue.
BUSY = (
    "unavailable: the provider takes no more text for now (HTTP {status}). Go on without it, or call this tool again "
    "after the result of another."
)

_STREAM = "text/event-stream"
_CLAUDE_CODE = re.compile(rb"claude-cli/(\d{1,4})\.(\d{1,4})\.(\d{1,6})")
READS_ITERATIONS = 2, 1, 325  # the version that was looked at
_PLAIN = ("", "identity")
_REFUSED = (400, 413)  # how providers reject requests that exceed the context window
_BUSY = (429, 503, 529)  # how they ask to come back later
_FAILED = (500, 502, 504)  # how they fail: it may help to ask once more, and no more than that

Value = TypeVar("Value")

Ask = Callable[[UpstreamRequest], AbstractAsyncContextManager[ReplyStream]]
OnRecall = Callable[[Recalled], None]  # called with the recoveries so far, because a client may disconnect at any time

log = logging.getLogger(__name__)


class _Progress:
    """A response of one or more rounds: the request for the next round, and the recoveries so far."""

    def __init__(
        self, draft: Draft, ask_again: Callable[[Request], Awaitable[ReplyStream]], on_recall: OnRecall
    ) -> None:
        self.draft = draft
        self.request = draft.request
        self.ask_again = ask_again
        self._on_recall = on_recall
        self._recalled = Recalled()
        self._read_back = 0  # calls that got the requested text
        self._waited_s = 0.0
        self._has_failed = False  # the provider, in a way that may pass
        self.read_chars = 0
        # Excludes the model's own calls, and our replies to ids that it should not know.
        self._texts = [draft.request.body]

    @property
    def turns(self) -> int:
        """Return the number of additional requests to the provider."""
        return self._recalled.turns

    async def ask(self) -> ReplyStream:
        """Return the answer to the next round; wait while the provider is busy, for as long as clients bear it."""
        backoff_s = 1.0
        most_s = MAX_WAIT_S if self.draft.request.is_stream else MAX_SILENCE_S
        while True:
            reply = await self.ask_again(self.request)
            wait_s = retry_after_s(reply.headers) or backoff_s
            is_failed = reply.status in _FAILED and not self._has_failed
            if not (reply.status in _BUSY or is_failed) or self._waited_s + wait_s > most_s:
                return reply
            self._has_failed = self._has_failed or is_failed
            await asyncio.sleep(wait_s)
            self._waited_s += wait_s
            backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)

    def rewrites_calls(self) -> CallStream | None:
        """Return what turns calls of tools that were left out into calls of the client's, in one round."""
        deferred = self.draft.deferred
        if deferred is None or not deferred.wrapper:
            return None
        return self.request.format.call_stream(deferred.wrapper, deferred.unwrap)

    def knows(self, id: str) -> bool:
        """Return whether the model was given this id; assume so if only the end of a conversation is sent to us."""
        return self.draft.request.is_continued or any(id.encode() in text for text in self._texts)

    def may_read(self, id: str, session: str) -> bool:
        """Return whether an original of that session belongs to this conversation: it stored it, or a marker names it.

        A client's text may name any id, such as one that was copied from another conversation, or forged.
        """
        sent = self.draft.request
        received = self.draft.received or self.draft.request
        is_ours = sent.body.count(id.encode()) > received.body.count(id.encode())
        return session in ("", self.draft.session.id) or is_ours

    def add_text(self, text: str) -> None:
        self._read_back += 1
        self.read_chars += len(text)
        self._texts.append(text.encode("utf-8", "surrogatepass"))

    def count(self, rounds: RecallRounds, turns: int = 0) -> None:
        """Add up the recoveries, and the provider's counts of all rounds so far."""
        before = self._recalled
        read_usage = self.request.format.usage
        counted = [usage for value in rounds.usages if (usage := read_usage(value)) is not None]
        first, total = (counted[0], reduce(Usage.plus, counted)) if counted else (None, None)
        self._recalled = Recalled(self._read_back, before.turns + turns, first, total)
        if self._recalled.calls or self._recalled.turns:
            self._on_recall(self._recalled)


class Recall:
    """Reads originals back for the model in the middle of its answer, for at most `max_rounds` rounds."""

    def __init__(
        self,
        recovery: Recovery,
        facts: ChatFacts,
        max_rounds: int,
    ) -> None:
        self._recovery = recovery
        self._facts = facts
        self._max_rounds = max_rounds

    @asynccontextmanager
    async def answer(
        self, ask: Ask, question: UpstreamRequest, draft: Draft, on_recall: OnRecall
    ) -> AsyncIterator[ReplyStream]:
        """Yield the provider's reply without a call of our tool; it is open as long as the block runs."""
        async with AsyncExitStack() as opened:

            async def ask_again(request: Request) -> ReplyStream:
                await opened.aclose()  # the previous round has ended, or was rejected
                return await opened.enter_async_context(ask(replace(question, body=request.body)))

            search = draft.deferred.search if draft.deferred else None
            if search is not None:
                question = _with_beta(question, draft.request)
            reply = await opened.enter_async_context(ask(question))
            if search is not None and reply.status == 200:
                search.note_answer(draft)
            elif search is not None and reply.status == _REFUSED[0] and not search.has_answered(draft):
                # Any mistake of a request gives this status: the search is at fault only if it works without.
                draft = search.without(draft)
                reply = await ask_again(draft.request)
                if reply.status == 200:
                    search.note_refusal(draft)
            progress = _Progress(draft, ask_again, on_recall)
            if reply.status != 200 or reply.encoding not in _PLAIN:
                yield reply
            elif reply.media_type == _STREAM:
                yield RewrittenReply(reply, self._stream(reply, progress))
            else:
                yield await self._read_whole_reply(reply, progress)

    async def _stream(self, reply: ReplyStream, progress: _Progress) -> AsyncIterator[bytes]:
        draft = progress.draft
        rounds = draft.request.format.recall_stream(draft.own_tools, _sums_usage(draft.headers))
        try:
            async for shown in _visible_bytes(reply, rounds, progress.rewrites_calls()):
                yield shown
            while rounds.calls.own and not rounds.calls.others:
                async for received in with_pings(self._next_round(rounds, progress), draft.request.format.ping):
                    if isinstance(received, bytes):
                        yield received
                    else:
                        reply = received
                if reply.status != 200 or reply.media_type != _STREAM or reply.encoding not in _PLAIN:
                    raise await _refusal_of(reply, draft.target.provider)
                async for shown in _visible_bytes(reply, rounds, progress.rewrites_calls()):
                    yield shown
        finally:
            progress.count(rounds)  # a client that disconnects still pays for the tokens counted so far
        await self._keep_pending(rounds, progress)
        yield rounds.ending()

    async def _read_whole_reply(self, reply: ReplyStream, progress: _Progress) -> ReplyStream:
        draft = progress.draft
        rounds = progress.request.format.recall_body(draft.own_tools, _sums_usage(draft.headers))
        rewrites = progress.rewrites_calls()
        while True:
            body, rest = await read_up_to(MAX_HELD_BYTES, reply.pieces())
            answer = _object(body) if reply.status == 200 and rest is None else None
            if answer is None:
                return RewrittenReply(reply, _pieces(body, rest))
            received = answer
            answer = rewrites.rewrite_body(answer) if rewrites else answer
            calls = rounds.take(answer)
            progress.count(rounds)
            if not calls.own or calls.others:
                break
            reply = await self._next_round(rounds, progress)
        is_changed = rounds.calls.own or answer is not received or progress.request is not progress.draft.request
        await self._keep_pending(rounds, progress)
        return RewrittenReply(reply, _pieces(json.encode(rounds.join_rounds()) if is_changed else body, None))

    async def _next_round(self, rounds: RecallRounds, progress: _Progress) -> ReplyStream:
        """Ask again with an answer to each of our calls; if it is refused, their length may be the reason."""
        calls = rounds.calls.own
        if progress.turns >= self._max_rounds + REFUSED_ROUNDS:
            target = progress.draft.target
            tool = calls[0].name
            raise UpstreamUnreadable(
                f"{target.model[:80]!r} called {tool} {progress.turns + 1} times in one answer, and continued after "
                "being refused: try again, or raise recover_rounds in [sanitizer]"
            )
        may_read = progress.turns < self._max_rounds
        answers = [await self._answer(call, progress) if may_read else NO_MORE for call in calls]
        results = progress.request.format.new_tool_results(
            zip((call.id for call in calls), answers, strict=True), [call.name for call in calls]
        )
        progress.request = edit.with_items(progress.request, [*rounds.next_round(), *results])
        progress.count(rounds, turns=1)
        reply = await progress.ask()
        texts = [answer for answer in answers if isinstance(answer, str)]
        if reply.status in _BUSY:
            shorter = [BUSY.format(status=reply.status)] * len(texts)
        elif reply.status in _REFUSED:
            shorter = [_fitting(text, SHORT_CHARS) for text in texts]
        else:
            return reply
        if shorter == answers or len(texts) < len(answers):
            return reply
        progress.request = _with_results(progress.request, shorter)
        return await progress.ask_again(progress.request)

    async def _answer(self, call: RecallCall, progress: _Progress) -> JsonValue:
        """Return the result of a call: a text, or the tools that a provider is to load."""
        deferred = progress.draft.deferred
        if deferred is None or call.name not in deferred.own_tools:
            return await self._recover(call, progress)
        return deferred.answer(call.name, call.arguments)

    async def _recover(self, call: RecallCall, progress: _Progress) -> str:
        with measure_time("recall"):
            return await self._recover_text(call, progress)

    async def _recover_text(self, call: RecallCall, progress: _Progress) -> str:
        """Return the requested text, or a message that explains what is wrong with the call."""
        try:
            arguments = _object(call.arguments.encode("utf-8", "replace") or b"{}")
            if arguments is None:
                raise InvalidParams("arguments", "must be a JSON object")
            recover = validate(Recover, arguments)
            wanted = recovery.selection_of(recover)
            if not is_id(recover.id) or not progress.knows(recover.id):
                raise PruneIdNotFound(recover.id, "unknown")
            original = await self._recovery.open(progress.draft.caller, recover.id)
            if not progress.may_read(recover.id, original.session):
                raise PruneIdNotFound(recover.id, "unknown")
            part = (await original.read(wanted)).text
        except KimiProxyError as e:
            self._recovery.count(e.code)
            return f"{e.code}: {e}"
        if progress.read_chars + len(part) > MAX_READ_CHARS:
            self._recovery.count("too_long")
            return _fitting(part, 0)
        self._recovery.count("ok")
        progress.add_text(part)
        return part

    async def _keep_pending(self, rounds: RecallRounds, progress: _Progress) -> None:
        """Store for later requests the recoveries of the last round, and the id of its response.

        If the client has calls to make too, the model reads the recovered text with their last result. A provider that
        stores the response, including calls without a result, expects a result for each of them. A client that
        continues from a response by its id uses the first round's id, but means the last.
        """
        draft = progress.draft
        calls = rounds.calls
        is_stored = bool(rounds.id) and draft.request.format.is_answer_stored(draft.request.json)
        if calls.own and calls.others:
            found = [(call, await self._answer(call, progress)) for call in calls.own]
            results = [(call, _fitting(text, PENDING_CHARS) if isinstance(text, str) else text) for call, text in found]
            try:
                progress.count(rounds)
                beside = unique_call_id(draft.received or draft.request, calls.others[-1])
                texts = [
                    f"[{call.name} {call.arguments}]\n{text}" for call, text in results if call.name == draft.own_tool
                ]
                if texts:
                    await self._facts.save_pending_result(draft.caller, draft.session.id, beside, "\n\n".join(texts))
                if is_stored:
                    await self._facts.save_open_results(
                        draft.caller,
                        draft.session.id,
                        rounds.id,
                        {call.id: text for call, text in results if isinstance(text, str)},
                    )
            except StoreUnavailable as e:
                log.warning("recovered text was not passed on", extra={"what": str(e)[:300]})
        if rounds.id != rounds.real_id:
            try:
                await self._facts.save_response_id(draft.caller, rounds.id, rounds.real_id)
            except StoreUnavailable as e:
                log.warning("a stored response cannot be continued", extra={"what": str(e)[:300]})


async def _refusal_of(reply: ReplyStream, provider: str) -> UpstreamError:
    """Return the error of a follow-up request whose answer cannot continue the stream."""
    problem = f"{provider} answered HTTP {reply.status} to the follow-up request"
    if reply.status == 200:
        return UpstreamDisconnected(problem)
    body, rest = await read_up_to(MAX_ERROR_BYTES, reply.pieces())
    return UpstreamRefused(problem, reply.status, body if rest is None and reply.encoding in _PLAIN else b"")


def _with_beta(question: UpstreamRequest, request: Request) -> UpstreamRequest:
    """Return the question with the header that a provider asks for where it loads tools."""
    name, beta = request.format.searching_beta
    given = value_of(question.headers, name)
    if not name or beta in given:
        return question
    others = tuple(header for header in question.headers if header[0] != name)
    return replace(question, headers=(*others, (name, given + b"," + beta if given else beta)))


async def with_pings(
    work: Coroutine[object, object, Value], ping: bytes, every_s: float = PING_S
) -> AsyncGenerator[bytes | Value]:
    """Yield `ping` now and then until the work is done, and then its result."""
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait({task}, timeout=every_s))[0]:
            yield ping
        yield task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})


def _sums_usage(headers: Iterable[Header]) -> bool:
    """Return whether the client is a Claude Code that reads `iterations`: it shows the cost of the whole count."""
    agent = next((value for name, value in headers if name == b"user-agent"), b"")
    version = _CLAUDE_CODE.match(agent)
    return version is not None and tuple(map(int, version.groups())) >= READS_ITERATIONS


async def _visible_bytes(reply: ReplyStream, rounds: RecallStream, rewrites: CallStream | None) -> AsyncIterator[bytes]:
    """Yield the part of one round that the client sees."""
    events = EventSplitter()
    async for piece in reply.pieces():
        if events.waiting_bytes > MAX_HELD_BYTES:
            yield events.rest() + piece
            continue
        received = (each for raw in events.feed(piece) for each in (rewrites.feed(raw) if rewrites else (raw,)))
        shown = b"".join(rounds.feed(raw) for raw in received)
        if shown:
            yield shown
    if rest := events.rest():
        shown = rounds.feed(rest)
        # Another round may follow, and must not become a part of an event without an end.
        yield shown + b"\n\n" if shown == rest and rounds.calls.own else shown


async def _pieces(body: bytes, rest: AsyncIterator[bytes] | None) -> AsyncIterator[bytes]:
    yield body
    if rest is not None:
        async for piece in rest:
            yield piece


def _object(raw: bytes) -> JsonObject | None:
    try:
        value = json.decode(raw)
    except ParseError:
        return None
    return dict(value) if isinstance(value, Mapping) else None


def _fitting(text: str, max_chars: int) -> str:
    """Return the text, or how to ask for some of it."""
    if len(text) <= max_chars:
        return text
    lines = text.count("\n") + 1
    return (
        f"too_long: all of it does not fit in here. It has {lines} lines and {len(text)} characters: ask for some of "
        "them by start and end."
    )


def _with_results(request: Request, texts: Sequence[str]) -> Request:
    """Return a request that ends with as many results, with other texts in them."""
    places = [
        (at, index)
        for at, message in enumerate(request.messages)
        for index, part in enumerate(message.parts)
        if part.kind == "tool_result"
    ]
    return edit.with_texts(request, dict(zip(places[-len(texts) :], texts, strict=True)))
