"""`/ws`: every event as it happens, for the dashboard and other viewers."""

import asyncio
import logging
import time
from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect

from kimi_proxy.api.errors import refusal
from kimi_proxy.api.guard import PROTOCOL
from kimi_proxy.api.routing import Access, SocketRoute, caller_of
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.events import Hub, Viewer, frame
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.sessions import Sessions

SEND_S = 5.0  # a viewer that takes longer to read an event is disconnected
ABNORMAL_CLOSURE = 1006  # as RFC 6455 numbers it

log = logging.getLogger(__name__)


class Live:
    """A viewer whose token or login ends is disconnected by the guard."""

    def __init__(self, hub: Hub, sessions: Sessions, metrics: Metrics) -> None:
        self._hub = hub
        self._sessions = sessions
        self._metrics = metrics

    def route(self) -> SocketRoute:
        return SocketRoute("/ws", self._serve, Access.PEOPLE)

    async def _serve(self, socket: WebSocket) -> None:
        if self._hub.is_crowded(caller_of(socket)):
            await socket.send_denial_response(refusal(503, "crowded", "too many viewers: close one of them"))
            return
        await socket.accept(PROTOCOL if PROTOCOL in socket.scope["subprotocols"] else None)
        with self._hub.join(caller_of(socket), _since(socket)) as viewer:
            tasks = [asyncio.create_task(self._send_events(socket, viewer)), asyncio.create_task(_listen(socket))]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.result()  # our own faults must not be hidden

    async def _send_events(self, socket: WebSocket, viewer: Viewer) -> None:
        with suppress(WebSocketDisconnect):
            try:
                if not viewer.is_up_to_date:
                    await _send(socket, await self._init(caller_of(socket), viewer))
                while True:
                    await _send(socket, await viewer.next())
            except TimeoutError:
                self._metrics.viewers_evicted.inc()
                log.info("viewer evicted", extra={"why": f"accepted no event for {SEND_S:g} s"})

    async def _init(self, who: Caller, viewer: Viewer) -> str:
        """Return the first frame: the state now; what happens later follows as events."""
        try:
            known = await self._sessions.snapshot(who)
        except StoreUnavailable:
            known = {"sessions": [], "metrics": [], "store": StoreUnavailable.code}
        return frame("init", viewer.joined_at, time.time(), known)


async def _send(socket: WebSocket, text: str) -> None:
    """Send an event; raise WebSocketDisconnect if either side has closed, TimeoutError if it takes too long."""
    try:
        async with asyncio.timeout(SEND_S):
            await socket.send_text(text)
    except RuntimeError as e:  # how the server reports a socket that is being closed
        raise WebSocketDisconnect(ABNORMAL_CLOSURE) from e


async def _listen(socket: WebSocket) -> None:
    """Wait until the viewer disconnects; its messages are ignored."""
    with suppress(WebSocketDisconnect):
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass


def _since(socket: WebSocket) -> int | None:
    """Return the number of the last event that a viewer has seen, if it gives one."""
    given = socket.query_params.get("since", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 17 else None
