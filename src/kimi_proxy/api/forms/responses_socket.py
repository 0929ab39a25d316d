"""OpenAI's responses over a WebSocket: each `response.create` is a chat request, and its events are sent as frames."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass

from starlette.types import Message, Scope
from starlette.websockets import WebSocket, WebSocketDisconnect

from kimi_proxy.api.disconnect import STALL_S, ClientBody, until_disconnect
from kimi_proxy.api.errors import refusal
from kimi_proxy.api.guard import BUSY, HeldBytes, Refusal, Rules, refuse_size
from kimi_proxy.api.routing import caller_of
from kimi_proxy.api.server import BoundedSocket, socket_of
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.frames import (
    NO_HISTORY,
    AnswerItems,
    CreateFrame,
    error_frame,
    metadata_frames,
    read_frame,
    refusal_frame,
    warmup_frames,
)
from kimi_proxy.core.errors import InvalidParams, KimiProxyError, RateLimited, UpstreamError
from kimi_proxy.core.markers import new_id
from kimi_proxy.core.sse import SseParser
from kimi_proxy.services.chat.handler import IN_LOOP_MAX_BYTES, ChatRequest
from kimi_proxy.services.chat.relay import Answer

MAX_WAITING = 4  # requests that were sent before the answer to another
MAX_ERROR_BYTES = 1024**2

# As RFC 6455 numbers them.
GOING_AWAY, ABNORMAL_CLOSURE, POLICY_VIOLATION = 1001, 1006, 1008
MESSAGE_TOO_BIG, INTERNAL_ERROR, SERVICE_RESTART = 1009, 1011, 1012

_EVENTS = "text/event-stream"
# They speak of the WebSocket, or of how a body is sent.
_OF_THE_SOCKET = frozenset((b"openai-beta", b"content-type", b"content-length", b"content-encoding"))
_JSON = (b"content-type", b"application/json")

log = logging.getLogger(__name__)

Ask = Callable[[ChatRequest], AbstractAsyncContextManager[Answer]]


@dataclass(frozen=True, slots=True)
class SocketLimits:
    sockets: int = 500  # half of all connections; further clients POST
    idle_s: float = 600.0  # without a request: a client connects again for its next one
    stall_s: float = STALL_S


LIMITS = SocketLimits()
NONE_SERVED = SocketLimits(sockets=0)


class ResponsesEndpoint:
    """Accepts WebSockets; one beyond the limit is answered with 426, upon which Codex POSTs at once."""

    def __init__(self, ask: Ask, rules: Rules, limits: SocketLimits = LIMITS) -> None:
        self._ask = ask
        self._rules = rules
        self._limits = limits
        self._open = 0

    async def serve(self, socket: WebSocket) -> None:
        if self._open >= self._limits.sockets:
            message = "questions are not taken over a WebSocket here: POST them"
            await socket.send_denial_response(refusal(426, "upgrade_required", message, path=socket.url.path))
            return
        self._open += 1
        try:
            await ResponsesSocket(socket, self._ask, self._rules, self._limits).serve()
        finally:
            self._open -= 1


class ResponsesSocket:
    """One connection: its requests are answered one after the other, and it remembers the conversation of the last."""

    def __init__(self, socket: WebSocket, ask: Ask, rules: Rules, limits: SocketLimits) -> None:
        self._socket = socket
        self._ask = ask
        self._rules = rules
        self._limits = limits
        self._line = socket_of(socket.scope)
        self._memory = SocketMemory(socket.scope)
        self._history = NO_HISTORY
        self._waiting: asyncio.Queue[Message] = asyncio.Queue()

    async def serve(self) -> None:
        self._line.allow_requests(self._rules.max_body_bytes, self._memory.take, self._limits.stall_s)
        await self._socket.accept()
        with suppress(WebSocketDisconnect):
            async with until_disconnect(self._receive, self._send, self._limits.stall_s) as client:
                code = await self._answer_all(client)
                await client.pass_on({"type": "websocket.close", "code": code, "reason": ""})

    async def _receive(self) -> Message:
        """Return the next message of the connection; requests wait for their turn, as far as there is room."""
        message = await self._socket.receive()
        if message["type"] != "websocket.receive":
            return message
        if self._waiting.qsize() >= MAX_WAITING or not self._memory.take(_size(message)):
            return {"type": "websocket.disconnect"}
        self._waiting.put_nowait(message)
        return message

    async def _send(self, message: Message) -> None:
        """Send a message; raise WebSocketDisconnect if either side has closed meanwhile."""
        try:
            await self._socket.send(message)
        except RuntimeError as e:  # how the server reports a socket that is being closed
            raise WebSocketDisconnect(ABNORMAL_CLOSURE) from e

    async def _answer_all(self, client: ClientBody) -> int:
        """Answer requests until the connection is to be closed; return the code for that."""
        while not self._line.is_stopping:
            try:
                async with asyncio.timeout(self._limits.idle_s):
                    message = await self._waiting.get()
            except TimeoutError:
                return GOING_AWAY
            with _answering(self._line):
                if code := await self._answer(message, client):
                    return code
        return SERVICE_RESTART

    async def _answer(self, message: Message, client: ClientBody) -> int:
        """Return the code with which to close; 0 if the next request may come."""
        try:
            if not await self._is_known():
                return POLICY_VIOLATION
            return await self._create(message, client)
        except KimiProxyError as e:
            wait = {"retry-after": str(math.ceil(e.retry_after_s))} if isinstance(e, RateLimited) else {}
            await _send(refusal_frame(e.http_status, e.code, str(e), wait), client)
            return 0
        finally:
            self._memory.take(-_size(message))
            self._memory.keep(len(self._history.items))

    async def _is_known(self) -> bool:
        """Return whether the client may still call: its token may be revoked since it connected."""
        identify = self._rules.identify
        return identify is None or await identify(self._socket.scope["headers"]) == caller_of(self._socket)

    async def _create(self, message: Message, client: ClientBody) -> int:
        if (text := message.get("text")) is None:
            raise InvalidParams("message", "send JSON as text")
        if (asked := await self._read(text.encode())) is None:
            return MESSAGE_TOO_BIG
        if refused := self._check_size(asked):
            await _send(refusal_frame(refused.status, refused.code, refused.message, dict(refused.headers)), client)
            return 0
        items, self._history = AnswerItems(asked.items), NO_HISTORY
        if asked.is_warmup:
            for event in warmup_frames(new_id("resp"), asked.model, int(time.time())):
                items.feed(event)
                await _send(event, client)
        else:
            async with self._ask(self._request(asked)) as answer:
                if not await _send_answer(answer, items, client):
                    return INTERNAL_ERROR
        # What is kept for later must leave room for requests.
        self._history = items.history() if self._memory.is_spacious else NO_HISTORY
        return 0

    def _check_size(self, asked: CreateFrame) -> Refusal | None:
        """Refuse a conversation that is longer than a body may be, or for which there is no room."""
        limit, size = self._rules.max_body_bytes, len(asked.body)
        if size > limit:
            return refuse_size(limit)
        return None if self._memory.keep(len(self._history.items) + size) else BUSY

    async def _read(self, frame: bytes) -> CreateFrame | None:
        if len(frame) + len(self._history.items) <= IN_LOOP_MAX_BYTES:
            return read_frame(frame, self._history)
        return await asyncio.to_thread(read_frame, frame, self._history)

    def _request(self, asked: CreateFrame) -> ChatRequest:
        scope = self._socket.scope
        replaced = _OF_THE_SOCKET.union(name for name, _ in asked.headers)
        headers = (*((name, value) for name, value in scope["headers"] if name not in replaced), *asked.headers, _JSON)
        query = scope["query_string"].decode("latin-1")
        return ChatRequest(caller_of(self._socket), Wire.RESPONSES, asked.body, headers, query)


class SocketMemory:
    """What one connection takes of the room for all bodies: messages, the request in work, and its conversation."""

    def __init__(self, scope: Scope) -> None:
        held = scope["state"]["held"]
        if not isinstance(held, HeldBytes):
            raise TypeError("no guard stands before the WebSocket")
        self._held = held
        self._kept = 0

    @property
    def is_spacious(self) -> bool:
        return self._held.is_spacious

    def take(self, size: int) -> bool:
        return self._held.take(size)

    def keep(self, size: int) -> bool:
        """Return whether there is room for so many bytes in place of those that were kept before."""
        is_room = self._held.take(size - self._kept)
        self._kept = size if is_room else self._kept
        return is_room


@contextmanager
def _answering(line: BoundedSocket) -> Iterator[None]:
    line.is_answering = True
    try:
        yield
    finally:
        line.is_answering = False


def _size(message: Message) -> int:
    return len(message.get("text") or message.get("bytes") or "")


async def _send(frame: bytes, client: ClientBody) -> None:
    await client.pass_on({"type": "websocket.send", "text": frame.decode("utf-8", "replace")})


async def _send_answer(answer: Answer, items: AnswerItems, client: ClientBody) -> bool:
    """Send the events of an answer as they come, or its error; return False if it broke off."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in answer.headers}
    if answer.status != 200 or not headers.get("content-type", "").startswith(_EVENTS):
        await _send(error_frame(answer.status, await _whole(answer), headers), client)
        return True
    for frame in metadata_frames(headers):
        await _send(frame, client)
    events = SseParser()
    try:
        async for piece in answer.pieces():
            for event in events.feed(piece):
                if event.data.startswith(b"{"):
                    items.feed(event.data)
                    await _send(event.data, client)
    except UpstreamError as e:
        log.warning("an answer broke off", extra={"code": e.code, "what": str(e)[:300]})
        return False
    return items.is_over


async def _whole(answer: Answer) -> bytes:
    """Return the body of an error, or the beginning of a long one."""
    body = bytearray()
    async for piece in answer.pieces():
        body += piece
        if len(body) > MAX_ERROR_BYTES:
            break
    return bytes(body)
