"""Texts as a store keeps them: compressed, with the hash that they must have when they come out."""

import hashlib
import sys
from contextlib import suppress
from dataclasses import dataclass

from kimi_proxy.core.errors import StoreUnavailable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LEVEL = 3  # logs and code shrink to a quarter or less, at hundreds of megabytes a second


@dataclass(frozen=True, slots=True)
class CompressedText:
    """A zstd frame, and the SHA-256 that its text must have when it comes out."""

    hash: bytes
    frame: bytes


def compress(text: bytes) -> CompressedText:
    return CompressedText(hashlib.sha256(text).digest(), zstd.compress(text, LEVEL))


def decompress(compressed: CompressedText) -> bytes:
    """Return the text, byte for byte; raise StoreUnavailable if the disk gave back something else."""
    try:
        text = zstd.decompress(compressed.frame)
    except zstd.ZstdError as e:
        raise StoreUnavailable(f"this original is damaged on disk ({e}): read the source again") from e
    if hashlib.sha256(text).digest() != compressed.hash:
        raise StoreUnavailable("this original is damaged on disk (wrong hash): read the source again")
    return text


def readable(hashed: bytes, frame: bytes) -> bytes | None:
    """Return the text, or None if the disk gave back something else."""
    with suppress(StoreUnavailable):
        return decompress(CompressedText(hashed, frame))
    return None
