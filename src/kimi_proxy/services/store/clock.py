"""The time that a store goes by: a clock that leaps makes nothing expire before a second look confirms it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

LEAP_S = 3600.0  # a clock that moves further than this between two looks has jumped, or slept
CONFIRM_S = 600.0  # how long it must then run on before it is believed


@dataclass(frozen=True, slots=True)
class Moment:
    """It is not before `earliest` and not after `latest`; they differ only while a leap of the clock is in doubt.

    What is used now is stamped with `latest`, what expires is judged by `earliest`:
    in doubt, an original lives longer.
    """

    earliest: float
    latest: float

    @property
    def is_certain(self) -> bool:
        return self.earliest == self.latest


class WallClock:
    """Believes small steps at once, and a leap only when a second look confirms it."""

    def __init__(self, wall: Callable[[], float], last_seen: float | None = None) -> None:
        self._wall = wall
        self._believed = wall() if last_seen is None else last_seen
        self._leapt_to: float | None = None
        self._latest_look = self._believed
        self._lock = threading.Lock()

    def look(self) -> Moment:
        with self._lock:
            wall = self._wall()
            if self._is_believable(wall):
                self._believed, self._leapt_to = wall, None
            self._latest_look = wall
            return Moment(min(wall, self._believed), max(wall, self._believed))

    def _is_believable(self, wall: float) -> bool:
        if abs(wall - self._believed) <= LEAP_S:
            return True
        runs_on = 0 <= wall - self._latest_look <= LEAP_S
        if self._leapt_to is None or not runs_on:
            self._leapt_to = wall
        return wall - self._leapt_to >= CONFIRM_S
