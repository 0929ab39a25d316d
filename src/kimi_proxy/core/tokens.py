"""Exact token counts, offline: the o200k vocabulary comes inside the splintr wheel."""

import re
from collections.abc import Sequence
from functools import cache

from splintr import AnyTokenizer, Tokenizer

# The tokenizer holds the interpreter lock while it works: no slice may take over a few milliseconds.
SLICE_CHARS = 64 * 1024

# Counts add up exactly when a text is cut here: no token of o200k spans such a newline.
_SEAM = re.compile(r"\n(?=[ \t]+\S|[^\s/])")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@cache
def _tokenizer() -> AnyTokenizer:
    tokenizer = Tokenizer.from_pretrained("o200k_base")
    # The first word that isn't in the vocabulary builds its merge table, a tenth of a second with the
    # interpreter lock held: better here, where whoever starts can choose when.
    tokenizer.encode_ordinary("⟦PRUNÉ⟧")
    return tokenizer


def count(text: str) -> int:
    """How many tokens `text` costs."""
    tokenizer = _tokenizer()
    return sum(len(tokenizer.encode_ordinary(piece)) for piece in slices(_sound(text)))


def estimate(text: str) -> int:
    """About how many tokens `text` costs, in no time."""
    return (len(text) + 3) // 4


def count_lines(lines: Sequence[str]) -> list[int]:
    """What each line costs with its newline: a close estimate, since a token may span two lines."""
    tokenizer = _tokenizer()
    out: list[int] = []
    batch: list[str] = []
    size = 0
    for line in lines:
        batch.append(_sound(line) + "\n")
        size += len(line) + 1
        if size >= SLICE_CHARS:
            out += [len(ids) for ids in tokenizer.encode_batch(batch)]
            batch, size = [], 0
    return out + [len(ids) for ids in tokenizer.encode_batch(batch)]


def _sound(text: str) -> str:
    """Lone surrogates cannot be encoded; each costs about what U+FFFD costs."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def slices(text: str, max_chars: int = SLICE_CHARS) -> list[str]:
    """Pieces whose counts add up to the count of `text`, but for a token or so where a line is longer than a piece."""
    pieces: list[str] = []
    start = 0
    while len(text) - start > max_chars:
        seam = _SEAM.search(text, start + max_chars // 2, start + max_chars)
        end = seam.start() + 1 if seam else start + max_chars
        pieces.append(text[start:end])
        start = end
    pieces.append(text[start:])
    return pieces
