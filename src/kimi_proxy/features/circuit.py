"""When to leave a server alone that keeps failing, and when to try it again."""

from dataclasses import dataclass

THRESHOLD = 5
HALF_LIFE_S = 30.0
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class Circuit:
    """Failures that fade with time. Five in short order open the circuit; a success closes it for good."""

    failures: float = 0.0
    counted_at: float = 0.0
    pauses: int = 0
    closed_at: float = 0.0

    def blocked_for(self, now: float) -> float:
        """Seconds until the next call may try; 0 if one may now."""
        return max(0.0, self.closed_at - now)

    def tried(self, now: float) -> "Circuit":
        """A call leaves. After a pause it leaves alone: the others wait for what becomes of it."""
        if self.pauses == 0:
            return self
        return Circuit(self.failures, self.counted_at, self.pauses, now + FIRST_PAUSE_S)

    def failed(self, now: float) -> "Circuit":
        faded = self.failures * 0.5 ** (max(0.0, now - self.counted_at) / HALF_LIFE_S)
        failures = faded + 1
        # Five failures within a second or two have faded to a little less than five.
        if failures < THRESHOLD - 0.5 and self.pauses == 0:
            return Circuit(failures, now)
        pause_s = min(FIRST_PAUSE_S * 2.0**self.pauses, LONGEST_PAUSE_S)
        return Circuit(failures, now, self.pauses + 1, now + pause_s)

    def succeeded(self) -> "Circuit":
        return self if self == CLOSED else CLOSED


CLOSED = Circuit()
