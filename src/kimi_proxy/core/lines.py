"""Splitting text into lines, and decoding bytes that need not be UTF-8 without losing any.

A line is the text between two `\n`, and nothing else. A final `\n` opens a last, empty line, so that joining the lines
restores the text byte for byte. `str.splitlines` would also cut at `\r`, form feeds and U+2028.

Bytes are decoded line by line: valid UTF-8 as UTF-8, any other line as Windows-1252, which has a character for every
byte. A part of a file therefore reads like the same lines of the whole, and a bad byte affects only its own line.
"""

import codecs
import re
from collections.abc import Iterable, Sequence

SAMPLE_BYTES = 8 * 1024
# What readers of files put before a line, and searches before a hit.
ROW_NUMBER = re.compile(r"\s{0,12}\d{1,7}(?:→|\t|\| ?|: )")
SLICE_CHARS = 256 * 1024  # encoding holds the interpreter lock: other threads get a turn after each slice

# Longer marks first, because UTF-32's begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def split(text: str) -> list[str]:
    return text.split("\n") if text else []


def split_at(text: str, starts: Sequence[int]) -> list[str]:
    """Return the parts of a text that begin at `starts`; joined without anything between them they are the text."""
    return [text[start:end] for start, end in zip(starts, (*starts[1:], len(text)), strict=True)]


def join(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def with_number(number: int, line: str) -> str:
    """Return `line` with its 1-based number in the original text before it."""
    return f"{number}│ {line}"


def pick(lines: Sequence[str], start: int, end: int, with_numbers: bool) -> list[str]:
    """Return lines `start` to `end`, 1-based and inclusive, clamped to the lines there are."""
    chosen = lines[start - 1 : end]
    return [with_number(start + i, line) for i, line in enumerate(chosen)] if with_numbers else list(chosen)


def common_head(one: str, other: str) -> int:
    """Return how many characters two texts share at the start. Comparing slices is much faster than a loop."""
    low = 0
    high = min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def wide_encoding(head: bytes) -> str | None:
    """Return the UTF-16 or UTF-32 that a byte order mark announces."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), None)


def is_binary(head: bytes) -> bool:
    return b"\0" in head[:SAMPLE_BYTES] and wide_encoding(head) is None


def decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "\n".join(_line(line) for line in raw.split(b"\n"))


def encode_text(text: str) -> bytes:
    """Return `text` as UTF-8, lone surrogates passed through, so that `decoded` gives any text back."""
    if len(text) <= SLICE_CHARS:
        return text.encode("utf-8", "surrogatepass")
    slices = (text[at : at + SLICE_CHARS] for at in range(0, len(text), SLICE_CHARS))
    return b"".join(part.encode("utf-8", "surrogatepass") for part in slices)


def decode_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def clip_utf8(raw: bytes, size: int) -> bytes:
    """Return at most `size` bytes of `raw`, without cutting a UTF-8 character in two."""
    if len(raw) <= size:
        return raw
    end = size
    while end > max(0, size - 3) and raw[end] & 0xC0 == 0x80:
        end -= 1
    return raw[:end] if raw[end] & 0xC0 != 0x80 else raw[:size]


def _line(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        # Five bytes have no character in Windows-1252; they keep their number.
        return "".join(_CHARACTERS[byte] for byte in line)


def _character(byte: int) -> str:
    try:
        return bytes([byte]).decode("cp1252")
    except UnicodeDecodeError:
        return chr(byte)


_CHARACTERS = [_character(byte) for byte in range(256)]
