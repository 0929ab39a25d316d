"""One conversation under several policies, by the simulation of the audit: tokens, money and recoveries."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kimi_proxy.core.config import Config
from kimi_proxy.core.config.providers import Model
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features import accounting
from kimi_proxy.features.accounting import number, prices_of
from kimi_proxy.features.chat.compression import presets
from kimi_proxy.features.models import known as known_models
from kimi_proxy.features.recording import Recording, read
from kimi_proxy.lab.audit import name_source
from kimi_proxy.lab.measured import TokenPrice, is_priced, measure
from kimi_proxy.lab.savings import OFF, PolicyFigures, of_product, simulate
from kimi_proxy.lab.transcripts import recordings
from kimi_proxy.lab.transcripts.places import bounded_lines, find, load
from kimi_proxy.lab.transcripts.transcript import Transcript, open_regular

SANITIZER, BOTH = "sanitizer", "sanitizer + compression"

_COLUMNS = {
    "input": "input_tokens",
    "plain": "plain_tokens",
    "from cache": "cached_tokens",
    "to cache": "cache_write_tokens",
    "output": "output_tokens",
    "largest": "largest_tokens",
    "too long": "too_long",
    "recoveries": "recoveries",
    "extra turns": "extra_turns",
    "USD": "cost_usd",
}


@dataclass(frozen=True, slots=True)
class PlayedConversation:
    """A conversation to replay, and its model's properties; without a price no money is shown."""

    name: str
    transcript: Transcript
    model: str
    window: int | None
    price: TokenPrice | None
    is_priced: bool

    def with_model(self, name: str, model: Model) -> "PlayedConversation":
        prices = prices_of(model)
        price = TokenPrice.of(prices) if prices else None
        return PlayedConversation(self.name, self.transcript, name, model.max_context_size, price, prices is not None)

    @property
    def minutes(self) -> float:
        return (self.transcript.requests[-1].at - self.transcript.requests[0].at) / 60


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    policy: str
    requests: int
    figures: PolicyFigures
    is_priced: bool

    @property
    def cost_usd(self) -> float | None:
        return round(self.figures.cost_usd, 9) if self.is_priced else None

    def to_json(self, off: "ReplayOutcome") -> JsonObject:
        """Return the outcome compared with doing nothing; negative savings are a loss."""
        figures = self.figures
        return {
            "policy": self.policy,
            "requests": self.requests,
            "input_tokens": round(figures.input),
            "plain_tokens": round(figures.input - figures.cached - figures.written),
            "cached_tokens": round(figures.cached),
            "cache_write_tokens": round(figures.written),
            "output_tokens": round(figures.output),
            "largest_tokens": round(figures.largest),
            "too_long": figures.too_long,
            "recoveries": figures.recoveries,
            "extra_turns": figures.extra_turns,
            "compressions": figures.compressions,
            "cost_usd": self.cost_usd,
            "tokens_saved_percent": _percent_saved(figures.input, off.figures.input),
            "cost_saved_percent": _percent_saved(figures.cost_usd, off.figures.cost_usd) if self.is_priced else None,
        }

    def plus(self, other: "ReplayOutcome") -> "ReplayOutcome":
        """Return the sum of two conversations; it has no price unless both have one."""
        total = self.figures.plus(other.figures)
        return ReplayOutcome(self.policy, self.requests + other.requests, total, self.is_priced and other.is_priced)


def conversations(path: Path) -> Iterator[PlayedConversation]:
    """Yield the recordings and sessions in a file or folder; raise ParseError if there are none."""
    places = find([name_source(path)])
    if path.is_file() and not places:
        raise ParseError(f"{path} contains neither a recording nor a session")
    for place in places:
        if place.form == "lines" and _is_recording(Path(place.path)):
            with open_regular(Path(place.path)) as file:
                yield _of_recording(Path(place.path).name, read(recordings.limit_lines(bounded_lines(file))))
            continue
        for transcript in load(place):
            model = next((request.model for request in transcript.requests if request.model), "unknown")
            known = known_models.find(model)
            name = f"{transcript.agent} {transcript.id}"
            yield PlayedConversation(name, transcript, model, known.window if known else None, None, is_priced(model))


def _is_recording(file: Path) -> bool:
    with open_regular(file) as opened:
        return b'"recording"' in opened.read(200)


def _of_recording(name: str, recording: Recording) -> PlayedConversation:
    head = recording.head
    price = TokenPrice.of(head.prices) if head.prices else None
    transcript = recordings.transcript_of(recording, name)
    return PlayedConversation(
        name, transcript, head.model, head.max_context, price, price is not None or is_priced(head.model)
    )


def play(conversation: PlayedConversation, config: Config) -> list[ReplayOutcome]:
    """Return the outcomes of doing nothing, of the sanitizer as the settings have it, and of compression too."""
    session = measure(conversation.transcript, price=conversation.price)
    usual, _ = presets(config.compression, config.compaction)
    chosen = config.sanitizer.policy
    return [
        ReplayOutcome(
            name,
            len(session.requests),
            simulate(session, policy, conversation.window),
            conversation.is_priced,
        )
        for name, policy in ((OFF.name, OFF), (SANITIZER, of_product(chosen)), (BOTH, of_product(chosen, usual)))
    ]


def _percent_saved(now: float, before: float) -> float | None:
    return round(100 * (before - now) / before, 1) if before else None


def table(outcomes: list[ReplayOutcome]) -> list[str]:
    """Return a table for people; the first outcome is the one of doing nothing."""
    rows = [["", *_COLUMNS, "saved"]]
    for outcome in outcomes:
        shown = outcome.to_json(outcomes[0])
        saved = shown["cost_saved_percent"] if outcome.is_priced else shown["tokens_saved_percent"]
        cells = (shown[name] for name in _COLUMNS.values())
        numbers = [number(cell if isinstance(cell, int | float) else None) for cell in cells]
        rows.append([outcome.policy, *numbers, "–" if saved is None else f"{saved:.1f} %"])
    return accounting.table(rows)
