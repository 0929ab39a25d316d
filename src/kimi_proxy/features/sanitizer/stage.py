"""The sanitizer as a stage: everything is decided, what is left is to do it and to say so."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kimi_proxy.core.chat import edit
from kimi_proxy.core.reasons import Why
from kimi_proxy.core.types import JsonObject
from kimi_proxy.features.pipeline import Draft, Note
from kimi_proxy.features.recall.responses import result
from kimi_proxy.features.sanitizer import offer
from kimi_proxy.features.sanitizer.apply import apply
from kimi_proxy.features.sanitizer.plan import Plan
from kimi_proxy.features.sanitizer.worth import resent_tokens

EVENT = "sanitizer_event"


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done about an output: what is shown of it, or why all of it is."""

    why: Why
    shown: str | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    is_new: bool = False  # it was made for this request; others are repeated


@dataclass(frozen=True, slots=True)
class Decided:
    """A plan, and a decision for the key of each of its outputs."""

    plan: Plan
    decisions: Mapping[bytes, Decision]
    offers_tool: bool
    owed: Mapping[str, str] = field(default_factory=dict)  # what is told beside the result of a call, by its name
    previous_response: str | None = None  # the one that is meant, where the client knows another name for it
    results: Mapping[str, str] = field(default_factory=dict)  # of calls of ours in it, by their ids


def sanitize(draft: Draft, decided: Decided) -> Draft:
    """Show what was decided, and offer the tool that brings back the rest with the first cut and from then on."""
    if decided.previous_response is not None:
        draft = replace(draft, request=edit.with_previous_response(draft.request, decided.previous_response))
    if decided.results:
        results = [result(call_id, text) for call_id, text in decided.results.items()]
        draft = replace(draft, request=edit.with_items(draft.request, results))
    made = [decided.decisions[output.key] for output in decided.plan.outputs]
    reasons = tuple(sorted({decision.why for decision in made if decision.shown is None}))
    draft = replace(draft, reasons=(*draft.reasons, *reasons)) if reasons else draft
    shown = {key: decision.shown for key, decision in decided.decisions.items() if decision.shown is not None}
    if not shown:
        return draft
    request = apply(draft.request, decided.plan, shown, decided.owed)
    if decided.offers_tool and offer.may_join(request):
        draft = replace(draft, own_tool=offer.own_name(request))
        request = offer.joined(request)
    told = Note(EVENT, _told(made) | _price(made, draft))
    return replace(draft, request=request, notes=(*draft.notes, told))


def _told(made: list[Decision]) -> JsonObject:
    cut = [decision for decision in made if decision.shown is not None]
    before, after = sum(d.tokens_before for d in cut), sum(d.tokens_after for d in cut)
    return {
        "outputs": len(made),
        "cut": len(cut),
        "cut_now": sum(1 for decision in cut if decision.is_new),
        "tokens_before": before,
        "tokens_after": after,
        "tokens_saved": before - after,
        "why": dict(Counter(decision.why for decision in made)),
    }


def _price(made: list[Decision], draft: Draft) -> JsonObject:
    """What our tool costs: its description, and once all that the provider had cached, which begins with tools."""
    if not draft.own_tool:
        return {"tool_tokens": 0, "prefix_tokens_resent": 0}
    joins = all(decision.is_new for decision in made if decision.shown is not None)
    return {"tool_tokens": offer.tool_tokens(), "prefix_tokens_resent": resent_tokens(draft.request) if joins else 0}
