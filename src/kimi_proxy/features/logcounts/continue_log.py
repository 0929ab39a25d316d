"""Continue's core.log: what a request weighed that was too heavy to be sent.

Not enough context available to include the system message, last user message, and tools.
        There must be at least 1000 tokens remaining for output.
        Request had the following token counts:
        - contextLength: 32768
        - counting safety buffer: 655
        - tools: ~9500
        - system message: ~24000
        - max output tokens: 4096
"""

import re

from kimi_proxy.features.logcounts.count import LogCount, is_count

SOURCE = "continue"

_HEAD = "Request had the following token counts"
_FIELD = re.compile(r"\s*-\s+([A-Za-z][A-Za-z ]{0,40}):\s+~?(\d{1,13})\b", re.ASCII)
# The end of a line that stands in quotes of a language, such as a log of JSON: \n is two characters there.
_ESCAPED_LINE = "\\n"
_MAX_FIELDS = 12
# Of the model's window, kept free for its answer: these are no tokens of the request.
_ROOM = frozenset({"contextlength", "counting safety buffer", "max output tokens"})


class ContinueLog:
    """Fed line by line; a block ends with the first line that is none of its fields."""

    def __init__(self) -> None:
        self._fields: dict[str, int] | None = None

    def feed(self, line: str) -> LogCount | None:
        pieces = line.split(_ESCAPED_LINE) if _HEAD in line else [line]
        counted = [count for piece in pieces if (count := self._take(piece)) is not None]
        return counted[-1] if counted else None

    def idle(self) -> LogCount | None:
        """Nothing more has come for a while: a block at the end of the file is over."""
        return self._end()

    def _take(self, line: str) -> LogCount | None:
        if _HEAD in line:
            ended, self._fields = self._end(), {}
            return ended
        if self._fields is None:
            return None
        found = _FIELD.match(line)
        if found is None or len(self._fields) >= _MAX_FIELDS:
            return self._end()
        self._fields[found[1].strip().lower()] = int(found[2])
        return None

    def _end(self) -> LogCount | None:
        fields, self._fields = self._fields, None
        if not fields:
            return None
        tokens = sum(number for name, number in fields.items() if name not in _ROOM)
        window = fields.get("contextlength") or None
        return LogCount(SOURCE, tokens, window) if tokens and is_count(tokens) else None
