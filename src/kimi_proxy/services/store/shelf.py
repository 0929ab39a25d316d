"""The originals in one file, by blocking calls that any thread may make."""

import logging
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from kimi_proxy.core.errors import PruneIdNotFound, StoreUnavailable
from kimi_proxy.services.store import records, schema
from kimi_proxy.services.store.clock import Clock, Moment
from kimi_proxy.services.store.database import Connect, connect, reading, writing
from kimi_proxy.services.store.faults import is_damage, translated
from kimi_proxy.services.store.originals import Original, Usage
from kimi_proxy.services.store.packing import unpack
from kimi_proxy.services.store.quarantine import set_aside_files
from kimi_proxy.services.store.retention import Retention
from kimi_proxy.services.store.uses import Uses
from kimi_proxy.services.store.writer import Keep

T = TypeVar("T")

log = logging.getLogger(__name__)


class Shelf:
    """Every call opens the file afresh, so whatever is wrong with it is over as soon as its cause is."""

    def __init__(
        self,
        path: Path,
        retention: Retention,
        now: Callable[[], float],
        patience_s: float,
        connect: Connect = connect,
    ) -> None:
        self._path = path
        self._retention = retention
        self._now = now
        self._patience_s = patience_s
        self._connect = connect
        self._clock = Clock(now, last_seen=0.0)  # in doubt of everything until we have read the file
        self._uses = Uses()
        self._commits = 0
        self.trouble: str | None = None

    def trust_clock(self) -> None:
        """Compare the clock with the newest stamp on file: a leap since then waits for a second look."""
        with self._reading() as connection:
            self._clock = Clock(self._now, records.newest_use(connection))

    def find(self, scope: str, key: bytes) -> str | None:
        moment = self._clock.look()
        with self._reading() as connection:
            ids = records.find(connection, scope, key)
        for id, written in ids:
            if self._retention.is_live(self._uses.last((scope, id), written), moment):
                self._uses.add((scope, id), moment.latest)
                return id
        return None

    def original(self, scope: str, id: str) -> Original:
        moment = self._clock.look()
        with self._reading() as connection:
            found = records.fetch(connection, scope, id)
            has_expired = found is None and records.has_expired(connection, scope, id)
        if found is None:
            raise PruneIdNotFound(id, "expired" if has_expired else "unknown")
        if not self._retention.is_live(self._uses.last((scope, id), found.last_used), moment):
            raise PruneIdNotFound(id, "expired")
        self._uses.add((scope, id), moment.latest)
        return Original(id, scope, found.key, unpack(found.packed), found.about)

    def live(self, scope: str, ids: Collection[str]) -> frozenset[str]:
        moment = self._clock.look()
        with self._reading() as connection:
            written = {
                id: last_used for id in ids if (last_used := records.last_use(connection, scope, id)) is not None
            }
        found = [
            id
            for id, last_used in written.items()
            if self._retention.is_live(self._uses.last((scope, id), last_used), moment)
        ]
        for id in found:
            self._uses.add((scope, id), moment.latest)
        return frozenset(found)

    def commit(self, keeps: Sequence[Keep]) -> int:
        """Write `keeps` and all pending uses in one transaction; how many originals had to go."""
        try:
            with translated(self._path):
                gone = _or_start_afresh(lambda: self._transact(keeps))
        except StoreUnavailable as e:
            self.report(str(e))
            raise
        self.report(None)
        return gone

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What quick queries find."""
        with self._reading() as connection:
            return work(connection)

    def write(self, work: Callable[[sqlite3.Connection, Moment], T]) -> T:
        """Do `work` in a transaction of its own."""

        def transact() -> T:
            moment = self._clock.look()
            with writing(self._path, self._patience_s, self._connect) as connection:
                return work(connection, moment)

        try:
            with translated(self._path):
                return _or_start_afresh(transact)
        except StoreUnavailable as e:
            self.report(str(e))
            raise

    def has_uses_to_write(self) -> bool:
        return bool(self._uses)

    def watch_clock(self) -> None:
        """Between two looks that are far apart, time that has passed can't be told from a leap."""
        self._clock.look()

    def report(self, trouble: str | None) -> None:
        """Remember how we fare, and say so once when it changes."""
        if trouble and trouble != self.trouble:
            log.warning("store_degraded", extra={"path": str(self._path), "trouble": trouble})
        elif self.trouble and not trouble:
            log.info("store_healed", extra={"path": str(self._path)})
        self.trouble = trouble

    def usage(self) -> Usage:
        with self._reading() as connection:
            originals, oldest = records.count(connection)
            size, set_aside = records.bytes_on_disk(connection), set_aside_files(self._path)
        return self._usage(self.trouble, originals, oldest, size, set_aside)

    def sick_usage(self, trouble: str) -> Usage:
        """What can be said without the file."""
        return self._usage(self.trouble or trouble)

    def _usage(
        self,
        trouble: str | None,
        originals: int = 0,
        oldest: float | None = None,
        size: int = 0,
        set_aside: tuple[str, ...] = (),
    ) -> Usage:
        return Usage(
            path=str(self._path),
            state=f"degraded: {trouble}" if trouble else "ok",
            originals=originals,
            oldest=oldest,
            bytes_on_disk=size,
            max_bytes=self._retention.max_bytes,
            commits=self._commits,
            set_aside=set_aside,
        )

    def _transact(self, keeps: Sequence[Keep]) -> int:
        moment = self._clock.look()
        uses = self._uses.pending()
        with writing(self._path, self._patience_s, self._connect) as connection:
            if self.trouble:
                schema.write_a_page(connection)
            records.touch(connection, uses)
            gone = self._retention.expire(connection, moment)
            gone += self._retention.make_room(connection, sum(keep.room for keep in keeps), moment)
            for keep in keeps:
                keep.is_refused = not records.insert(connection, keep.original, keep.packed, moment.latest)
            if not keeps:
                records.give_back_space(connection)
        self._uses.written(uses)
        self._commits += bool(keeps)
        return gone

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with translated(self._path), reading(self._path, self._patience_s, self._connect) as connection:
            yield connection


def _or_start_afresh(transact: Callable[[], T]) -> T:
    try:
        return transact()
    except sqlite3.DatabaseError as e:
        if not is_damage(e):
            raise
    return transact()  # the damaged file is out of the way now
