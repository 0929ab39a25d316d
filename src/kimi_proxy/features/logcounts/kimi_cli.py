"""Kimi CLI: its log, and the file in which it keeps a conversation."""

import re

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import ParseError
from kimi_proxy.features.logcounts.count import LogCount, is_count

LOG_SOURCE, CONTEXT_SOURCE = "kimi_log", "kimi_context"

_COUNT = re.compile(r"[Uu]pdating token count in context: (\d{1,13})\s*\Z", re.ASCII)
_USAGE_ROLE = '"_usage"'


class KimiLog:
    """`2026-07-16 10:00:00.123 | DEBUG | … - Updating token count in context: 24804`; it names no conversation."""

    def feed(self, line: str) -> LogCount | None:
        found = _COUNT.search(line)
        return LogCount(LOG_SOURCE, int(found[1])) if found else None

    def idle(self) -> None:
        """Every line stands for itself."""


class KimiContext:
    """`{"role": "_usage", "token_count": 24804}` among what was said, which is none of our business."""

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation

    def feed(self, line: str) -> LogCount | None:
        if _USAGE_ROLE not in line:
            return None
        try:
            record = jsontext.decode(line.encode("utf-8", "replace"))
        except ParseError:
            return None
        match record:
            case {"role": "_usage", "token_count": int(tokens)} if is_count(tokens):
                return LogCount(CONTEXT_SOURCE, tokens, conversation=self._conversation)
        return None

    def idle(self) -> None:
        """Every line stands for itself."""
