"""Decisions about a conversation's tool results, from its request, the policy and known facts.

Pure: a service reads the facts, has new results scored and stores the result of `decide`. Hooks, other gateways and
the audit's simulation use the same functions. `moment` decides when to cut; `shorten` and `lossless` decide how.
"""

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kimi_proxy.core import tokens
from kimi_proxy.core.chat import Request
from kimi_proxy.core.errors import Reason
from kimi_proxy.core.prune import CallContext
from kimi_proxy.features.chat.prompt_cache import CacheMoment
from kimi_proxy.features.sanitizer.lossless import (
    READABLE,
    aged_form,
    bounded_form,
    lossless_form,
    readable_before,
    rows_of,
    table_form,
)
from kimi_proxy.features.sanitizer.plan import LongOutput
from kimi_proxy.features.sanitizer.policy import (
    CutMoment,
    EntryCut,
    OldCuts,
    Policy,
    aged_results,
    choose_old,
    edits_by_quoting,
    is_quoted,
    likely_used,
)
from kimi_proxy.features.sanitizer.shorten import HUGE_TOKENS, ShortenedText, Task
from kimi_proxy.features.sanitizer.stage import Decision

Draw = Callable[[LongOutput], bytes]  # from a result to the secret that its ids are made of
RowsOf = Callable[[LongOutput], "array[int]"]
Form = TypeVar("Form")


@dataclass(frozen=True, slots=True)
class RequestResults:
    """A request with the long results in it, in their order."""

    request: Request
    outputs: Sequence[LongOutput]
    goal: str = ""
    hint: str = ""  # how a model without our tool reads cut text, with `{id}` in it


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a conversation that its request does not hold."""

    cache: CacheMoment
    draw: Draw
    known: Mapping[bytes, Decision] = field(default_factory=dict)  # the forms that earlier requests sent
    scored: Mapping[bytes, ShortenedText] = field(default_factory=dict)  # new results as the engine cut them
    rows: RowsOf = rows_of
    may_cut_old: bool = True
    filled_window: int = 0  # the tokens of a context window that the client is about to compact; 0: it is not


@dataclass(frozen=True, slots=True)
class ShortenedOutput:
    """A tool result, and the form in which it is sent from now on."""

    output: LongOutput
    goal: str
    shortened: ShortenedText
    replaces: bool = False  # this replaces an earlier decision


@dataclass(frozen=True, slots=True)
class Decided:
    """New decisions for a request; every other result is sent as before."""

    new: tuple[ShortenedOutput, ...] = ()
    old: tuple[ShortenedOutput, ...] = ()
    rewritten_tokens: int = 0  # of the prompt cache, because cached results are cut
    frees_window: bool = False  # they are cut in place of a compaction by the client


def decide(conversation: RequestResults, policy: Policy, facts: Facts) -> Decided:
    """Return the forms of new results, and of old ones that change.

    Every new result needs an entry in `facts.scored`. Later results cannot refer to one that is cut here.
    """
    new = tuple(_enter_new(conversation, facts)) if facts.scored else ()
    moment = CutMoment.of(conversation.request, facts.cache, facts.filled_window)
    if not facts.may_cut_old or not moment.allows_cuts(policy):
        return Decided(new)
    decisions = {**facts.known, **{one.output.key: _decision(one.shortened) for one in new if _is_decided(one)}}
    old, cuts = _cut_old(conversation, policy, facts, decisions)
    renewed = {one.output.key for one in old}
    entered = tuple(one for one in new if one.output.key not in renewed)
    return Decided(entered, old, cuts.rewritten_tokens, cuts.frees_window)


def _decision(form: ShortenedText) -> Decision:
    return Decision(form.why, form.shown if form.hidden else None)


def _is_decided(made: ShortenedOutput) -> bool:
    """Return whether a result was long enough to need a decision; a shorter one may still be cut when it is old."""
    return made.shortened.why != "below_threshold"


# How a result enters.


@dataclass(frozen=True, slots=True)
class EntryLimits:
    """The user's limits for new results."""

    threshold_tokens: int = 0  # 0: the policy's limit
    preview_chars: int = 0


def entry_task(
    output: LongOutput,
    conversation: RequestResults,
    policy: Policy,
    limits: EntryLimits,
    seed: bytes,
    context: CallContext | None = None,
) -> Task | None:
    """Return the engine's task for a new result; None if it is too short."""
    if limits.threshold_tokens:
        cut = EntryCut(limits.threshold_tokens)
    else:
        likely = likely_used(output.text, context)
        cut = policy.entry_cut(output.origin, edits_by_quoting(conversation.request.tool_names), likely)
    return task_of(output, cut, conversation.goal, limits, seed, conversation.hint, context)


def task_of(
    output: LongOutput,
    cut: EntryCut,
    goal: str,
    limits: EntryLimits,
    seed: bytes,
    hint: str = "",
    context: CallContext | None = None,
) -> Task | None:
    """Return the engine's task for a result that enters with this cut; None if it is too short."""
    if len(output.text) <= min(cut.over_tokens, HUGE_TOKENS):  # a token has one character at least
        return None
    return Task(
        text=output.text,
        goal=goal,
        origin=output.origin,
        is_unread=output.is_unread,
        threshold_tokens=cut.over_tokens,
        preview_chars=limits.preview_chars,
        seed=seed,
        hint=hint,
        keep_tokens=cut.keep_tokens,
        context=context,
        most_tokens=cut.most_tokens,
    )


def choose_entry(
    engine: Form | None,
    lossless: Form | None,
    bounded: Callable[[], Form | None],
    tokens_of: Callable[[Form], float],
    whole_tokens: Callable[[], float],
    most_tokens: int = HUGE_TOKENS,
) -> Form | None:
    """Return the form in which a result enters; None if it stays uncut.

    A lossless form is used if it is as short as the engine's. A result that is still too long is then bounded.
    """
    best = _shortest(tokens_of, lossless, engine)
    is_huge = (whole_tokens() if best is None else tokens_of(best)) > most_tokens
    return _shortest(tokens_of, best, bounded()) if is_huge else best


def _shortest(tokens_of: Callable[[Form], float], *forms: Form | None) -> Form | None:
    """Return the first of the shortest forms."""
    return min((form for form in forms if form is not None), key=tokens_of, default=None)


def enter(
    output: LongOutput, scored: ShortenedText, lossless: ShortenedText | None, goal: str, draw: Draw, hint: str = ""
) -> ShortenedText:
    """Return the form in which a result enters, of which the engine left `scored`."""

    def whole_tokens() -> int:
        if len(output.text) <= scored.most_tokens:  # a token has one character at least, and counting takes its time
            return 0
        return scored.tokens_after or tokens.count(output.text)

    def make_bounded() -> ShortenedText | None:
        before = scored.tokens_before or (lossless.tokens_before if lossless else 0)
        return bounded_form(output, draw(output), scored.most_tokens, hint, before, goal)

    chosen = choose_entry(
        engine=scored if scored.hidden else None,
        lossless=lossless,
        bounded=make_bounded,
        tokens_of=lambda form: form.tokens_after,
        whole_tokens=whole_tokens,
        most_tokens=scored.most_tokens,
    )
    return chosen or scored


def leave_uncut(output: LongOutput, why: Reason) -> ShortenedText:
    """Return the uncut form of a result, with the reason."""
    return ShortenedText(output.text, why, (), 0, 0)


def restore_cuts(
    outputs: Sequence[LongOutput], known: Mapping[bytes, Decision], cache: CacheMoment
) -> tuple[ShortenedOutput, ...]:
    """Return the cut results that the provider has to read anew anyway, whole: the model could not read them back."""
    cold = [] if cache.cold_from is None else [one for one in outputs if one.spot[0] >= cache.cold_from]
    cut = [one for one in cold if (decision := known.get(one.key)) is not None and decision.shown is not None]
    return tuple(ShortenedOutput(one, "", leave_uncut(one, "recall_refused"), replaces=True) for one in cut)


def _enter_new(conversation: RequestResults, facts: Facts) -> Iterator[ShortenedOutput]:
    outputs = conversation.outputs
    decisions = dict(facts.known)
    cut: set[bytes] = set()  # digests of texts of which the model has seen a part
    for at, output in enumerate(outputs):
        form = facts.scored.get(output.key)
        if form is not None:
            if output.whole_because == "recovered" or (output.digest in cut and not output.is_report):
                form = leave_uncut(output, output.whole_because or "asked_again")
            else:
                earlier = readable_before(outputs[:at], decisions, output, facts.rows)
                light = lossless_form(output, earlier, facts.draw(output), conversation.hint)
                form = enter(output, form, light, conversation.goal, facts.draw, conversation.hint)
            decisions[output.key] = _decision(form)
            yield ShortenedOutput(output, conversation.goal, form)
        if _is_partly_hidden(decisions.get(output.key)):
            cut.add(output.digest)


def _is_partly_hidden(decision: Decision | None) -> bool:
    return decision is not None and decision.shown is not None and decision.why not in READABLE


# How results that the model has read are cut deeper, where the prompt cache has nothing to lose by it, or little.


def _cut_old(
    conversation: RequestResults, policy: Policy, facts: Facts, decisions: Mapping[bytes, Decision]
) -> tuple[tuple[ShortenedOutput, ...], OldCuts]:
    """Return the old results that change now, and what was chosen to be cut."""
    request = conversation.request
    outputs = conversation.outputs
    cold_from = facts.cache.cold_from
    aged = aged_results(request, outputs, decisions, cold_from)
    cuts = choose_old(aged, policy, CutMoment.of(request, facts.cache, facts.filled_window))
    old = [outputs[at] for at in cuts.positions]
    forms = [(output, aged_form(output, facts.draw(output), conversation.hint)) for output in old]
    gone = {output.key for output, form in forms if form}
    renewed = _renew(conversation, facts, decisions, gone) if gone else ()
    # Results before the cold part are still in the prompt cache: they stay as they were sent.
    cold = [] if cold_from is None else [output for output in outputs if output.spot[0] >= cold_from]
    tables = _tables(cold, facts, decisions, gone, edits_by_quoting(request.tool_names))
    made = [
        ShortenedOutput(output, "", form, replaces=output.key not in facts.scored)
        for output, form in (*forms, *renewed, *tables)
        if form
    ]
    return tuple(made), cuts


def _tables(
    outputs: Sequence[LongOutput],
    facts: Facts,
    decisions: Mapping[bytes, Decision],
    gone: Collection[bytes],
    quotes: bool,
) -> Iterator[tuple[LongOutput, ShortenedText | None]]:
    """Yield uncut results that the model has read, as tables, except files: an edit may quote them."""
    for output in outputs:
        decision = decisions.get(output.key)
        is_whole = output.key not in gone and (decision is None or decision.shown is None)
        if is_whole and not output.is_unread and not is_quoted(output.origin, quotes):
            yield output, table_form(output, facts.draw(output))


def _renew(
    conversation: RequestResults, facts: Facts, decisions: Mapping[bytes, Decision], gone: Collection[bytes]
) -> Iterator[tuple[LongOutput, ShortenedText]]:
    """Yield with their own text the results that referred to an old result which is cut now."""
    outputs = conversation.outputs
    hint = conversation.hint
    for at, output in enumerate(outputs):
        decision = decisions.get(output.key)
        if decision is not None and decision.why == "repeated" and output.key not in gone:
            earlier = readable_before(outputs[:at], decisions, output, facts.rows, gone)
            light = lossless_form(output, earlier, facts.draw(output), hint)
            yield output, enter(output, leave_uncut(output, "asked_again"), light, conversation.goal, facts.draw, hint)
