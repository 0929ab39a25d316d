"""What the sanitizer does, counted: for Prometheus, and for whoever asks."""

from collections import Counter
from collections.abc import Mapping

from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.features.pipeline import Draft
from kimi_proxy.features.sanitizer.stage import EVENT, Decided
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store import Mask, Totals

# What is summed up over requests.
_SUMMED = ("cut", "cut_now", "tokens_saved", "tool_tokens", "prefix_tokens_resent")


class Savings:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._since_start: Counter[str] = Counter()

    def count(self, decided: Decided, done: Draft) -> None:
        """What was decided about a request, and what became of it."""
        for decision in decided.decisions.values():
            self._metrics.sanitizer_outputs.labels(decision.why).inc()
        told: Mapping[str, JsonValue] = next((note.fields for note in done.notes if note.event == EVENT), {})
        numbers = {name: number for name in _SUMMED if isinstance(number := told.get(name), int)}
        self._since_start.update({"requests": 1, **numbers})
        self._metrics.sanitizer_tokens_saved.inc(max(0, numbers.get("tokens_saved", 0)))

    def told(self, totals: Totals) -> JsonObject:
        """Outputs that were cut, each counted once, and what requests were spared of since the start."""
        saved = totals.tokens_before - totals.tokens_after
        return {
            "outputs": dict(totals.outputs),
            "tokens_before": totals.tokens_before,
            "tokens_after": totals.tokens_after,
            "tokens_saved": saved,
            "saved_percent": round(100 * saved / totals.tokens_before, 1) if totals.tokens_before else 0.0,
            "since_start": {name: self._since_start[name] for name in ("requests", *_SUMMED)},
        }


def mask_told(mask: Mask) -> JsonObject:
    told: JsonObject = {"id": mask.id, "created_at": mask.created, "last_used_at": mask.last_used}
    if mask.pin is None:
        return told
    pin = mask.pin
    return told | {
        "why": pin.why,
        "preview": pin.preview,
        "session": pin.session,
        "tokens_before": pin.tokens_before,
        "tokens_after": pin.tokens_after,
    }
