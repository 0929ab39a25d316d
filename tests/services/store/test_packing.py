"""Texts on disk prove themselves by their hash."""

import hashlib

import pytest

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.sqlite.database import Packed, pack, unpack


@pytest.mark.parametrize("text", [b"", b"\x00", b"\xed\xa0\x80", b"line\n" * 100_000])
def test_what_is_packed_comes_out_the_same(text: bytes) -> None:
    packed = pack(text)
    assert packed.hash == hashlib.sha256(text).digest()
    assert unpack(packed) == text


def test_repetitive_text_shrinks() -> None:
    assert len(pack(b"GET /health 200\n" * 10_000).frame) < 1000


@pytest.mark.parametrize(
    "damaged",
    [
        Packed(pack(b"text").hash, b""),
        Packed(pack(b"text").hash, b"not zstd"),
        Packed(pack(b"text").hash, pack(b"text").frame[:-1]),
        Packed(pack(b"text").hash, pack(b"test").frame),
    ],
)
def test_what_was_damaged_is_never_given_out(damaged: Packed) -> None:
    with pytest.raises(StoreUnavailable, match="damaged on disk"):
        unpack(damaged)
