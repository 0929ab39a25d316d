"""Ends running requests and open sockets of callers whose token or login has ended, here or on another server."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kimi_proxy.api.errors import refusal
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import StoreUnavailable

CHECK_S = 2.0
CLOSE_S = 5.0  # a socket that takes longer to close is left to the server
POLICY_VIOLATION = 1008  # as RFC 6455 numbers it
LOG_IN_AGAIN = "log in again"

Headers = list[tuple[bytes, bytes]]
# Returns whose token or login is in these headers; None if no one's is. Raises StoreUnavailable if it cannot say.
Identify = Callable[[Headers], Awaitable[Caller | None]]


@dataclass(eq=False, slots=True)
class RunningRequest:
    """A request that is being answered, or a socket that is open."""

    task: "asyncio.Task[object]"
    headers: Headers
    who: Caller
    is_socket: bool
    is_ended: bool = False

    def is_still(self, found: Caller | None) -> bool:
        """Return whether it may go on; a socket shows what its caller may see, so that may not change either."""
        if found is None or found.person_id != self.who.person_id:
            return False
        return found == self.who or not self.is_socket

    def end(self) -> None:
        self.is_ended = True
        self.task.cancel()


class CallerWatch:
    """Looks at everything that runs, now and then; requests that are over by then cost nothing."""

    def __init__(self, identify: Identify, check_s: float = CHECK_S) -> None:
        self._identify = identify
        self._check_s = check_s
        self._running: set[RunningRequest] = set()
        self._next: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, who: Caller) -> None:
        """Run `app` as long as its caller may call."""
        has_status = False

        async def pass_on(message: Message) -> None:
            nonlocal has_status
            has_status = True
            await send(message)

        with self._watching(scope, who) as running:
            try:
                await app(scope, receive, pass_on)
            except asyncio.CancelledError:
                # The server may be stopping as well: then the cancellation is not ours alone.
                if not running.is_ended or running.task.uncancel() > 0:
                    raise
        if not running.is_ended:
            return
        if running.is_socket:
            await _close(send)
        elif not has_status:
            await refusal(401, "token_required", "your token or login has ended", {}, scope["path"])(
                scope, receive, send
            )
        # Where the status has been sent, all that is left is to end without the last piece, which drops the connection.

    @contextmanager
    def _watching(self, scope: Scope, who: Caller) -> Iterator[RunningRequest]:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can be ended")
        running = RunningRequest(task, scope["headers"], who, scope["type"] == "websocket")
        self._running.add(running)
        self._look_later()
        try:
            yield running
        finally:
            self._running.discard(running)
            if not self._running and self._next is not None:
                self._next.cancel()
                self._next = None

    def _look_later(self) -> None:
        if self._running and self._next is None and self._looking is None:
            self._next = asyncio.get_running_loop().call_later(self._check_s, self._look)

    def _look(self) -> None:
        self._next = None
        self._looking = asyncio.get_running_loop().create_task(self._end_strangers())

    async def _end_strangers(self) -> None:
        try:
            for running in tuple(self._running):
                with suppress(StoreUnavailable):  # whose it is cannot be said now
                    if not running.is_still(await self._identify(running.headers)) and running in self._running:
                        running.end()
        finally:
            self._looking = None
            self._look_later()


async def _close(send: Send) -> None:
    with suppress(TimeoutError, RuntimeError):  # the client, or our own side, may have closed it
        async with asyncio.timeout(CLOSE_S):
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": LOG_IN_AGAIN})
