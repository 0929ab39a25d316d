"""The notes that later requests of a conversation need: in memory, and in one table of the store.

Of requests that are only observed they are in memory alone.
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from kimi_proxy.core.caller import Caller
from kimi_proxy.services.remembered import Memory, Remembered
from kimi_proxy.services.store.protocols import FactKind, FactStore

MAX_NOTES, NOTES_BYTES = 100_000, 32 * 1024**2
ENTRY_BYTES = 100  # about, beside the value

NotePlace = tuple[str, FactKind, bytes]
Wanted = Mapping[FactKind, Collection[bytes]]

# Kinds that every request of a conversation asks for. The others are read once, or belong to no conversation.
REPEATED: frozenset[FactKind] = frozenset({"memory", "routed", "tool", "owed", "thinking", "deferred", "tool_use"})
# A note of these kinds is never changed, so that of another server's it is enough to have seen it once.
FINAL: frozenset[FactKind] = frozenset({"tool", "memory"})


class _Note(NamedTuple):
    value: bytes  # empty: there is none
    session: str  # that it goes with, if that is known
    read_at: float


class Notes:
    """The table of notes, of which those that are asked for with every request are read once.

    Nothing is written to the table, or read from it, for a caller whose requests are only observed.
    """

    def __init__(
        self,
        table: FactStore,
        pending_s: float = 0,  # how long recall results that wait for a request are not read again
        now: Callable[[], float] = time.monotonic,
        is_shared: bool = False,  # other servers write notes, too
        memory: Memory | None = None,
    ) -> None:
        self.is_shared = is_shared
        self._table = table
        self._pending_s = pending_s
        self._now = now
        self._notes: Remembered[NotePlace, _Note] = Remembered(
            memory or Memory(), "notes", size=MAX_NOTES, max_bytes=NOTES_BYTES, forget=_session_of
        )

    def known(self, who: Caller, kind: FactKind, key: bytes) -> bytes | None:
        """Return the note that counts, empty if there certainly is none; None if it has to be read."""
        note = self._notes.get((who.scope, kind, key))
        if who.is_observed:
            return note.value if note else b""
        if note is None or kind not in REPEATED:
            return None
        if self.is_shared and not (note.value and kind in FINAL):
            return None
        if kind == "owed" and self._now() - note.read_at >= self._pending_s:
            return None
        return note.value

    def last(self, who: Caller, kind: FactKind, key: bytes) -> bytes:
        """Return the note as it was last seen, for when the store cannot be read; empty if it was not."""
        note = self._notes.get((who.scope, kind, key))
        return note.value if note else b""

    def assume(self, who: Caller, kind: FactKind, key: bytes, value: bytes, session: str = "") -> None:
        """Remember a note, or with an empty value that there is none, whatever becomes of it on disk."""
        note = _Note(value, session, self._now())
        self._notes.put((who.scope, kind, key), note, ENTRY_BYTES + len(value))

    def forget(self, who: Caller, kind: FactKind, key: bytes) -> None:
        """Forget what is known of a note: the next request reads it."""
        self._notes.forget((who.scope, kind, key))

    async def read(self, who: Caller, wanted: Wanted) -> Mapping[FactKind, Mapping[bytes, bytes]]:
        """Return all these notes with one read; later requests of the conversation find them in memory."""
        known: dict[FactKind, dict[bytes, bytes]] = {kind: {} for kind in wanted}
        unread: dict[FactKind, list[bytes]] = {}
        for kind, keys in wanted.items():
            for key in keys:
                value = self.known(who, kind, key)
                if value is None:
                    unread.setdefault(kind, []).append(key)
                elif value:
                    known[kind][key] = value
        found = await self._table.read(who, unread) if unread else {}
        for kind, keys in unread.items():
            values = found.get(kind, {})
            known[kind].update(values)
            if kind in REPEATED:
                for key in keys:
                    self.assume(who, kind, key, values.get(key, b""))
        return known

    async def get(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> Mapping[bytes, bytes]:
        return (await self.read(who, {kind: keys}))[kind]

    async def put_if_absent(
        self, who: Caller, kind: FactKind, facts: Mapping[bytes, bytes], session: str | Mapping[bytes, str] = ""
    ) -> Mapping[bytes, bytes]:
        if who.is_observed:
            won = {key: self.last(who, kind, key) or value for key, value in facts.items()}
        else:
            won = dict(await self._table.put_if_absent(who, kind, facts, session))
        if who.is_observed or kind in REPEATED:
            for key, value in won.items():
                self.assume(who, kind, key, value, session if isinstance(session, str) else session[key])
        return won

    async def delete(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> None:
        for key in keys:
            self.forget(who, kind, key)
        if not who.is_observed:
            await self._table.delete(who, kind, keys)


def _session_of(place: NotePlace, note: _Note) -> str | None:
    """Observed notes go with their session, or stay; all others are read again after any deletion of their person's."""
    return (note.session or None) if Caller(place[0]).is_observed else ""
