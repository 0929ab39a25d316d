"""Compressions as they are told to others: in answers and events."""

from kimi_proxy.core.types import JsonObject
from kimi_proxy.features.compression.proposal import Proposal
from kimi_proxy.services.store import Compressed
from kimi_proxy.services.store.compression_log import Sums
from kimi_proxy.services.summaries import Summary


def row(made: Compressed) -> JsonObject:
    return {
        "compression_id": made.id,
        "session_id": made.session,
        "at": made.at,
        "kind": made.kind,
        "automatic": made.is_automatic,
        **_saving(made.original_tokens, made.compressed_tokens),
        "summary_by": made.summary_by,
        "original_id": made.original,
        "undone": made.undone is not None,
    }


def past(made: Compressed) -> JsonObject:
    """One of the history, with what stands in the place of the messages that it removed."""
    removed = made.cut - len(made.kept)
    return {**row(made), "undone_at": made.undone, "messages_removed": removed, "summary": made.summary}


def made(made: Compressed, proposal: Proposal) -> JsonObject:
    removed = len(proposal.plan.removed)
    kept = len(proposal.history.request.messages) - removed
    return {**row(made), "summary": made.summary, "messages_removed": removed, "messages_kept": kept}


def event(told: JsonObject) -> JsonObject:
    """Whoever watches hears that it happened, not what people said."""
    return {name: value for name, value in told.items() if name not in ("summary", "at")}  # events have their own time


def price(summary: Summary) -> JsonObject:
    usage = summary.usage
    return {
        "summary_input_tokens": usage.input_tokens if usage else 0,
        "summary_output_tokens": usage.output_tokens if usage else 0,
    }


def sums(sums: Sums) -> JsonObject:
    counted: JsonObject = {"compressions": sums.compressions, "undone": sums.undone}
    return counted | _saving(sums.original_tokens, sums.compressed_tokens)


def _saving(before: int, after: int) -> JsonObject:
    return {
        "original_tokens": before,
        "compressed_tokens": after,
        "tokens_saved": before - after,
        "compression_ratio": round((before - after) / before, 4) if before else 0.0,
    }
