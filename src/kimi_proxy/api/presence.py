"""Work that is worth doing as long as its client is there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.types import Receive


@asynccontextmanager
async def while_there(receive: Receive) -> AsyncIterator[None]:
    """Run the block; when the client hangs up, the block is cancelled, and nobody else hears of it."""
    doing, gone = asyncio.current_task(), asyncio.Event()
    if doing is None:
        raise RuntimeError("only a task can be cancelled")

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()
        doing.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        # The server may be stopping as well: then the cancellation is not ours alone.
        if not gone.is_set() or doing.uncancel() > 0:
            raise
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
