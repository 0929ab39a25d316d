"""Who has to go: what was idle for too long, then whatever was idle longest."""

from dataclasses import dataclass
from sqlite3 import Connection

from kimi_proxy.services.store import records
from kimi_proxy.services.store.clock import LEAP_S, Moment

# What has expired stays this long on disk: a use that another process has yet to write may revive it.
GRACE_S = 60.0
TOMBSTONE_S = 30 * 86_400.0
TOMBSTONE_BYTES = 2048  # of budget for each; they take about a hundred
FORGET_AT_ONCE = 100  # so that no transaction is long


@dataclass(frozen=True, slots=True)
class Retention:
    """How long originals stay idle, and how much room they may take."""

    ttl_s: float
    max_bytes: int

    def is_live(self, last_used: float, moment: Moment) -> bool:
        return moment.earliest - last_used <= self.ttl_s

    def expire(self, connection: Connection, moment: Moment) -> int:
        """Let some of what has expired go; how many went."""
        before = moment.earliest - self.ttl_s - GRACE_S
        idle = records.longest_idle(connection, FORGET_AT_ONCE, before)
        records.forget(connection, idle, moment.latest)
        records.drop_tombstones(connection, moment.earliest - TOMBSTONE_S, self.max_bytes // TOMBSTONE_BYTES)
        if moment.is_certain:
            records.cap_uses(connection, moment.latest, moment.latest + LEAP_S)
        return len(idle)

    def make_room(self, connection: Connection, needed: int, moment: Moment) -> int:
        """Let the longest idle go until `needed` more bytes fit the budget; how many went."""
        gone = 0
        while gone < FORGET_AT_ONCE and records.bytes_used(connection) + needed > self.max_bytes:
            idle = records.longest_idle(connection, 1)
            if not idle:
                break
            records.forget(connection, idle, moment.latest)
            gone += 1
        return gone
