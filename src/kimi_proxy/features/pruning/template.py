"""The shape of a log line: what is left when its numbers, names and times are taken out."""

import re

LINE_CHARS = 400

_VARIABLE = re.compile(
    r"""
    "[^"]{0,200}" | '[^']{0,200}'
    | \b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{20,27}\b
    | (?<![\w/])(?:/[\w.@+-]+){2,}/?
    | \b0x[0-9a-fA-F]+\b
    | \b(?=[a-f]*[0-9])[0-9a-f]{7,64}\b
    | \w*\d[\w.:,-]*
    """,
    re.VERBOSE,
)
_ZEROS = str.maketrans("123456789", "000000000")
_RUN_OF_ZEROS = re.compile("00+")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def template(line: str) -> str:
    """`line` with quoted strings, paths, ids and whatever holds a digit replaced by `*`."""
    return _VARIABLE.sub("*", _COLOUR.sub("", line[:LINE_CHARS])).strip()


def rough(line: str) -> str:
    """`line` with every number read as 0: a cheap key under which most lines of one template meet."""
    return _RUN_OF_ZEROS.sub("0", line[:LINE_CHARS].translate(_ZEROS))
