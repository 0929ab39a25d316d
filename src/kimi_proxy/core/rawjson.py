"""Where in a JSON text its values stand, found without copying them."""

from typing import TypeAlias

import msgspec
import numpy as np
from msgspec import Raw

Container: TypeAlias = list[Raw] | dict[str, Raw]

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_CONTAINER: msgspec.json.Decoder[Container] = msgspec.json.Decoder(list[Raw] | dict[str, Raw])


def view(raw: bytes) -> Raw | None:
    """The value that a JSON text is; None if it is none, nests too deep or holds half of a surrogate pair."""
    try:
        return msgspec.json.decode(raw, type=Raw)
    except _UNREADABLE:
        return None


def container(raw: Raw) -> Container:
    """The members of an array or an object as views into `raw`; none if it is neither."""
    try:
        return _CONTAINER.decode(raw)
    except _UNREADABLE:
        return []


def start(view: Raw, of: bytes) -> int:
    """Where a view begins in the text that it looks into."""
    return _address(view) - _address(of)


def size(view: Raw) -> int:
    return len(memoryview(view))


def _address(view: bytes | Raw) -> int:
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address
