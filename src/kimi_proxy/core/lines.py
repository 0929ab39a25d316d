"""What a line is: the text between two `\\n`, and nothing else.

A final `\\n` opens a last, empty line, so that joining the lines gives the text back
byte for byte. `str.splitlines` would also cut at `\\r`, form feeds and U+2028.
"""

from collections.abc import Iterable, Sequence


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
