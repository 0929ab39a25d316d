"""How long to wait before something that crashed is started again."""

from collections.abc import Callable

FIRST_S = 0.5
LONGEST_S = 30.0
STEADY_S = 60.0  # whatever lived this long did not crash for the old reason
HOPELESS = 5  # crashes in a row after which nobody is kept waiting


class Backoff:
    """The first restart comes at once, the next after 0.5 s, then twice as long each time, up to 30 s."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._crashes = 0
        self._not_before = 0.0

    @property
    def crashes(self) -> int:
        return self._crashes

    @property
    def is_hopeless(self) -> bool:
        return self._crashes >= HOPELESS

    @property
    def wait_s(self) -> float:
        return max(0.0, self._not_before - self._now())

    def crashed(self, lived_s: float) -> None:
        self._crashes = 1 if lived_s >= STEADY_S else self._crashes + 1
        pause = 0.0 if self._crashes == 1 else min(FIRST_S * 2.0 ** (self._crashes - 2), LONGEST_S)
        self._not_before = self._now() + pause
