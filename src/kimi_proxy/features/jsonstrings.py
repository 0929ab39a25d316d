"""Where the long strings of a JSON text are, found without building what it describes."""

import re
from collections.abc import Iterator

import numpy as np

_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_COLON = re.compile(r"\s*:")


def long_values(text: str, max_chars: int) -> Iterator[tuple[int, int]]:
    """The spans, quotes included, of the string values with more than `max_chars` between their quotes.

    `text` is valid JSON: outside of strings there are no quotes and no backslashes.
    """
    # Once pairs of backslashes are gone, a backslash before a quote is there to escape it.
    plain = text.replace("\\\\", "__")
    codes = (
        np.frombuffer(plain.encode("latin-1"), np.uint8)
        if plain.isascii()
        else np.frombuffer(plain.encode("utf-32-le", "surrogatepass"), np.uint32)
    )
    quotes = np.flatnonzero(codes == _QUOTE)
    quotes = quotes[(quotes == 0) | (codes[quotes - 1] != _BACKSLASH)]
    openings, closings = quotes[::2], quotes[1::2]
    for i in np.flatnonzero(closings - openings - 1 > max_chars):
        start, end = int(openings[i]), int(closings[i]) + 1
        if not _COLON.match(text, end):
            yield start, end
