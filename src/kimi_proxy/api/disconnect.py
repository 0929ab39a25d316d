"""Work for a client ends when the client disconnects, or stops reading."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from starlette.types import Message, Receive, Send

from kimi_proxy.core.timing import Deadline

STALL_S = 120.0  # a client that reads nothing for so long counts as disconnected

_DISCONNECTED = ("http.disconnect", "websocket.disconnect")


class ClientBody:
    """Sends an answer to a client, and disconnects one that stops reading."""

    def __init__(self, send: Send, disconnect: Callable[[], None], stall_s: float) -> None:
        self._send = send
        self._stall_s = stall_s
        self._now = asyncio.get_running_loop().time
        self._deadline = Deadline(math.inf, disconnect)

    def send(self, piece: bytes, more: bool) -> Awaitable[None]:
        """Send a piece; waits while the client has not read the ones before."""
        return self.pass_on({"type": "http.response.body", "body": piece, "more_body": more})

    async def pass_on(self, message: Message) -> None:
        """Send a message of any kind in the same way."""
        self._deadline.at = self._now() + self._stall_s
        await self._send(message)
        self._deadline.at = math.inf

    def close(self) -> None:
        self._deadline.stop()


@asynccontextmanager
async def until_disconnect(receive: Receive, send: Send, stall_s: float = STALL_S) -> AsyncIterator[ClientBody]:
    """Run the block; cancel it, without an error for the caller, when the client hangs up or stops reading."""
    block = asyncio.current_task()
    disconnected = asyncio.Event()
    if block is None:
        raise RuntimeError("only a task can be cancelled")

    def disconnect() -> None:
        disconnected.set()
        block.cancel()

    body = ClientBody(send, disconnect, stall_s)
    watching = asyncio.create_task(_watch(receive, disconnect))
    try:
        yield body
    except asyncio.CancelledError:
        # The server may be stopping as well: then the cancellation is not ours alone.
        if not disconnected.is_set() or block.uncancel() > 0:
            raise
    finally:
        body.close()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _watch(receive: Receive, disconnect: Callable[[], None]) -> None:
    while (await receive())["type"] not in _DISCONNECTED:
        pass
    disconnect()
