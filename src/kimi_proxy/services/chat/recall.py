"""Answers the calls of our own tool: the provider is asked again, and the client gets one answer."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from kimi_proxy.core import json
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.chat import reply as usage
from kimi_proxy.core.chat.reply import WholeEvents
from kimi_proxy.core.errors import (
    InvalidParams,
    KimiProxyError,
    ParseError,
    PruneIdNotFound,
    StoreUnavailable,
    UpstreamUnreadable,
)
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.markers import is_id
from kimi_proxy.features import recovery
from kimi_proxy.features.accounting import Recalled
from kimi_proxy.features.pipeline import Draft
from kimi_proxy.features.recall.bodies import STREAMS, WHOLE
from kimi_proxy.features.recall.calls import OWED_CHARS, SHORT_CHARS, Call, Rounds, Told, Turn, fitting, with_results
from kimi_proxy.features.recovery import Recover
from kimi_proxy.features.sanitizer.stage import call_name
from kimi_proxy.features.tool import checked
from kimi_proxy.proxy.headers import Header, Question
from kimi_proxy.services.chat.decisions import SCOPE, ChatDecisions
from kimi_proxy.services.chat.relay import Reply
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.originals import decoded
from kimi_proxy.services.store import Originals

Heard = Callable[[Recalled], None]  # told what was read back so far


def unheard(recalled: Recalled) -> None:
    """Where nobody counts."""


class Tally:
    """Tells at once: a client may hang up at any time."""

    def __init__(self, wire: Wire, heard: Heard) -> None:
        self._wire = wire
        self._heard = heard
        self._recalled = Recalled()

    def turned(self, calls: int, spent: JsonValue) -> None:
        """The provider is asked again; `spent` is what it counted so far."""
        so_far = self._recalled
        first = so_far.first if so_far.turns else usage.READERS[self._wire](spent)
        self._tell(Recalled(so_far.calls + calls, so_far.turns + 1, first))

    def owed(self, calls: int) -> None:
        """What is read back goes into a later request."""
        self._tell(replace(self._recalled, calls=self._recalled.calls + calls))

    def _tell(self, recalled: Recalled) -> None:
        self._recalled = recalled
        self._heard(recalled)


MAX_HELD_BYTES = 16 * 1024**2  # a longer body, or event, is passed on unread

_STREAM = "text/event-stream"
_PLAIN = ("", "identity")
_REFUSED = (400, 413)  # as providers refuse what is longer than the window of their model

Ask = Callable[[Question], AbstractAsyncContextManager[Reply]]
Again = Callable[[Request], Awaitable[Reply]]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Relayed:
    """A reply whose body is ours to give."""

    status: int
    headers: list[Header]
    media_type: str
    encoding: str
    is_delimited: bool
    body: AsyncIterator[bytes]

    def pieces(self) -> AsyncIterator[bytes]:
        return self.body


class Recall:
    def __init__(self, originals: Originals, decisions: ChatDecisions, metrics: Metrics, max_rounds: int) -> None:
        self._originals = originals
        self._decisions = decisions
        self._metrics = metrics
        self._max_rounds = max_rounds

    @asynccontextmanager
    async def answered(
        self, ask: Ask, question: Question, draft: Draft, heard: Heard = unheard
    ) -> AsyncIterator[Reply]:
        """The provider's reply in which our tool was never called; it is open as long as the block runs."""
        tally = Tally(draft.request.wire, heard)
        async with AsyncExitStack() as opened:

            async def again(request: Request) -> Reply:
                return await opened.enter_async_context(ask(replace(question, body=request.body)))

            reply = await opened.enter_async_context(ask(question))
            if reply.status != 200 or reply.encoding not in _PLAIN:
                yield reply
            elif reply.media_type == _STREAM:
                yield _relayed(reply, self._streamed(reply, again, draft, tally))
            else:
                yield await self._whole(reply, again, draft, tally)

    async def _streamed(self, reply: Reply, again: Again, draft: Draft, tally: Tally) -> AsyncIterator[bytes]:
        rounds, request, told = STREAMS[draft.request.wire](draft.own_tool), draft.request, Told(draft.request)
        for left in range(self._max_rounds, -1, -1):
            async for shown in _shown(reply, rounds):
                yield shown
            turn = rounds.turn
            if not left or not turn.own or turn.others:
                break
            answers = await self._answers(turn.own, told)
            request = rounds.follow_up(request, answers)
            tally.turned(len(turn.own), rounds.spent)
            request, reply = await _asked_again(again, request, answers)
            if reply.status != 200 or reply.media_type != _STREAM or reply.encoding not in _PLAIN:
                raise UpstreamUnreadable(
                    f"{draft.target.provider} answered HTTP {reply.status} when it was asked again"
                )
        await self._owe(turn, draft, told, tally, rounds.id)
        await self._rename(rounds)
        yield rounds.ending()

    async def _whole(self, reply: Reply, again: Again, draft: Draft, tally: Tally) -> Reply:
        rounds, request, told = WHOLE[draft.request.wire](draft.own_tool), draft.request, Told(draft.request)
        turn = Turn()
        for left in range(self._max_rounds, -1, -1):
            body, rest = await _read(reply)
            answer = None if reply.status != 200 or rest is not None else _object(body)
            if answer is None:
                return _relayed(reply, _pieces(body, rest))
            turn = rounds.take(answer)
            if not left or not turn.own or turn.others:
                break
            answers = await self._answers(turn.own, told)
            request = rounds.follow_up(request, answers)
            tally.turned(len(turn.own), rounds.spent)
            request, reply = await _asked_again(again, request, answers)
        is_changed = turn.own or request is not draft.request
        await self._owe(turn, draft, told, tally, rounds.id)
        return _relayed(reply, _pieces(json.encode(rounds.shown()) if is_changed else body, None))

    async def _answers(self, calls: Sequence[Call], told: Told) -> list[str]:
        return [await self._recovered(call, told) for call in calls]

    async def _recovered(self, call: Call, told: Told) -> str:
        """What the model asked for, or what is wrong with how it did."""
        try:
            asked = checked(Recover, _arguments(call))
            if not is_id(asked.id) or not told.names(asked.id):
                raise PruneIdNotFound(asked.id, "unknown")
            text = decoded((await self._originals.get(SCOPE, asked.id)).text)
            part = recovery.part(text, asked)
        except KimiProxyError as e:
            self._metrics.recoveries.labels(e.code).inc()
            return f"{e.code}: {e}"
        self._metrics.recoveries.labels("ok").inc()
        told.add(part)
        return part

    async def _rename(self, rounds: Rounds) -> None:
        """Whoever goes on from an answer by its id names the first round, and means the last."""
        if rounds.renamed is not None:
            try:
                await self._decisions.rename(*rounds.renamed)
            except StoreUnavailable as e:
                log.warning("an answer cannot be gone on from", extra={"what": str(e)[:300]})

    async def _owe(self, turn: Turn, draft: Draft, told: Told, tally: Tally, id: str) -> None:
        """Where the client has calls to make too, the model reads what it asked for beside their last result.

        A provider that keeps the answer, with calls that nobody has answered, wants a result for each of them.
        """
        is_kept = bool(id) and bytes(draft.request.page.members.get("store", b"")) != b"false"
        if not turn.own or not (turn.others or is_kept):
            return
        answers = [fitting(text, OWED_CHARS) for text in await self._answers(turn.own, told)]
        texts = [f"[{draft.own_tool} {call.arguments}]\n{text}" for call, text in zip(turn.own, answers, strict=True)]
        try:
            if turn.others:
                tally.owed(len(turn.own))
                beside = call_name(draft.came or draft.request, turn.others[-1])
                await self._decisions.owe(draft.session.id, beside, "\n\n".join(texts))
            if is_kept:
                results = zip((call.id for call in turn.own), answers, strict=True)
                await self._decisions.leave_open(id, dict(results))
        except StoreUnavailable as e:
            log.warning("what was recovered is not passed on", extra={"what": str(e)[:300]})


async def _asked_again(again: Again, request: Request, answers: Sequence[str]) -> tuple[Request, Reply]:
    """The request that asks again, and the reply to it; what it was refused for may be the length of our answers."""
    reply = await again(request)
    shorter = [fitting(text, SHORT_CHARS) for text in answers]
    if reply.status not in _REFUSED or shorter == list(answers):
        return request, reply
    request = with_results(request, shorter)
    return request, await again(request)


async def _shown(reply: Reply, rounds: Rounds) -> AsyncIterator[bytes]:
    events = WholeEvents()
    async for piece in reply.pieces():
        if events.waiting_bytes > MAX_HELD_BYTES:
            yield events.rest() + piece
            continue
        shown = b"".join(rounds.feed(raw) for raw in events.feed(piece))
        if shown:
            yield shown
    if rest := events.rest():
        shown = rounds.feed(rest)
        # Another round may follow, and must not become a part of what nobody ended.
        yield shown + b"\n\n" if shown == rest and rounds.turn.own else shown


async def _read(reply: Reply) -> tuple[bytes, AsyncIterator[bytes] | None]:
    """The body, or the beginning of a very long one and the rest of it."""
    held, pieces = bytearray(), reply.pieces()
    async for piece in pieces:
        held += piece
        if len(held) > MAX_HELD_BYTES:
            return bytes(held), pieces
    return bytes(held), None


async def _pieces(body: bytes, rest: AsyncIterator[bytes] | None) -> AsyncIterator[bytes]:
    yield body
    if rest is not None:
        async for piece in rest:
            yield piece


def _relayed(reply: Reply, body: AsyncIterator[bytes]) -> Relayed:
    headers = [(name, value) for name, value in reply.headers if name != b"content-length"]
    return Relayed(reply.status, headers, reply.media_type, reply.encoding, reply.is_delimited, body)


def _object(body: bytes) -> JsonObject | None:
    try:
        value = json.decode(body)
    except ParseError:
        return None
    return dict(value) if isinstance(value, Mapping) else None


def _arguments(call: Call) -> JsonObject:
    try:
        asked = json.decode(call.arguments.encode("utf-8", "replace") or b"{}")
    except ParseError as e:
        raise InvalidParams("arguments", "they are not JSON") from e
    if not isinstance(asked, Mapping):
        raise InvalidParams("arguments", "they are not a JSON object")
    return dict(asked)
