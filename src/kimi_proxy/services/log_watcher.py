"""Reads the token counts in the logs of agents as they are written; only where the settings say so."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kimi_proxy.core.chat.page import string_of
from kimi_proxy.core.log_watcher import LogWatcher as Settings
from kimi_proxy.features import metering
from kimi_proxy.features.logcounts.belonging import Belonging
from kimi_proxy.features.logcounts.continue_log import ContinueLog
from kimi_proxy.features.logcounts.count import LogCount
from kimi_proxy.features.logcounts.kimi_cli import KimiContext, KimiLog
from kimi_proxy.features.metering import Metric
from kimi_proxy.features.pipeline import Draft
from kimi_proxy.services import chat
from kimi_proxy.services.hub import Publish, unheard
from kimi_proxy.services.tail import Tail

EVENT = "log_count"
MAX_CONVERSATIONS = 16  # of Kimi CLI, the ones that were written to last
LOOK_FOR_MORE_S = 2.0
CONTEXTS = "*/*/context.jsonl"


class Reader(Protocol):
    def feed(self, line: str) -> LogCount | None: ...
    def idle(self) -> LogCount | None: ...


@dataclass(frozen=True, slots=True)
class _Watched:
    tail: Tail
    reader: Reader

    def counts(self) -> Iterator[LogCount]:
        lines = self.tail.lines()
        told = [self.reader.feed(line) for line in lines] if lines else [self.reader.idle()]
        return (count for count in told if count is not None)


class LogWatcher:
    """One task looks at every file in turn; the disk is read in a thread."""

    def __init__(self, settings: Settings, publish: Publish = unheard, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._publish = publish
        self._now = now
        self._belonging = Belonging()
        self._logs = [
            _Watched(Tail(Path(settings.continue_log).expanduser()), ContinueLog()),
            _Watched(Tail(Path(settings.kimi_log).expanduser()), KimiLog()),
        ]
        self._contexts: dict[Path, _Watched] = {}
        self._is_later = False  # conversations that appear after the first look are read from their beginning
        self._looks_at = 0.0
        self._closing = asyncio.Event()
        self._watching = asyncio.create_task(self._watch()) if settings.enabled else None

    def began(self, came: Draft, leaves: Draft) -> chat.Ended:
        """A request of a session goes by. Kimi CLI names its conversation in it, as the key of the cache."""
        if self._watching is not None:
            key = string_of(came.request.page.members.get("prompt_cache_key"))
            self._belonging.talked(came.session.id, self._now(), key[:200])
        return chat.unheard

    def beats(self, newest: Metric | None, session: str) -> LogCount | None:
        """What a log says of a session, as long as that is worth more than our own count."""
        return self._belonging.beats(newest, session, self._now())

    async def close(self) -> None:
        """A look that is under way comes to its end: it reads the files that are closed after it."""
        self._closing.set()
        if self._watching is not None:
            await asyncio.wait([self._watching])
        for watched in (*self._logs, *self._contexts.values()):
            watched.tail.close()

    async def _watch(self) -> None:
        while not self._closing.is_set():
            for count in await asyncio.to_thread(self._look):
                self._tell(count)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.poll_ms / 1000):
                    await self._closing.wait()

    def _look(self) -> list[LogCount]:
        self._find_conversations()
        counts: dict[tuple[str, str], LogCount] = {}
        for watched in (*self._logs, *self._contexts.values()):
            # Of several since the last look the newest is what is so now.
            counts |= {(count.source, count.conversation): count for count in watched.counts()}
        return list(counts.values())

    def _find_conversations(self) -> None:
        if (now := time.monotonic()) < self._looks_at:
            return
        self._looks_at = now + LOOK_FOR_MORE_S
        newest = set(_newest(Path(self._settings.kimi_sessions).expanduser()))
        for path in self._contexts.keys() - newest:
            self._contexts.pop(path).tail.close()
        for path in newest - self._contexts.keys():
            self._contexts[path] = _Watched(Tail(path, self._is_later), KimiContext(path.parent.name))
        self._is_later = True

    def _tell(self, count: LogCount) -> None:
        session = self._belonging.take(count, self._now())
        self._publish(
            EVENT,
            {
                "source": count.source,
                "session_id": session,
                "tokens": count.tokens,
                "max_context": count.max_context,
                "percent": metering.percent(count.tokens, count.max_context),
                "counted_by": "log",
            },
        )


def _newest(folder: Path) -> list[Path]:
    found: list[tuple[float, Path]] = []
    with suppress(OSError):
        for path in folder.glob(CONTEXTS):
            with suppress(OSError):  # it went away meanwhile
                found.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)[:MAX_CONVERSATIONS]]
