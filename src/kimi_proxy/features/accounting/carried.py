"""What a request carries on its way out, as far as its account needs to know."""

from collections.abc import Iterable
from dataclasses import dataclass

from kimi_proxy.core.chat import Request
from kimi_proxy.core.chat.usage import Usage
from kimi_proxy.features.accounting.account import Sent
from kimi_proxy.features.composition import Composition
from kimi_proxy.features.pipeline import Note
from kimi_proxy.features.sanitizer.origins import recovers


@dataclass(frozen=True, slots=True)
class Weights:
    """A request as it came, or as it leaves, in tokens of our own count."""

    total: int
    old: int = 0  # before the model's last answer
    recovered: int = 0
    recoveries: int = 0
    has_outputs: bool = False  # of tools


def weights(request: Request, weighed: Composition) -> Weights:
    """What is old in a request, and what in it was read back by a tool that the client has."""
    said = [at for at, message in enumerate(request.messages) if message.role == "assistant"]
    old = weighed.messages[said[-1]].before if said else 0
    asked: dict[str, str] = {}
    places: list[int] = []
    has_outputs = False
    for at, message in enumerate(request.messages):
        asked |= {part.call_id: part.name for part in message.parts if part.kind == "tool_call"}
        results = [part.call_id for part in message.parts if part.kind == "tool_result"]
        has_outputs = has_outputs or bool(results)
        if any(recovers(asked.get(call_id, "")) for call_id in results):
            places.append(at)
    new = sum(1 for at in places if at > (said[-1] if said else -1))
    recovered = sum(weighed.messages[at].tools_tokens for at in places)
    return Weights(weighed.total, old, recovered, new, has_outputs)


def sent(came: Weights, leaves: Weights, notes: Iterable[Note], is_rewritten: bool) -> Sent:
    """All that a request carries on its way out, with what its notes tell of costs."""
    resent, summaries, summary = 0, 0, Usage()
    for note in notes:
        resent += _count(note, "prefix_tokens_resent")
        read, written = _count(note, "summary_input_tokens"), _count(note, "summary_output_tokens")
        summaries += read > 0
        summary = Usage(summary.input_tokens + read, summary.output_tokens + written)
    return Sent(
        came.total,
        leaves.total,
        came.old,
        leaves.old,
        is_rewritten or resent > 0,
        came.recovered,
        came.recoveries,
        summaries,
        summary,
    )


def _count(note: Note, name: str) -> int:
    value = note.fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
