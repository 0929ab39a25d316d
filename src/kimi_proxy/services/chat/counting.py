"""Counts the tokens of requests, each text once: a conversation comes again with every turn."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from weakref import WeakKeyDictionary

from kimi_proxy.core import tokens
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.chat import Request
from kimi_proxy.features import context
from kimi_proxy.features.context import Composition, Weigh
from kimi_proxy.features.memory import TextWeight, weigh_text

MAX_KNOWN = 10_000
# A request up to so many bytes, with no more than so many new characters, is counted in the event loop.
SHORT_BYTES, SHORT_CHARS = 256 * 1024, 16 * 1024
SLICE_CHARS = 16 * 1024  # the tokenizer holds the interpreter's lock: less than a millisecond at a time
PAUSE_S = 0.0005
MAX_CHARS = 4_000_000  # of a text; what is longer fits no context window, and counting it would delay all others


class _TooLong(Exception):
    """More is new than can be counted in the event loop."""


class TokenCounter:
    """Counts short requests at once, and the rest in a thread, one request at a time and with many pauses.

    There are two threads, so that a request in flight does not wait for counts that the journal asked for.
    """

    def __init__(self, count: Callable[[str], int] = tokens.count) -> None:
        self._count = count
        self._known: LruCache[tuple[int, int], TextWeight] = LruCache(MAX_KNOWN)
        self._lock = threading.Lock()
        # Several stages ask about the same request; its composition is dropped with the request.
        self._compositions: WeakKeyDictionary[Request, Composition] = WeakKeyDictionary()
        self._urgent = ThreadPoolExecutor(1, thread_name_prefix="counting")
        self._later = ThreadPoolExecutor(1, thread_name_prefix="noting")
        self._is_warm = False  # the first count loads a vocabulary

    async def composition(self, request: Request) -> Composition:
        """Return what a request is made of, in tokens."""
        return await self._of(request, self._urgent)

    async def both(self, received: Request, outgoing: Request) -> tuple[Composition, Composition]:
        """Return the counts of a request as received and as sent, for notes that can wait."""
        before = await self._of(received, self._later)
        if context.is_same(received, outgoing):
            return before, before
        if context.has_same_messages(received, outgoing):  # often our tool is all that differs
            count = partial(context.composition_with_tools, before, outgoing)
            return before, await self._weigh(outgoing, self._later, count)
        return before, await self._of(outgoing, self._later)

    def close(self) -> None:
        for thread in (self._urgent, self._later):
            thread.shutdown(wait=False, cancel_futures=True)

    async def _of(self, request: Request, thread: ThreadPoolExecutor) -> Composition:
        weighed = self._compositions.get(request)
        if weighed is None:
            count = partial(context.composition, request)
            self._compositions[request] = weighed = await self._weigh(request, thread, count)
        return weighed

    async def _weigh(
        self, request: Request, thread: ThreadPoolExecutor, count: Callable[[Weigh], Composition]
    ) -> Composition:
        if self._is_warm and len(request.body) <= SHORT_BYTES:
            with suppress(_TooLong):
                return count(self._in_passing())
        loop = asyncio.get_running_loop()
        weighed = await loop.run_in_executor(thread, count, self._weigh_text)
        self._is_warm = True
        return weighed

    def _in_passing(self) -> Callable[[str], TextWeight]:
        left = SHORT_CHARS

        def weigh(text: str) -> TextWeight:
            nonlocal left
            known = self._known_weight(text)
            if known is not None:
                return known
            left -= len(text)
            if left < 0:
                raise _TooLong
            return self._weigh_text(text)

        return weigh

    def _weigh_text(self, text: str) -> TextWeight:
        weight = self._known_weight(text)
        if weight is None:
            weight = weigh_text(text, self._count_text)
            with self._lock:
                self._known.put(_key(text), weight)
        return weight

    def _known_weight(self, text: str) -> TextWeight | None:
        with self._lock:
            return self._known.get(_key(text))

    def _count_text(self, text: str) -> int:
        if len(text) > MAX_CHARS:
            return tokens.estimate(text)
        first, *rest = tokens.slices(text, SLICE_CHARS)
        counted = self._count(first)
        for piece in rest:
            time.sleep(PAUSE_S)
            counted += self._count(piece)
        return counted


def _key(text: str) -> tuple[int, int]:
    """Python's hash is keyed by a secret of this process: no client can make two texts look the same."""
    return len(text), hash(text)
