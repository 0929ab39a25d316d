"""Texts on disk prove themselves by their hash."""

import hashlib

import pytest

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.sql import CompressedText, compress, decompress


@pytest.mark.parametrize("text", [b"", b"\x00", b"\xed\xa0\x80", b"line\n" * 100_000])
def test_what_is_compressed_comes_out_the_same(text: bytes) -> None:
    compressed = compress(text)
    assert compressed.hash == hashlib.sha256(text).digest()
    assert decompress(compressed) == text


def test_repetitive_text_shrinks() -> None:
    assert len(compress(b"GET /health 200\n" * 10_000).frame) < 1000


@pytest.mark.parametrize(
    "damaged",
    [
        CompressedText(compress(b"text").hash, b""),
        CompressedText(compress(b"text").hash, b"not zstd"),
        CompressedText(compress(b"text").hash, compress(b"text").frame[:-1]),
        CompressedText(compress(b"text").hash, compress(b"test").frame),
    ],
)
def test_what_was_damaged_is_never_given_out(damaged: CompressedText) -> None:
    with pytest.raises(StoreUnavailable, match="damaged on disk"):
        decompress(damaged)
