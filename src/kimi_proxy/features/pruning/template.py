"""The shape of a log line: what is left when its numbers, names and times are taken out."""

import re
from collections.abc import Iterable

from kimi_proxy.core.lines import split

LINE_CHARS = 400

_ZEROS = str.maketrans("123456789", "000000000")
_RUN_OF_ZEROS = re.compile("00+")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_QUOTED = re.compile(r'"[^"]{0,200}"')
_APOSTROPHES = re.compile(r"'[^']{0,200}'(?!\w)")
_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[\w.@+~-]*[/\\]){2,}[\w.@+~-]*")
_HEX = re.compile(r"\b(?:0x)?[0-9a-fA-F]{8,}(?:(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})?\b")
_DIGITS = re.compile(r"\w*0[\w.:,+-]*")
_VALUE = re.compile(r"=[^,;)\]}&]+")


def template(line: str) -> str:
    """`line` with quoted strings, paths, ids, values and whatever holds a digit replaced by `*`."""
    return templates([line])[0]


def templates(lines: Iterable[str]) -> list[str]:
    """The template of each line: each different word is looked at once, so this takes microseconds a line."""
    # Translating costs the same for a line as for thousands.
    plain = [_plain(line) for line in lines]
    shape = _Shapes().__getitem__
    return [" ".join(map(shape, line.split())) for line in split("\n".join(plain).translate(_ZEROS))] or plain


def rough(line: str) -> str:
    """`line` with every number read as 0: a cheap key under which most lines of one template meet."""
    return _RUN_OF_ZEROS.sub("0", line[:LINE_CHARS].translate(_ZEROS))


def _plain(line: str) -> str:
    """`line` on one line, without colours and quotations."""
    line = line[:LINE_CHARS]
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    if '"' in line:
        line = _QUOTED.sub("*", line)
    if "'" in line:
        line = _APOSTROPHES.sub("*", line)
    return line.replace("\n", " ")


class _Shapes(dict[str, str]):
    """From a word whose digits are all 0 to its shape."""

    def __missing__(self, word: str) -> str:
        shape = word
        if "=" in shape:
            shape = _VALUE.sub("=*", shape)
        if "/" in shape or "\\" in shape:
            shape = _PATH.sub("*", shape)
        if len(shape) >= 8:
            shape = _HEX.sub("*", shape)
        if "0" in shape:
            shape = _DIGITS.sub("*", shape)
        self[word] = shape
        return shape
