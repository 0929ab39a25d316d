"""Fallback to a larger model when a request nearly fills the context window of the requested one."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypedDict

from kimi_proxy.core.errors import Reason
from kimi_proxy.features import metering
from kimi_proxy.features.chat.pipeline import Draft, Note
from kimi_proxy.features.models import Target

HEADER = b"x-kimi-proxy-model"
NO_LARGER_MODEL: Reason = "no_larger_model"

# A conversation that has gone to a larger model comes back when it has shrunk to this share of the threshold: on the
# way there and back its prompt cache is lost, so that it should not go to and fro around one mark.
RETURN_SHARE = 2 / 3

FULL_SHARE = 0.98  # of the window that a request and its answer may take
# Some clients allow an answer as long as the window. A provider that counted that could answer none of their requests.
RESERVED_SHARE = 0.9


def room_beside(answer: int, window: int) -> float:
    """Return the tokens that a request may have in a window where the answer may have so many."""
    return FULL_SHARE * window - (answer if answer < RESERVED_SHARE * window else 0)


@dataclass(frozen=True, slots=True)
class ModelWindow:
    """A model, and how many tokens fit in its context window."""

    target: Target
    size: int

    def limit(self, threshold: float, answer: int) -> float:
        """Return the tokens from which a request with an answer of so many belongs to a larger model."""
        return min(self.size * threshold, room_beside(answer, self.size))


_Names = TypedDict("_Names", {"from": str, "to": str})


class RoutedFields(_Names):
    tokens: int
    asked_max_context: int
    asked_percent: float | None
    max_context: int
    percent: float | None


class ModelRoutedFields(RoutedFields):
    new: bool


class RoutingUnavailableFields(RoutedFields):
    reason: str


@dataclass(frozen=True, slots=True)
class Route:
    """The route of a request of so many tokens."""

    wanted: ModelWindow  # that the client asked for
    to: ModelWindow
    tokens: int
    is_new: bool = False  # the conversation was elsewhere before
    is_tight: bool = False  # it has no room to spare there, and there is no larger model
    is_newly_tight: bool = False  # that was not so before
    is_counted: bool = True  # `tokens` are not estimated from the length

    def to_json(self) -> RoutedFields:
        return {
            "from": _name(self.wanted.target),
            "to": _name(self.to.target),
            "tokens": self.tokens,
            "asked_max_context": self.wanted.size,
            "asked_percent": metering.window_percent(self.tokens, self.wanted.size),
            "max_context": self.to.size,
            "percent": metering.window_percent(self.tokens, self.to.size),
        }


def choose_model(
    tokens: int, now: ModelWindow, others: Iterable[ModelWindow], threshold: float, answer: int = 0
) -> ModelWindow | None:
    """Return the smallest larger model with room to spare, else the largest that the request still fits in."""
    larger = [window for window in others if window.size > now.size]
    spacious = [window for window in larger if tokens < window.limit(threshold, answer)]
    if spacious:
        return min(spacious, key=lambda window: window.size)
    fitting = [window for window in larger if tokens <= window.size]
    return max(fitting, key=lambda window: window.size, default=None)


def apply_route(draft: Draft, route: Route) -> Draft:
    """Return the same draft if it stays where it is, with room to spare."""
    if route.is_tight:
        unavailable: RoutingUnavailableFields = {**route.to_json(), "reason": NO_LARGER_MODEL}
        notes = (*draft.notes, Note("routing_unavailable", unavailable)) if route.is_newly_tight else draft.notes
        draft = replace(draft, reasons=(*draft.reasons, NO_LARGER_MODEL), notes=notes)
    if route.to == route.wanted:
        return draft
    headers = (*draft.answer_headers, (HEADER, _in_a_header(_name(route.to.target))))
    routed: ModelRoutedFields = {**route.to_json(), "new": route.is_new}
    notes = (*draft.notes, Note("model_routed", routed))
    return replace(draft, target=route.to.target, answer_headers=headers, notes=notes)


def _name(target: Target) -> str:
    """Return the name by which clients know it."""
    return target.name[:200]


def _in_a_header(name: str) -> bytes:
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in name).encode()
