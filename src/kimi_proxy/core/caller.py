"""Who calls: the person behind a request, and the scope of all that is kept for them.

Without a team there is one caller, LOCAL. With one, the guard names the caller of every request; what runs without
naming one is LOCAL still, to whom the store of a team gives nothing (services/team/store.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

LOCAL_SCOPE = "local"


@dataclass(frozen=True, slots=True)
class Caller:
    """A person, by name, and the scopes that are theirs. The first is where their texts are kept."""

    scope: str = LOCAL_SCOPE
    person: str = ""
    team: str = ""
    is_admin: bool = True
    also_reads: tuple[str, ...] = ()

    @property
    def scopes(self) -> tuple[str, ...]:
        """Return every scope whose texts this person may read."""
        return (self.scope, *self.also_reads)


LOCAL = Caller()

_CURRENT: ContextVar[Caller] = ContextVar("caller", default=LOCAL)


def current() -> Caller:
    """Return who calls, in the request or the task that runs now; LOCAL if that was not said."""
    return _CURRENT.get()


def scope() -> str:
    """Return the scope in which texts are kept now."""
    return _CURRENT.get().scope


@contextmanager
def acting(caller: Caller) -> Iterator[None]:
    """Let `caller` be who calls, inside the block and in the tasks that are made in it."""
    before = _CURRENT.set(caller)
    try:
        yield
    finally:
        _CURRENT.reset(before)
