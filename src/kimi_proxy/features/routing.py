"""Which model a request goes to when it nearly fills the window of the one that was asked for."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kimi_proxy.core.errors import Reason
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features import metering
from kimi_proxy.features.models import Target
from kimi_proxy.features.pipeline import Draft, Note

HEADER = b"x-kimi-proxy-model"
NO_LARGER_MODEL: Reason = "no_larger_model"

# A conversation that has gone to a larger model comes back when it has shrunk to this share of the threshold: on the
# way there and back its provider's cache is lost, so that nobody should go to and fro around one mark.
RETURN_SHARE = 2 / 3


@dataclass(frozen=True, slots=True)
class ModelWindow:
    """A model, and how many tokens fit in its window."""

    target: Target
    window: int


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request of so many tokens goes."""

    asked: ModelWindow
    to: ModelWindow
    tokens: int
    is_new: bool = False  # the conversation was elsewhere before
    is_tight: bool = False  # it has no room to spare there, and there is no larger model
    is_newly_tight: bool = False  # that was not so before


def chosen(tokens: int, now: ModelWindow, others: Iterable[ModelWindow], threshold: float) -> ModelWindow | None:
    """The smallest larger model with room to spare, else the largest that the request still fits in."""
    larger = [room for room in others if room.window > now.window]
    spacious = [room for room in larger if tokens < room.window * threshold]
    if spacious:
        return min(spacious, key=lambda room: room.window)
    fitting = [room for room in larger if tokens <= room.window]
    return max(fitting, key=lambda room: room.window, default=None)


def routed(draft: Draft, route: Route) -> Draft:
    """The same draft if it stays where it is, with room to spare."""
    if route.is_tight:
        notes = (Note("routing_unavailable", _told(route) | {"reason": NO_LARGER_MODEL}),)
        notes = (*draft.notes, *(notes if route.is_newly_tight else ()))
        draft = replace(draft, reasons=(*draft.reasons, NO_LARGER_MODEL), notes=notes)
    if route.to == route.asked:
        return draft
    said = (*draft.said, (HEADER, _in_a_header(_name(route.to.target))))
    note = Note("model_routed", _told(route) | {"new": route.is_new})
    return replace(draft, target=route.to.target, said=said, notes=(*draft.notes, note))


def _told(route: Route) -> JsonObject:
    return {
        "from": _name(route.asked.target),
        "to": _name(route.to.target),
        "tokens": route.tokens,
        "asked_max_context": route.asked.window,
        "asked_percent": metering.window_percent(route.tokens, route.asked.window),
        "max_context": route.to.window,
        "percent": metering.window_percent(route.tokens, route.to.window),
    }


def _name(target: Target) -> str:
    """As clients know it."""
    return (target.key or target.model)[:200]


def _in_a_header(name: str) -> bytes:
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in name).encode()
