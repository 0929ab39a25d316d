"""Whether an answer reached its reader, told to whoever wrote it.

A door calls `collect` before it answers a request, in the request's own context, and `tell` when the answer
was sent or could not be. Where no door collects, an answer counts as sent when it is given.
"""

from collections.abc import Callable
from contextvars import ContextVar

Listener = Callable[[bool], None]

_listeners: ContextVar[list[Listener] | None] = ContextVar("listeners", default=None)


def collect() -> list[Listener]:
    listeners: list[Listener] = []
    _listeners.set(listeners)
    return listeners


def when_sent(listener: Listener) -> None:
    listeners = _listeners.get()
    if listeners is None:
        listener(True)
    else:
        listeners.append(listener)


def tell(listeners: list[Listener], sent: bool) -> None:
    """Each listener is told once."""
    while listeners:
        listeners.pop(0)(sent)
