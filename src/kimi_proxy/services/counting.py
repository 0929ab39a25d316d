"""Counts the tokens of requests: each text once, because a conversation comes again with every turn."""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kimi_proxy.core import tokens
from kimi_proxy.core.chat import Request
from kimi_proxy.features import weight

MAX_KNOWN = 20_000
SMALL_BYTES = 16 * 1024  # counted here and now: a thread would take longer
SLICE_CHARS = 16 * 1024  # the tokenizer lets nobody else run while it works: less than a millisecond at a time
PAUSE_S = 0.0005
MAX_CHARS = 4_000_000  # of a text; what is longer fits no window, and counting it would hold up everybody's


class Counting:
    """Small requests are counted at once, the others in one thread, one at a time and with many pauses."""

    def __init__(self, count: Callable[[str], int] = tokens.count) -> None:
        self._count = count
        self._known: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="counting")
        self._is_warm = False  # the first count loads a vocabulary

    async def of(self, came: Request, leaves: Request) -> tuple[int, int]:
        """About how many tokens a request has as it came, and as it leaves."""
        if self._is_warm and len(came.body) + len(leaves.body) <= SMALL_BYTES:
            return self._weigh(came, leaves)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._weigh, came, leaves)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _weigh(self, came: Request, leaves: Request) -> tuple[int, int]:
        before = weight.tokens_of(came, self._tokens)
        after = before if weight.is_same(came, leaves) else weight.tokens_of(leaves, self._tokens)
        self._is_warm = True
        return before, after

    def _tokens(self, text: str) -> int:
        # Python's hash is keyed by a secret of this process: nobody can make two texts look the same.
        key = len(text), hash(text)
        with self._lock:
            known = self._known.pop(key, None)
        counted = self._counted(text) if known is None else known
        with self._lock:
            self._known[key] = counted
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        return counted

    def _counted(self, text: str) -> int:
        if len(text) > MAX_CHARS:
            return tokens.estimate(text)
        first, *rest = tokens.slices(text, SLICE_CHARS)
        counted = self._count(first)
        for piece in rest:
            time.sleep(PAUSE_S)
            counted += self._count(piece)
        return counted
