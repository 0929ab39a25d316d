"""Long lists in pieces: nothing holds a lock, a statement or the event loop for all of one."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def in_batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield the items in their order, up to `size` at a time."""
    return (items[at : at + size] for at in range(0, len(items), size))
