"""What a line is: the text between two `\n`, and nothing else.

A final `\n` opens a last, empty line, so that joining the lines gives the text back
byte for byte. `str.splitlines` would also cut at `\r`, form feeds and U+2028."""

import codecs
from collections.abc import Iterable, Sequence

# What a line is: the text between two `\n`, and nothing else.
#
# A final `\n` opens a last, empty line, so that joining the lines gives the text back
# byte for byte. `str.splitlines` would also cut at `\r`, form feeds and U+2028.


def split(text: str) -> list[str]:
    return text.split("\n") if text else []


def join(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def numbered(number: int, line: str) -> str:
    """`line` behind its 1-based number in the original text."""
    return f"{number}│ {line}"


def pick(lines: Sequence[str], start: int, end: int, with_numbers: bool) -> list[str]:
    """Lines `start` to `end`, 1-based and inclusive, clamped to what there is."""
    chosen = lines[start - 1 : end]
    return [numbered(start + i, line) for i, line in enumerate(chosen)] if with_numbers else list(chosen)


def common_head(one: str, other: str) -> int:
    """How many characters; halving, because comparing slices is much faster than a loop over characters."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# How bytes from a disk or a pipe become text that a model can read.
#
# Each line speaks for itself: valid UTF-8 is read as UTF-8, any other line as Windows-1252, which
# gives every byte a character of its own. So a window of a file reads like the same lines of the
# whole file, and one bad byte does not spoil its neighbours.

SAMPLE_BYTES = 8 * 1024

# The longer marks first: UTF-32's begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def wide(head: bytes) -> str | None:
    """The encoding of more than a byte a character that a byte order mark announces."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), None)


def is_binary(head: bytes) -> bool:
    return b"\0" in head[:SAMPLE_BYTES] and wide(head) is None


def decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "\n".join(_line(line) for line in raw.split(b"\n"))


def clip(raw: bytes, size: int) -> bytes:
    """At most `size` bytes of `raw`, without cutting a UTF-8 character in two."""
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
