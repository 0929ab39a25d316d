"""Publishes events to every viewer, and waits for none of them."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from secrets import randbelow

from kimi_proxy.core import json
from kimi_proxy.core.caller import LOCAL_SCOPE, Caller

QUEUE = 256  # events that wait for one viewer
HISTORY = 1024  # events kept for a viewer that reconnects
MAX_VIEWERS = 100
MAX_VIEWERS_EACH = 20  # of one person of a team: the others must find room
SERVERS = 512  # whose numbers differ
TITLED = frozenset({"session_created", "session_renamed"})  # events with the title of a session: its first words
FIRST_TIME = datetime.fromtimestamp(0, UTC)
LAST_TIME = datetime.max.replace(tzinfo=UTC)

# Called with whose event it is, its name and its fields: counts, ids and reasons; never a prompt or a tool result.
Publish = Callable[[Caller, str, Mapping[str, object]], None]


def no_op(who: Caller, event: str, fields: Mapping[str, object]) -> None:
    """Publish nothing."""


class LazyFields(Mapping[str, object]):
    """The fields of an event, made when the first viewer needs them: of most events there is none."""

    def __init__(self, make: Callable[[], Mapping[str, object]]) -> None:
        self._make: Callable[[], Mapping[str, object]] | None = make
        self._made: Mapping[str, object] = {}

    def __getitem__(self, name: str) -> object:
        return self._fields()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields())

    def __len__(self) -> int:
        return len(self._fields())

    def _fields(self) -> Mapping[str, object]:
        if self._make is not None:
            self._made = self._make()
            self._make = None
        return self._made


@dataclass(frozen=True)
class HubEvent:
    seq: int
    name: str
    at: float
    fields: Mapping[str, object]
    scope: str = LOCAL_SCOPE  # whose it is
    person_id: str = ""  # of whom it is, also where a team shares; empty if another server published it

    @cached_property
    def text(self) -> str:
        """Return the encoded event; encoded once, when the first viewer needs it."""
        return frame(self.name, self.seq, self.at, self.fields)

    @cached_property
    def figures(self) -> str:
        """Return another person's event as an admin sees it: who and how much, but no text that anyone wrote."""
        return frame(self.name, self.seq, self.at, {**without_words(self.fields), "owner": self.scope})

    def text_for(self, viewer: Caller) -> str | None:
        """Return what `viewer` may see of it; None if that is nothing."""
        if self.scope in viewer.scopes:
            return self.text
        return self.figures if viewer.is_admin else None


class Viewer:
    """The queue of events for one viewer; if it is full, the oldest is dropped, and the viewer gets a gap event."""

    def __init__(self, who: Caller, joined_at: int, missed: list[HubEvent] | None, step: int = 1) -> None:
        self._step = step  # between the numbers of two events
        self.who = who
        self.joined_at = joined_at  # the number of the newest event at that time
        self.is_up_to_date = missed is not None  # it has received everything before the queued events
        self._waiting: deque[HubEvent] = deque(filter(self._sees, missed or ()))
        self._lost = 0
        self._news = asyncio.Event()
        if self._waiting:
            self._news.set()

    def _sees(self, event: HubEvent) -> bool:
        return event.text_for(self.who) is not None

    def push(self, event: HubEvent) -> None:
        if not self._sees(event):
            return
        self._waiting.append(event)
        while len(self._waiting) > QUEUE:
            self._waiting.popleft()
            self._lost += 1
        self._news.set()

    def drop(self, is_meant: Callable[[HubEvent], bool]) -> None:
        """Drop waiting events that are meant."""
        self._waiting = deque(event for event in self._waiting if not is_meant(event))
        if not self._waiting:
            self._news.clear()

    async def next(self) -> str:
        while not self._waiting:
            await self._news.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return json.encode({"type": "gap", "seq": self._waiting[0].seq - self._step, "missed": lost}).decode()
        event = self._waiting.popleft()
        if not self._waiting:
            self._news.clear()
        return event.text_for(self.who) or ""


class Hub:
    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        # Numbers go on after a restart, so that a viewer of the old process is not taken for one of this.
        self._seq = int(now() * 1000)
        self._history: deque[HubEvent] = deque(maxlen=HISTORY)
        self._viewers: set[Viewer] = set()
        self._step = 1
        self._pass_on: Callable[[HubEvent], None] | None = None

    def publish(self, who: Caller, event: str, fields: Mapping[str, object]) -> None:
        published = self.show(who.scope, event, self._now(), fields, who.person_id)
        if self._pass_on is not None:
            self._pass_on(published)

    def share(self, pass_on: Callable[[HubEvent], None], draw: Callable[[int], int] = randbelow) -> None:
        """Share events with the viewers of other servers, before there are any.

        From now on numbers identify their server, so that a viewer that reconnects to another server is not assumed to
        have seen the same events.
        """
        self._step = SERVERS
        self._pass_on = pass_on
        self._seq = self._seq * SERVERS + draw(SERVERS)

    def show(self, scope: str, event: str, at: float, fields: Mapping[str, object], person_id: str = "") -> HubEvent:
        """Show an event, which may be another server's, to the viewers of this one."""
        self._seq += self._step
        published = HubEvent(self._seq, event, at, fields, scope, person_id)
        self._history.append(published)
        for viewer in self._viewers:
            viewer.push(published)
        return published

    def forget(self, who: Caller, session: str | None) -> None:
        """Forget the titles of a session that was deleted, or of all of a person's."""

        def is_meant(event: HubEvent) -> bool:
            about = event.fields.get("session") if event.name in TITLED and event.scope == who.scope else None
            return isinstance(about, Mapping) and session in (None, about.get("id"))

        self._history = deque((event for event in self._history if not is_meant(event)), HISTORY)
        for viewer in self._viewers:
            viewer.drop(is_meant)

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def is_crowded(self, who: Caller) -> bool:
        """Return whether there is no room for another viewer, of all or of this member of a team."""
        own = sum(viewer.who.person_id == who.person_id for viewer in self._viewers) if who.person_id else 0
        return self.viewers >= MAX_VIEWERS or own >= MAX_VIEWERS_EACH

    @contextmanager
    def join(self, who: Caller, since: int | None = None) -> Iterator[Viewer]:
        """Yield a viewer of all events after the one numbered `since`, if that is still known, else from now on."""
        viewer = Viewer(who, self._seq, None if since is None else self._after(since), self._step)
        self._viewers.add(viewer)
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)

    def _after(self, since: int) -> list[HubEvent] | None:
        first = self._history[0].seq if self._history else self._seq + self._step
        if not first - self._step <= since <= self._seq or (self._seq - since) % self._step:
            return None
        missed = [event for event in self._history if event.seq > since]
        return missed if len(missed) <= QUEUE else None


# Of another person's event: these are names that settings and programs give, and no one's words.
PLAIN = frozenset(
    """
    id session_id request_id provider model api outcome finish counted_by level created_at last_used_at at reasons
    from to kind budget per person team
    """.split()
)


def without_words(fields: Mapping[str, object]) -> dict[str, object]:
    """Return `fields` without every text that is not known to be a plain name or a time."""
    return {name: _figures(name, value) for name, value in fields.items()}


def _figures(name: str, value: object) -> object:
    if isinstance(value, Mapping):
        return without_words(value)
    if isinstance(value, list | tuple):
        return [_figures(name, one) for one in value]
    return "" if isinstance(value, str) and name not in PLAIN else value


def frame(name: str, seq: int, at: float, fields: Mapping[str, object]) -> str:
    return json.encode({"type": name, "seq": seq, "at": iso_time(at), **fields}).decode()


def iso_time(at: float) -> str:
    """Return wall time as people and programs read it; a number that is no time becomes the first or the last one."""
    try:
        moment = datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):  # an absurd number must not make a page unreadable
        moment = LAST_TIME if at > 0 else FIRST_TIME
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
