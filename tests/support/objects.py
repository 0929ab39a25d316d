"""What this process holds in memory: every object that is alive, also those that the collector does not list."""

import gc
from collections.abc import Iterator


def texts_with(pieces: tuple[str, ...]) -> list[str]:
    """Return the type and the length of each string and byte string that holds the pieces, joined.

    Strings, bytes and tuples of them are not in the collector's list: they are found by what refers to them. The pieces
    are joined here, so that no text of the caller's is one of those looked for.
    """
    gc.collect()
    wanted = "".join(pieces)
    raw = wanted.encode()
    return [
        f"{type(each).__name__} of {len(each)}"
        for each in _alive()
        if each is not wanted and each is not raw and (wanted in each if isinstance(each, str) else raw in bytes(each))
    ]


def _alive() -> Iterator[str | bytes | bytearray]:
    """Yield every text that is alive."""
    waiting = gc.get_objects()
    seen = {id(each) for each in waiting}
    found: list[object] = []  # keeps what was made while we look alive, so that no other object gets its id
    seen |= {id(waiting), id(seen), id(found)}
    while waiting:
        each = waiting.pop()
        found.append(each)
        if isinstance(each, str | bytes | bytearray):
            yield each
            continue
        for other in gc.get_referents(each):
            if id(other) not in seen:
                seen.add(id(other))
                waiting.append(other)
