"""Which messages give way to a summary, and how long it may be."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kimi_proxy.features.compression.history import History, is_ask

TARGET = 0.6  # of the window, or of the conversation where the window is not known
SUMMARY_SHARE = 4  # a summary has at most the fourth part of what it replaces
LEAST_REMOVED = 400  # tokens; below, a summary would hardly be shorter
LEAST_SAVED = 0.1  # of the conversation


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything before `cut` goes but what the system says and the places in `kept`."""

    cut: int
    kept: tuple[int, ...]
    removed: tuple[int, ...]
    removed_tokens: int
    summary_tokens: int


@dataclass(frozen=True, slots=True)
class Limits:
    keep_exchanges: int
    summary_tokens: int
    window: int | None
    is_full: bool  # then fewer exchanges may stay than wished, if the wish does not help


def plan(history: History, weights: Sequence[int], total: int, now_tokens: int, limits: Limits) -> Plan | None:
    """The plan that keeps most and still makes room; None if too little could go.

    `weights` has tokens by place, `total` those of all, `now_tokens` those that are sent today.
    """
    best: Plan | None = None
    target = TARGET * (limits.window or total)
    for cut in _cuts(history, limits):
        best = _planned(history, cut, lambda place: weights[place], limits) or best
        if best is not None and _left(best, total) <= target:
            break
    if best is None or now_tokens - _left(best, total) < LEAST_SAVED * now_tokens:
        return None
    return best


def _left(plan: Plan, total: int) -> int:
    return total - plan.removed_tokens + plan.summary_tokens


def _cuts(history: History, limits: Limits) -> Iterator[int]:
    """Places to cut at, from the one that keeps most on."""
    messages, exchanges = history.messages, history.exchanges
    is_open = bool(messages) and messages[-1].role != "assistant"
    wished = limits.keep_exchanges + is_open
    yield from exchanges[-wished : -wished + 1 or None] if len(exchanges) >= wished else ()
    if limits.is_full:
        yield from exchanges[-wished + 1 :] if wished > 1 else ()
        last = exchanges[-1] if exchanges else 0
        yield from [step for step in history.steps if step > last][-limits.keep_exchanges :]


def _planned(history: History, cut: int, weight: Callable[[int], int], limits: Limits) -> Plan | None:
    kept = tuple(sorted({*history.preamble, *_current_ask(history, cut)} & set(range(cut))))
    removed = tuple(place for place in range(cut) if place not in kept)
    tokens = sum(map(weight, removed))
    if tokens < LEAST_REMOVED:
        return None
    return Plan(cut, kept, removed, tokens, min(limits.summary_tokens, tokens // SUMMARY_SHARE))


def _current_ask(history: History, cut: int) -> Iterator[int]:
    """What the model is busy with: the last that was said, with what was said right before it."""
    if not any(map(is_ask, history.messages[cut:])):
        last = next((at for at in range(cut - 1, -1, -1) if is_ask(history.messages[at])), -1)
        while last >= 0 and is_ask(history.messages[last]):
            yield last
            last -= 1
