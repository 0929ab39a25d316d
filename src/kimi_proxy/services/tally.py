"""What is known of an MCP server from its traffic, for people to look at."""

from collections.abc import Iterable
from dataclasses import dataclass

SMOOTHING = 0.2  # the share of the newest answer in the time that answers take


@dataclass(slots=True)
class Tally:
    calls: int = 0
    failures: int = 0
    latency_ms: float | None = None
    last_error: str = ""
    last_error_code: str = ""
    last_error_at: float = 0.0
    tools: int | None = None
    masked_texts: int = 0
    masked_chars: int = 0

    def took(self, seconds: float) -> None:
        newest = seconds * 1000
        self.latency_ms = (
            newest if self.latency_ms is None else self.latency_ms + SMOOTHING * (newest - self.latency_ms)
        )

    def failed(self, code: str, problem: str, at: float) -> None:
        self.last_error_code, self.last_error, self.last_error_at = code, problem, at

    def masked(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.masked_texts += 1
            self.masked_chars += len(text)
