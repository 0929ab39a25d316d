"""Publishes events to every viewer, and waits for none of them."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from kimi_proxy.core import json
from kimi_proxy.core.json import JsonValue

QUEUE = 256  # events that wait for one viewer
HISTORY = 1024  # events that a viewer who comes back can still have
MAX_VIEWERS = 100

# Called with an event's name and its fields: counts, ids and reasons; never a prompt, a key or a tool result.
Publish = Callable[[str, Mapping[str, JsonValue]], None]


def no_op(event: str, fields: Mapping[str, JsonValue]) -> None:
    """Publish nothing."""


@dataclass(frozen=True)
class HubEvent:
    seq: int
    name: str
    at: float
    fields: Mapping[str, JsonValue]

    @cached_property
    def text(self) -> str:
        """Return it as it is sent; made when the first viewer needs it, and the same for all."""
        return frame(self.name, self.seq, self.at, self.fields)


class Viewer:
    """The events that wait for one viewer; when they are too many, the oldest goes, and the viewer gets a gap event."""

    def __init__(self, joined_at: int, missed: list[HubEvent] | None) -> None:
        self.joined_at = joined_at  # the number of the newest event when it came
        self.is_up_to_date = missed is not None  # it knows all that came before what waits for it
        self._waiting: deque[HubEvent] = deque(missed or ())
        self._lost = 0
        self._news = asyncio.Event()
        if self._waiting:
            self._news.set()

    def push(self, event: HubEvent) -> None:
        self._waiting.append(event)
        while len(self._waiting) > QUEUE:
            self._waiting.popleft()
            self._lost += 1
        self._news.set()

    async def next(self) -> str:
        await self._news.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return json.encode({"type": "gap", "seq": self._waiting[0].seq - 1, "missed": lost}).decode()
        event = self._waiting.popleft()
        if not self._waiting:
            self._news.clear()
        return event.text


class Hub:
    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        # Numbers go on after a restart, so that a viewer of the old process is not taken for one of this.
        self._seq = int(now() * 1000)
        self._history: deque[HubEvent] = deque(maxlen=HISTORY)
        self._viewers: set[Viewer] = set()

    def publish(self, event: str, fields: Mapping[str, JsonValue]) -> None:
        self._seq += 1
        published = HubEvent(self._seq, event, self._now(), fields)
        self._history.append(published)
        for viewer in self._viewers:
            viewer.push(published)

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    @property
    def is_crowded(self) -> bool:
        return self.viewers >= MAX_VIEWERS

    @contextmanager
    def joined(self, since: int | None = None) -> Iterator[Viewer]:
        """Yield a viewer of all events after the one numbered `since`, if that is still known, else from now on."""
        viewer = Viewer(self._seq, None if since is None else self._after(since))
        self._viewers.add(viewer)
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)

    def _after(self, since: int) -> list[HubEvent] | None:
        first = self._history[0].seq if self._history else self._seq + 1
        if not first - 1 <= since <= self._seq:
            return None
        missed = [event for event in self._history if event.seq > since]
        return missed if len(missed) <= QUEUE else None


def frame(name: str, seq: int, at: float, fields: Mapping[str, JsonValue]) -> str:
    return json.encode({"type": name, "seq": seq, "at": iso_time(at), **fields}).decode()


def iso_time(at: float) -> str:
    """Return wall time as people and programs read it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
