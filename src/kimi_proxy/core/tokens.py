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
    # interpreter lock held: better here, where the caller can choose when.
    tokenizer.encode_ordinary("⟦PRUNÉ⟧")
    return tokenizer


def count(text: str) -> int:
    """Return the number of tokens of `text`."""
    tokenizer = _tokenizer()
    return sum(len(tokenizer.encode_ordinary(piece)) for piece in slices(_encodable(text)))


def estimate(text: str) -> int:
    """Return about how many tokens `text` has, without the tokenizer."""
    return (len(text) + 3) // 4


def count_lines(lines: Sequence[str]) -> list[int]:
    """Return the tokens of each line with its newline: a close estimate, since a token may span two lines."""
    # One by one: the tokenizer's own batches start threads, and a busy machine lets their caller wait for each of them.
    encode = _tokenizer().encode_ordinary
    return [len(encode(f"{_encodable(line)}\n")) for line in lines]


def _encodable(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded; each costs about as much as U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def slices(text: str, max_chars: int = SLICE_CHARS) -> list[str]:
    """Return pieces whose counts add up to that of `text`, give or take a token where a line is longer than a piece."""
    pieces: list[str] = []
    start = 0
    while len(text) - start > max_chars:
        seam = _SEAM.search(text, start + max_chars // 2, start + max_chars)
        end = seam.start() + 1 if seam else start + max_chars
        pieces.append(text[start:end])
        start = end
    pieces.append(text[start:])
    return pieces
