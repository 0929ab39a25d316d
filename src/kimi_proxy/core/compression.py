"""Compression of conversations, as the settings know it."""

from pydantic import Field

from kimi_proxy.core.section import Section


class Compression(Section):
    """Old exchanges give way to a summary when the window is nearly full; what they said is kept."""

    automatic: bool = False
    threshold_percentage: float = Field(default=85, gt=0, le=100)
    keep_exchanges: int = Field(default=5, ge=1, le=100)
    ask_provider: bool = True
    summary_tokens: int = Field(default=1500, ge=100, le=20_000)
    summary_timeout_s: float = Field(default=30, gt=0, le=600)
    cooldown_s: float = Field(default=60, ge=0, le=86_400)
    max_in_a_row: int = Field(default=3, ge=1, le=1000)


class Compaction(Section):
    """The light preset: fewer exchanges stay, and nobody is asked for the summary."""

    enabled: bool = True
    threshold_percentage: float = Field(default=80, gt=0, le=100)
    max_preserved_messages: int = Field(default=2, ge=1, le=100)
