"""How a conversation is compressed, and from which share of its window on."""

from dataclasses import dataclass, replace

from kimi_proxy.core.compression import Compaction, Compression


@dataclass(frozen=True, slots=True)
class Preset:
    kind: str
    threshold_percentage: float
    keep_exchanges: int
    summary_tokens: int
    asks_provider: bool


def presets(settings: Compression, compaction: Compaction) -> tuple[Preset, Preset | None]:
    """The usual one, and the light one if it is switched on."""
    usual = Preset(
        *("compression", settings.threshold_percentage, settings.keep_exchanges),
        *(settings.summary_tokens, settings.ask_provider),
    )
    light = replace(
        usual,
        kind="compaction",
        threshold_percentage=compaction.threshold_percentage,
        keep_exchanges=compaction.max_preserved_messages,
        asks_provider=False,
    )
    return usual, light if compaction.enabled else None
