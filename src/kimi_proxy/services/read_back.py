"""Counts what the model reads back within an answer."""

from collections.abc import Callable
from dataclasses import replace

from kimi_proxy.core.chat import Wire, usage
from kimi_proxy.core.types import JsonValue
from kimi_proxy.features.accounting.account import Recalled

Heard = Callable[[Recalled], None]  # told what was read back so far


def unheard(recalled: Recalled) -> None:
    """Where nobody counts."""


class Tally:
    """Tells at once: a client may hang up at any time."""

    def __init__(self, wire: Wire, heard: Heard) -> None:
        self._wire = wire
        self._heard = heard
        self._recalled = Recalled()

    def turned(self, calls: int, spent: JsonValue) -> None:
        """The provider is asked again; `spent` is what it counted so far."""
        so_far = self._recalled
        first = so_far.first if so_far.turns else usage.READERS[self._wire](spent)
        self._tell(Recalled(so_far.calls + calls, so_far.turns + 1, first))

    def owed(self, calls: int) -> None:
        """What is read back goes into a later request."""
        self._tell(replace(self._recalled, calls=self._recalled.calls + calls))

    def _tell(self, recalled: Recalled) -> None:
        self._recalled = recalled
        self._heard(recalled)
