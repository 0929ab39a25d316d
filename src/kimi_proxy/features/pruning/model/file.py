"""The model file: a first line that says what it is and what its bytes add up to, then the trees, packed."""

import zlib
from hashlib import sha256

import msgspec

from kimi_proxy.features.pruning.model.trees import Forests
from kimi_proxy.features.pruning.model.walk import ODDS_STEPS

KIND = b"kimi-proxy scorer 1 "
MAX_BYTES = 1024**2
_PACKED_MAX_BYTES = 16 * 1024**2

_forests = msgspec.json.Decoder(Forests)


class ModelRefused(ValueError):
    """Bytes that are not a model of ours, or no longer."""


def write(forests: Forests) -> bytes:
    packed = zlib.compress(msgspec.json.encode(forests, order="deterministic"), 9)
    return KIND + sha256(packed).hexdigest().encode() + b"\n" + packed


def read(raw: bytes) -> Forests:
    """The forests in a file that `write` made; any byte that differs is a ModelRefused."""
    first, _, packed = raw.partition(b"\n")
    if not first.startswith(KIND) or len(raw) > MAX_BYTES:
        raise ModelRefused("it is not a scorer of this version")
    if first[len(KIND) :] != sha256(packed).hexdigest().encode():
        raise ModelRefused("its checksum does not match its bytes")
    try:
        forests: Forests = _forests.decode(zlib.decompressobj().decompress(packed, _PACKED_MAX_BYTES))
        _check(forests)
    except (zlib.error, msgspec.DecodeError, ValueError) as e:
        raise ModelRefused(f"it cannot be read: {e}") from e
    return forests


def _check(forests: Forests) -> None:
    for forest in forests.values():
        if len(forest.odds) != ODDS_STEPS:
            raise ValueError("odds of another length")
        for tree in forest.trees:
            tree.check(len(forest.signals))
