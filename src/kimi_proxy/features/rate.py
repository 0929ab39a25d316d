"""How often somebody may be asked: a bucket that fills as time passes."""

from dataclasses import dataclass

MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Rate:
    """`per_minute` requests may come at once, and then as many as trickle in; 0 sets no limit."""

    per_minute: int
    spent: float = 0.0
    counted_at: float = 0.0

    def wait_s(self, now: float) -> float:
        """Seconds until the next request may leave; 0 if one may now."""
        if self.per_minute == 0:
            return 0.0
        return max(0.0, (self._spent(now) + 1 - self.per_minute) * MINUTE_S / self.per_minute)

    def taken(self, now: float) -> "Rate":
        return self if self.per_minute == 0 else Rate(self.per_minute, self._spent(now) + 1, now)

    def _spent(self, now: float) -> float:
        return max(0.0, self.spent - max(0.0, now - self.counted_at) * self.per_minute / MINUTE_S)
