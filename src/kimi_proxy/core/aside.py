"""Work that is done at once if it is short, and in a thread if the event loop would notice it."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
Value = TypeVar("Value")

# Up to these sizes the work takes a millisecond or two; on a busy machine, waiting for a thread takes longer.
PARSED_BYTES = 1024**2  # of a request, of which most is skipped
TRANSLATED_BYTES = 256 * 1024
HASHED_BYTES = 256 * 1024  # a fifth of a millisecond
COMPRESSED_BYTES = 128 * 1024  # .4 ms
SPLIT_CHARS = 256 * 1024
DECIDED_CHARS = 128 * 1024  # of results whose scores are known
COMPARED_CHARS = 32 * 1024  # lines with those of another text


async def aside(is_short: bool, work: Callable[P, Value], *args: P.args, **kwargs: P.kwargs) -> Value:
    """Return what `work` returns; in a thread unless it is short."""
    if is_short:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
