"""Texts as they lie on disk: zstd frames, named by the SHA-256 of what they hold."""

import hashlib
import sys
from dataclasses import dataclass

from kimi_proxy.core.errors import StoreUnavailable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LEVEL = 3  # logs and code shrink to a quarter or less, at hundreds of megabytes a second


@dataclass(frozen=True, slots=True)
class Packed:
    """A compressed text, and the hash that it must have when it comes out."""

    hash: bytes
    frame: bytes


def pack(text: bytes) -> Packed:
    return Packed(hashlib.sha256(text).digest(), zstd.compress(text, LEVEL))


def unpack(packed: Packed) -> bytes:
    """The text, byte for byte; StoreUnavailable if the disk gave back something else."""
    try:
        text = zstd.decompress(packed.frame)
    except zstd.ZstdError as e:
        raise StoreUnavailable(f"this original is damaged on disk ({e}): read the source again") from e
    if hashlib.sha256(text).digest() != packed.hash:
        raise StoreUnavailable("this original is damaged on disk (wrong hash): read the source again")
    return text
