"""What a server tells of a request while it works on it, passed to whoever waits for the answer.

A door calls `listen` in the request's own context, and whoever speaks to the server finds the listener there.
"""

from collections.abc import Callable
from contextvars import ContextVar

from kimi_proxy.core.types import JsonObject

Listener = Callable[[JsonObject], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def listen(heard: Listener) -> None:
    _listener.set(heard)


def listener() -> Listener | None:
    return _listener.get()
