"""A program in the foreground of our terminal: its streams, its signals and its exit code are ours."""

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from kimi_proxy.core.errors import UpstreamUnreachable

EXIT_NOT_FOUND = 127
EXIT_SIGNAL = 128  # plus its number, as shells say it
SETTLE_S = 0.1

# Python ignores these in itself, and a program that inherited that would, too.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
# The terminal sends these to all programs in its foreground, so that ours has them already.
_OF_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
FORWARDED = (*_OF_THE_TERMINAL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Foreground:
    """A started program."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        try:
            self._pid = os.posix_spawnp(argv[0], list(argv), env, setsigdef=_IGNORED_BY_PYTHON)
        except OSError as e:
            raise UpstreamUnreachable(f"{argv[0]} cannot be started: {e.strerror}") from e

    async def exit_code(self) -> int:
        return await asyncio.to_thread(self._wait)

    def pass_on(self, number: signal.Signals) -> None:
        if number not in _OF_THE_TERMINAL or not _in_the_foreground():
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def _wait(self) -> int:
        status = self._news()
        while status is None or os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
            if status is None:
                self._suspend_with_it()
            elif os.WIFSTOPPED(status):
                # Ctrl-Z suspends us as well. By the end of this pause that has happened, and has passed.
                time.sleep(SETTLE_S)
                status = self._news(os.WNOHANG)
                continue
            status = self._news()
        code = os.waitstatus_to_exitcode(status)
        return EXIT_SIGNAL - code if code < 0 else code

    def _news(self, more: int = 0) -> int | None:
        pid, status = os.waitpid(self._pid, os.WUNTRACED | os.WCONTINUED | more)
        return status if pid else None

    def _suspend_with_it(self) -> None:
        """A shell gives its prompt back only when we are suspended, too."""
        if _in_the_foreground():
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(self._pid, signal.SIGCONT)


def _in_the_foreground() -> bool:
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)
