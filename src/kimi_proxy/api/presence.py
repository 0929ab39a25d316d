"""Work that is worth doing as long as its client is there."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from starlette.types import Receive, Send

from kimi_proxy.core.watchdog import Watchdog

STALL_S = 120.0  # a client that reads nothing for so long is as good as gone


class Client:
    """Whoever reads the answer."""

    def __init__(self, send: Send, leave: Callable[[], None], stall_s: float) -> None:
        self._send = send
        self._stall_s = stall_s
        self._now = asyncio.get_running_loop().time
        self._patience = Watchdog(math.inf, leave)

    async def body(self, piece: bytes, more: bool) -> None:
        """Hand over a piece; it waits while the client has not read the ones before."""
        self._patience.by = self._now() + self._stall_s
        await self._send({"type": "http.response.body", "body": piece, "more_body": more})
        self._patience.by = math.inf

    def forget(self) -> None:
        self._patience.stop()


@asynccontextmanager
async def while_there(receive: Receive, send: Send, stall_s: float = STALL_S) -> AsyncIterator[Client]:
    """Run the block; when the client hangs up or stops reading, the block is cancelled, and nobody else hears of it."""
    doing, gone = asyncio.current_task(), asyncio.Event()
    if doing is None:
        raise RuntimeError("only a task can be cancelled")

    def leave() -> None:
        gone.set()
        doing.cancel()

    client, watching = Client(send, leave, stall_s), asyncio.create_task(_watch(receive, leave))
    try:
        yield client
    except asyncio.CancelledError:
        # The server may be stopping as well: then the cancellation is not ours alone.
        if not gone.is_set() or doing.uncancel() > 0:
            raise
    finally:
        client.forget()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _watch(receive: Receive, leave: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()
