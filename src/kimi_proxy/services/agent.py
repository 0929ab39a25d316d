"""An agent in the foreground, its tools beside it."""

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial

from kimi_proxy.features.advertising import Agent
from kimi_proxy.proxy.foreground import EXIT_SIGNAL, FORWARDED, Foreground
from kimi_proxy.services.runner import PrunerRun

Receive = Callable[[signal.Signals], None]


async def run_agent(
    argv: Sequence[str],
    agent: Agent | None,
    env: Mapping[str, str],
    tools: AbstractAsyncContextManager[PrunerRun],
    announce: Callable[[PrunerRun], None],
) -> int:
    """The agent's own exit code. A signal before it has started ends the run, a later one is the agent's."""
    attendant = _Attendant()
    with _received(attendant.receive):
        try:
            async with tools as run:
                announce(run)
                return await attendant.attend(run.command(argv, agent), {**env, **run.env()})
        except asyncio.CancelledError:
            if attendant.ended_by is None:
                raise
            return EXIT_SIGNAL + attendant.ended_by


class _Attendant:
    def __init__(self) -> None:
        self.ended_by: signal.Signals | None = None
        self._run = asyncio.current_task()
        self._program: Foreground | None = None
        self._over = False

    async def attend(self, argv: Sequence[str], env: Mapping[str, str]) -> int:
        self._program = Foreground(argv, env)
        try:
            return await self._program.exit_code()
        finally:
            self._over = True

    def receive(self, number: signal.Signals) -> None:
        if self._over:
            return  # the server is being stopped, which takes its time but not long
        if self._program is not None:
            self._program.pass_on(number)
        elif self._run is not None:
            self.ended_by = number
            self._run.cancel()


@contextmanager
def _received(receive: Receive) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in FORWARDED:
        loop.add_signal_handler(number, partial(receive, number))
    try:
        yield
    finally:
        for number in FORWARDED:
            loop.remove_signal_handler(number)
