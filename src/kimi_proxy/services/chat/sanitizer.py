"""The sanitizer stage: reads the facts about a request's tool results, calls `decide`, and stores its decisions.

It limits how long a request waits for CPU time on a busy machine, and for a store that hangs.
"""

import asyncio
import logging
import secrets
import threading
import time
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, NotRequired, ParamSpec, Protocol, TypedDict, TypeVar

from kimi_proxy.core.aside import COMPARED_CHARS, DECIDED_CHARS, PARSED_BYTES, aside
from kimi_proxy.core.cache import in_batches
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat.edit import Place
from kimi_proxy.core.config.sections import SanitizerSettings as Settings
from kimi_proxy.core.errors import Reason, StoreUnavailable, WarningCode
from kimi_proxy.core.prune import CallContext
from kimi_proxy.features.chat.conversations import Conversation
from kimi_proxy.features.chat.pipeline import ChangingStage, Draft
from kimi_proxy.features.chat.prompt_cache import CacheMoment, binds_thinking
from kimi_proxy.features.models import Target
from kimi_proxy.features.sanitizer import stage
from kimi_proxy.features.sanitizer.decide import (
    Decided,
    EntryLimits,
    Facts,
    RequestResults,
    ShortenedOutput,
    decide,
    entry_task,
    leave_uncut,
    restore_cuts,
)
from kimi_proxy.features.sanitizer.lossless import rows_of
from kimi_proxy.features.sanitizer.plan import LongOutput, contexts, goal, key_in, plan
from kimi_proxy.features.sanitizer.policy import POLICIES, CutMoment, edits_by_quoting, is_nearly_full
from kimi_proxy.features.sanitizer.recalls import ClientRecalls, client_recalls
from kimi_proxy.features.sanitizer.shorten import ShortenedText
from kimi_proxy.features.sanitizer.stage import (
    EVENT,
    Decision,
    RequestDecisions,
    new_result_call_ids,
    result_call_ids,
    sanitize,
)
from kimi_proxy.services.chat.decisions import AT_ONCE, ChatDecisions, ScopedKey
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.prompt_cache import PromptCaches
from kimi_proxy.services.fail_open import FailOpen
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.remembered import Memory, Remembered, stays
from kimi_proxy.services.settings import ObserveMode
from kimi_proxy.services.store.notes import read_note
from kimi_proxy.services.store.protocols import ListedOriginal
from kimi_proxy.services.workers.pool import Workers

BUSY_FACTOR = 3  # how much longer than its CPU time a request waits: agents run builds, so cores are shared
HURRY_S = 0.5  # extra time in which late results are cut without scores; any that remain after it are sent uncut
# A shortened result is worth waiting for a slow disk, even on a busy machine, but not for a disk that has hung.
COMMIT_GRACE_S, HUNG_GRACE_S = 1.5, 0.25

Value = TypeVar("Value")
P = ParamSpec("P")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WaitLimit:
    """Until when a request waits for work that may take `cpu_s` of CPU time."""

    cpu_s: float
    ends_at: float
    now: Callable[[], float]

    @classmethod
    def begin(cls, cpu_s: float, now: Callable[[], float]) -> "WaitLimit":
        return cls(cpu_s, now() + BUSY_FACTOR * cpu_s, now)

    @property
    def left_s(self) -> float:
        return max(0.0, self.ends_at - self.now())

    @property
    def is_past_hurry(self) -> bool:
        """Return whether even the extra time for cuts without scores has run out."""
        return self.now() > self.ends_at + HURRY_S


class StoreGrace:
    """Waits for the store, less long after it has hung once, and continues without it."""

    def __init__(self, cpu_s: float, metrics: Metrics) -> None:
        self._usual_s = self._grace_s = COMMIT_GRACE_S + cpu_s
        self._metrics = metrics

    @asynccontextmanager
    async def wait(self, more_s: float = 0.0) -> AsyncIterator[None]:
        """Raise TimeoutError if the store takes too long; after that it gets less time, until it answers again."""
        try:
            async with asyncio.timeout(self._grace_s + more_s):
                yield
        except TimeoutError:
            self._grace_s = HUNG_GRACE_S
            raise
        self._grace_s = self._usual_s

    async def read(self, work: Awaitable[Value], fallback: Value) -> Value:
        """Return the store's result, or `fallback` if it does not respond in time."""
        try:
            async with self.wait():
                return await work
        except (StoreUnavailable, TimeoutError) as e:
            self.fell_back("remember", "store_unavailable", str(e))
            return fallback

    def fell_back(self, step: str, code: str, what: str) -> None:
        """Count and log that a step of the sanitizer did without something."""
        self._metrics.chat_faults.labels(step, code).inc()
        log.warning("sanitizer fell back", extra={"step": step, "code": code, "what": what[:300]})


MAX_REMEMBERED = 10_000  # entries of a few hundred bytes


@dataclass(frozen=True, slots=True)
class WayBack:
    """How the model of a conversation reads cut text back."""

    recalls: ClientRecalls
    had_tool: bool = False  # our tool is in the conversation
    adds_tool: bool = False  # it joins with this request

    @property
    def offers_tool(self) -> bool:
        return self.had_tool or self.adds_tool

    @property
    def is_refused(self) -> bool:
        """Return whether the client refused a call, and there is no tool of ours to call instead."""
        return self.recalls.refused and not self.offers_tool


class ToolOffer:
    def __init__(self, is_on: bool, address: str, facts: ChatFacts, grace: StoreGrace, memory: Memory) -> None:
        self._is_on = is_on
        self._address = address
        self._facts = facts
        self._grace = grace
        # Of conversations that the provider keeps: their requests show the newest calls only.
        self._recalls: Remembered[ScopedKey, ClientRecalls] = Remembered(
            memory, "calls of the client's own tool", size=MAX_REMEMBERED, forget=stays
        )

    async def find(self, draft: Draft, cache: CacheMoment, may_join: bool) -> WayBack:
        """Return the way back; our tool joins only while the prompt cache has nothing to lose."""
        request = draft.request
        who = draft.caller
        place = who.scope, cache.conversation
        recalls = self._read_recalls(draft, place)
        if not self._is_on or not stage.may_offer_tool(request):
            return WayBack(recalls)
        client_reads = stage.reads_back(request, recalls) and not recalls.refused
        would_join = may_join and cache.is_cold and not client_reads
        had_tool = self._facts.knows_tool(who, cache.conversation)
        if had_tool is None and (recalls.refused or not would_join):
            # Nearly every conversation has the tool: if the store cannot be read, leaving it out would cost more.
            had_tool = await self._grace.read(self._facts.has_tool(who, cache.conversation), may_join)
        adds_tool = not had_tool and would_join
        if adds_tool:
            # The request does not wait for the disk: losing this in a crash costs one rewrite of the cached prefix.
            self._facts.save_has_tool(who, cache.conversation)
        way_back = WayBack(recalls, bool(had_tool), adds_tool)
        self._facts.assume_tool(who, cache.conversation, way_back.offers_tool)
        return way_back

    def _read_recalls(self, draft: Draft, place: ScopedKey) -> ClientRecalls:
        """Return what became of the client's own calls."""
        request = draft.received or draft.request
        recalls = client_recalls(request)
        if request.is_continued:
            recalls |= self._recalls.get(place) or ClientRecalls()
            self._recalls.put(place, recalls)
        return recalls

    def can_read_back(self, draft: Draft, way_back: WayBack) -> bool:
        """Return whether cut text can be read back: with our tool, the client's own, or the hint that we add."""
        if way_back.offers_tool or stage.reads_back(draft.request, way_back.recalls):
            return True
        return stage.may_follow_hint(draft.request)

    def hint(self, draft: Draft) -> str:
        """Return the hint on how cut text is read where the model has no tools; empty for any other."""
        return stage.hint(self._address) if stage.may_follow_hint(draft.request) else ""


ROWS_BYTES = 4 * 1024**2  # results that are remembered, to find them inside others
SEED_BYTES = 32

# Fields of the event that are summed up over requests.
_SUMMED = ("cut", "cut_now", "tokens_saved", "tool_tokens", "prefix_tokens_resent", "window_cuts")
COMPACTIONS = "compactions"  # by clients, as far as a conversation that we know of began with a summary


class SanitizerStatsBody(TypedDict):
    enabled: bool
    mode: Literal["on", "observe"]
    policy: str
    threshold_tokens: int
    quoted_threshold_tokens: int
    preview_length: int
    outputs: dict[str, int]
    tokens_before: int
    tokens_after: int
    tokens_saved: int
    saved_percent: float
    since_start: dict[str, int]


class MaskBody(TypedDict):
    id: str
    created_at: float
    last_used_at: float
    why: NotRequired[str]
    preview: NotRequired[str]
    server: NotRequired[str]
    tool: NotRequired[str]
    session: NotRequired[str]
    tokens_before: NotRequired[int]
    tokens_after: NotRequired[int]


class CacheMoments(Protocol):
    async def observe(self, draft: Draft) -> CacheMoment:
        """Return the state of the provider's prompt cache for the conversation of `draft`."""


@dataclass(frozen=True, slots=True)
class CutPlan:
    """The form in which each long tool result of a request is sent: the one sent before, or one decided now."""

    cache: CacheMoment
    outputs: Sequence[LongOutput]
    way_back: WayBack
    deadline: WaitLimit
    known: Mapping[bytes, Decision]
    made: Decided = field(default_factory=Decided)
    uncut: Sequence[LongOutput] = ()  # new ones that nothing is decided about
    refusal: Reason | None = None  # why
    short: Sequence[LongOutput] = ()  # new ones that need no decision
    replacements: int = 0  # that there had been when the decisions were read
    rewritten_tokens: int = 0
    filled_window: int = 0  # the tokens of a context window that the client is about to compact; 0: it is not
    pending: Mapping[str, str] = field(default_factory=dict)  # recall results that are shown beside results
    reasons: tuple[Reason, ...] = ()
    previous_response: str | None = None
    results: Mapping[str, str] = field(default_factory=dict)  # of our calls in the previous response


class Sanitizer(ChangingStage[CutPlan]):
    """Shortens long tool results, and repeats how they were shortened."""

    def __init__(
        self,
        settings: Settings,
        address: str,
        decisions: ChatDecisions,
        facts: ChatFacts,
        workers: Workers,
        metrics: Metrics,
        caches: CacheMoments | None = None,
        now: Callable[[], float] = time.monotonic,
        draw: Callable[[int], bytes] = secrets.token_bytes,
        mode: ObserveMode | None = None,
        window_of: Callable[[Target], int | None] = lambda target: None,
        memory: Memory | None = None,
    ) -> None:
        memory = memory or Memory()
        self.is_on = settings.enabled
        self._window_of = window_of
        self._mode = mode or ObserveMode()
        self._settings = settings
        self._limits = EntryLimits(settings.threshold_tokens, settings.preview_length)
        self._decisions = decisions
        self._facts = facts
        self._workers = workers
        self._metrics = metrics
        self._fail_open = FailOpen(
            "sanitizer fell back", lambda step, code: metrics.chat_faults.labels(step, code).inc()
        )
        self._now = now
        self._draw = draw
        self._caches = caches or PromptCaches()
        self._cpu_s = settings.budget_ms / 1000
        self._grace = StoreGrace(self._cpu_s, metrics)
        self._tool = ToolOffer(settings.recover_tool, address, facts, self._grace, memory)
        self._policy = POLICIES[settings.policy]
        self._rows: Remembered[ScopedKey, array[int]] = Remembered(
            memory, "rows of results", size=MAX_REMEMBERED, max_bytes=ROWS_BYTES, forget=stays
        )
        self._rows_lock = threading.Lock()  # long results are compared in threads
        self._since_start: Counter[str] = Counter()

    async def decide(self, draft: Draft) -> CutPlan:
        """Return how each long tool result is sent, with what the store and the prompt cache say about them."""
        found = await self._plan(draft)
        # An observed request is what really left: that has noted the state of its cache.
        cache = draft.cache if draft.caller.is_observed and draft.cache else await self._caches.observe(draft)
        deadline = WaitLimit.begin(self._cpu_s, self._now)
        may_join = self._is_on_for(draft) and not binds_thinking(draft.request, draft.target.model)
        way_back = await self._tool.find(draft, cache, may_join)
        planned = await self._decide_on(draft, CutPlan(cache, found, way_back, deadline, known={}))
        return await self._with_recalls(draft, planned)

    async def commit(self, draft: Draft, plan: CutPlan) -> CutPlan:
        """Store originals and decisions; all of them are on disk before a text is changed."""
        self._decisions.note_short(draft.caller, plan.short, plan.replacements)
        decisions, rewritten = await self._store(draft, plan)
        if plan.refusal is not None:
            decisions = {**decisions, **self._decisions.mark_uncut(draft.caller, plan.uncut, plan.refusal)}
        if not draft.caller.is_observed:
            for decision in decisions.values():
                self._metrics.sanitizer_outputs.labels(decision.why).inc()
        return replace(plan, known=decisions, rewritten_tokens=rewritten)

    def render(self, draft: Draft, plan: CutPlan) -> Draft:
        """Return `draft` with long tool results as the plan shows them."""
        decided = RequestDecisions(
            outputs=tuple(output for output in plan.outputs if output.key in plan.known),
            decisions=plan.known,
            offers_tool=plan.way_back.offers_tool,
            pending_results=plan.pending,
            previous_response=plan.previous_response,
            results=plan.results,
            rewritten_tokens=plan.rewritten_tokens,
            frees_window=plan.made.frees_window and plan.rewritten_tokens > 0,
            reasons=plan.reasons,
        )
        return sanitize(replace(draft, cache=plan.cache), decided)

    async def change(self, draft: Draft) -> Draft:
        done = await super().change(draft)
        if not draft.caller.is_observed:
            self._count(done)
        return done

    async def inherit(self, draft: Draft, parent: Conversation) -> bool:
        """Give a conversation the decisions of `parent` on the results in a request; return whether there are any."""
        keys = {key_in(parent.name, output.mark): output.key for output in await self._plan(draft)}
        return bool(keys) and await self._decisions.copy(draft.caller, keys, draft.session.id)

    async def stats(self, who: Caller) -> SanitizerStatsBody:
        """Return the settings, all tool results that were cut, and what requests saved since the start."""
        settings = self._settings
        totals = await self._decisions.totals(who)
        saved = totals.tokens_before - totals.tokens_after
        return {
            "enabled": self.is_on,
            "mode": "observe" if self._mode.is_on else "on",
            "policy": settings.policy,
            "threshold_tokens": settings.threshold_tokens or self._policy.entry_tokens,
            "quoted_threshold_tokens": settings.threshold_tokens or self._policy.quoted_tokens,
            "preview_length": settings.preview_length,
            "outputs": dict(totals.outputs),
            "tokens_before": totals.tokens_before,
            "tokens_after": totals.tokens_after,
            "tokens_saved": saved,
            "saved_percent": round(100 * saved / totals.tokens_before, 1) if totals.tokens_before else 0.0,
            "since_start": {name: self._since_start[name] for name in ("requests", COMPACTIONS, *_SUMMED)},
        }

    async def masks(self, who: Caller, limit: int) -> list[MaskBody]:
        """Return the newest cuts, in chats and elsewhere."""
        return [_mask_to_json(mask) for mask in await self._decisions.newest(who, limit)]

    def _count(self, done: Draft) -> None:
        self._since_start["requests"] += 1
        self._since_start[COMPACTIONS] += done.cache is not None and done.cache.is_compacted
        fields: Mapping[str, object] = next((note.fields for note in done.notes if note.event == EVENT), {})
        numbers = {name: number for name in _SUMMED if isinstance(number := fields.get(name), int)}
        self._since_start.update(numbers)
        self._metrics.sanitizer_tokens_saved.inc(max(0, numbers.get("tokens_saved", 0)))

    async def _plan(self, draft: Draft) -> tuple[LongOutput, ...]:
        request = draft.request
        name = draft.conversation.name
        return await aside(len(request.body) <= PARSED_BYTES, plan, request, self._policy.old_tokens, name)

    async def _with_recalls(self, draft: Draft, plan: CutPlan) -> CutPlan:
        """Return the plan with the results of our own calls that the request has to carry."""
        pending = plan.pending
        if draft.is_followed and not self._facts.is_shared:
            self._facts.assume_none_pending(draft.caller, draft.session.id, new_result_call_ids(draft.request))
        made = (*plan.made.new, *plan.made.old)
        if any(one.shown is not None for one in plan.known.values()) or any(one.shortened.hidden for one in made):
            results = self._facts.pending_results(draft.caller, draft.session.id, result_call_ids(draft.request))
            pending = await self._grace.read(results, pending)
        is_refused = plan.way_back.is_refused and self._is_on_for(draft)
        plan = replace(plan, pending=pending, reasons=("recall_refused",) if is_refused else ())
        response_id = draft.request.previous_response_id
        if not response_id:
            return plan
        nothing: Mapping[str, str] = {}
        results_of = await self._grace.read(self._facts.open_results(draft.caller, response_id), nothing)
        previous = await self._grace.read(self._facts.real_response_id(draft.caller, response_id), None)
        return replace(plan, previous_response=previous, results=results_of)

    def _is_on_for(self, draft: Draft) -> bool:
        """Return whether new decisions may be made; earlier decisions are repeated in any case."""
        return self.is_on and not draft.is_attested and not draft.is_observed

    def _refusal(self, draft: Draft, way_back: WayBack) -> Reason | None:
        """Return why nothing new may be cut in a request; None if it may."""
        if not self._is_on_for(draft):
            return "attested" if draft.is_attested else "observing" if draft.is_observed else "switched_off"
        if way_back.is_refused:
            return "recall_refused"
        return None if self._tool.can_read_back(draft, way_back) else "not_worth_resending"

    async def _decide_on(self, draft: Draft, plan: CutPlan) -> CutPlan:
        """Return the plan with a decision for each result long enough to need one."""
        outputs = plan.outputs
        if not outputs:
            return plan
        who = draft.caller
        since = self._decisions.replacements
        refusal = self._refusal(draft, plan.way_back)
        new: list[LongOutput] = []
        try:
            # Wait here even if time is short: otherwise earlier cuts would be sent uncut and their savings lost.
            async with self._grace.wait(plan.deadline.left_s):
                known = await self._decisions.read_known(who, outputs, is_followed=draft.is_followed)
        except (StoreUnavailable, TimeoutError) as e:
            self._grace.fell_back("remember", "store_unavailable", str(e))
            known = self._as_remembered(who, outputs)
        else:
            # The model has already read these results uncut: they wait until cutting is free.
            unknown = (output for output in outputs if output.key not in known and output.is_unread)
            new = [output for output in unknown if not self._decisions.is_short(who, output)]
        plan = replace(plan, known=known)
        restored: tuple[ShortenedOutput, ...] = ()
        may_change = not binds_thinking(draft.request, draft.target.model)
        is_lost = plan.way_back.recalls.refused and not plan.way_back.had_tool
        if is_lost and may_change and self._is_on_for(draft):
            restored = restore_cuts(outputs, known, plan.cache)
        if refusal is not None:
            return replace(plan, made=Decided(old=restored), uncut=new, refusal=refusal)
        filled_window = await self._filled_window(draft, plan.cache)
        moment = CutMoment.of(draft.request, plan.cache, filled_window)
        if not new and not moment.allows_cuts(self._policy):
            return replace(plan, made=Decided(old=restored))
        whole = {one.output.key: Decision(one.shortened.why) for one in restored}
        may_cut_old = may_change and not restored
        planned = replace(plan, known={**known, **whole}, filled_window=filled_window)
        decided = await self._decide_new(draft, planned, new, may_cut_old)
        short = [one.output for one in decided.new if one.shortened.why == "below_threshold"]
        made = replace(decided, old=(*restored, *decided.old))
        return replace(plan, made=made, short=short, replacements=since)

    async def _filled_window(self, draft: Draft, cache: CacheMoment) -> int:
        """Return the size of a window that the client is about to compact, if nothing was cut for it before."""
        window = self._window_of(draft.target) or 0
        if not self._policy.frees_window or not is_nearly_full(draft.request, cache, window):
            return 0
        was_cut = await self._grace.read(self._facts.was_window_freed(draft.caller, cache.conversation), True)
        return 0 if was_cut else window

    async def _decide_new(self, draft: Draft, plan: CutPlan, new: Sequence[LongOutput], may_cut_old: bool) -> Decided:
        conversation = await self._conversation(draft, plan.outputs, new)
        is_short = len(draft.request.body) <= COMPARED_CHARS
        wanted = frozenset(output.call_id for output in new)
        contexts = await aside(is_short, self._contexts, conversation, plan.known, wanted) if new else {}
        scored = await self._score(conversation, new, contexts, plan.deadline)
        rows = partial(self._rows_of, draft.caller)
        facts = Facts(
            plan.cache,
            self._seed,
            plan.known,
            scored,
            rows,
            may_cut_old=may_cut_old,
            filled_window=plan.filled_window,
        )
        return await self._fail_open.run(
            "decide", self._ask(conversation, facts), lambda code: _leave_new_uncut(conversation, scored)
        )

    def _as_remembered(self, who: Caller, outputs: Sequence[LongOutput]) -> dict[bytes, Decision]:
        """Return decisions without the store: those in memory, else uncut. Results that no model has read are new."""
        known = self._decisions.from_memory(who, outputs)
        others = [o for o in outputs if o.key not in known and not self._decisions.is_short(who, o)]
        unread = self._decisions.mark_uncut(who, (one for one in others if one.is_unread), "store_unavailable")
        return known | {output.key: Decision("store_unavailable") for output in others} | unread

    async def _conversation(
        self, draft: Draft, outputs: Sequence[LongOutput], new: Sequence[LongOutput]
    ) -> RequestResults:
        request = draft.request
        if new:
            marked = await self._grace.read(self._decisions.mark_cut(draft.caller, new, draft.session), new)
            by_key = {output.key: output for output in marked}
            outputs = [by_key.get(output.key, output) for output in outputs]
        about = await aside(len(request.body) <= PARSED_BYTES, goal, request)
        return RequestResults(request, outputs, about, self._tool.hint(draft))

    async def _ask(self, conversation: RequestResults, facts: Facts) -> Decided:
        # Earlier results are compared too, because a new one may repeat their lines.
        is_long = facts.scored and sum(len(output.text) for output in conversation.outputs) > DECIDED_CHARS
        is_short = not is_long and len(conversation.request.body) <= PARSED_BYTES
        return await aside(is_short, decide, conversation, self._policy, facts)

    def _seed(self, output: LongOutput) -> bytes:
        return self._draw(SEED_BYTES)

    def _rows_of(self, who: Caller, output: LongOutput) -> "array[int]":
        place = who.scope, output.key
        with self._rows_lock:
            known = self._rows.get(place)
        if known is None:
            known = rows_of(output)
            with self._rows_lock:
                self._rows.put(place, known, known.itemsize * len(known))
        return known

    # Scores

    async def _score(
        self,
        conversation: RequestResults,
        new: Sequence[LongOutput],
        contexts: Mapping[Place, CallContext],
        deadline: WaitLimit,
    ) -> dict[bytes, ShortenedText]:
        """Return the new results as the engine cut them; results that cannot be scored in time stay uncut."""
        by_key = {output.key: output for output in conversation.outputs}
        scored: dict[bytes, ShortenedText] = {}
        for some in in_batches([by_key[output.key] for output in new], AT_ONCE):
            if deadline.is_past_hurry:
                scored |= {output.key: leave_uncut(output, output.whole_because or "out_of_time") for output in some}
                continue
            tasks = (self._one(conversation, output, contexts.get(output.spot), deadline) for output in some)
            forms = await asyncio.gather(*tasks)
            scored |= {output.key: form for output, form in zip(some, forms, strict=True)}
        return scored

    def _contexts(
        self, conversation: RequestResults, known: Mapping[bytes, Decision], wanted: Collection[str] | None
    ) -> dict[Place, CallContext]:
        """Return the agent's activity at the time of each result, or of those of the `wanted` calls."""
        decided = ((output, known.get(output.key)) for output in conversation.outputs)
        shown = {output.spot: one.shown for output, one in decided if one is not None and one.shown is not None}
        quotes = edits_by_quoting(conversation.request.tool_names)
        return contexts(conversation.request, quotes, shown, wanted)

    async def _one(
        self, conversation: RequestResults, output: LongOutput, context: CallContext | None, deadline: WaitLimit
    ) -> ShortenedText:
        """Return a result as the engine cut it, if it is long enough; whatever fails, it stays uncut."""

        def leave(code: WarningCode) -> ShortenedText:
            return leave_uncut(output, "failed")

        work = self._shorten_one(conversation, output, context, deadline)
        return await self._fail_open.run("shorten", work, leave)

    async def _shorten_one(
        self, conversation: RequestResults, output: LongOutput, context: CallContext | None, deadline: WaitLimit
    ) -> ShortenedText:
        if output.whole_because:
            return leave_uncut(output, output.whole_because)
        given = output, conversation, self._policy, self._limits, self._seed(output), context
        task = await aside(len(output.text) <= COMPARED_CHARS, entry_task, *given)
        if task is None:
            return leave_uncut(output, "below_threshold")
        try:
            return await self._workers.shorten(task, deadline.left_s, self._cpu_s)
        except TimeoutError:  # a busy machine, which is no fault
            return leave_uncut(output, "out_of_time")

    # The transaction

    async def _store(self, draft: Draft, plan: CutPlan) -> tuple[Mapping[bytes, Decision], int]:
        """Store all decisions in one transaction; if that fails, new results are sent uncut and old ones as before."""
        decided = plan.made
        new = [one for one in decided.new if one.shortened.why != "below_threshold"]
        made: Sequence[ShortenedOutput] = (*new, *decided.old)
        if not made:
            return plan.known, 0
        try:
            async with self._grace.wait(BUSY_FACTOR * self._cpu_s if decided.old else plan.deadline.left_s):
                if decided.frees_window:  # written down first: there is one such cut for each window
                    await self._facts.save_window_freed(draft.caller, plan.cache.conversation)
                kept = await self._decisions.commit(draft.caller, made, draft.session.id)
                return {**plan.known, **kept}, decided.rewritten_tokens
        except (StoreUnavailable, TimeoutError) as e:
            self._grace.fell_back("settle", "store_unavailable", str(e))
            entered = [one.output for one in made if not one.replaces]
            return {**plan.known, **self._decisions.mark_uncut(draft.caller, entered, "store_unavailable")}, 0


def _leave_new_uncut(conversation: RequestResults, scored: Mapping[bytes, ShortenedText]) -> Decided:
    """Return the decision not to cut any new result; earlier ones are sent as before."""
    new = [output for output in conversation.outputs if output.key in scored]
    return Decided(tuple(ShortenedOutput(output, conversation.goal, leave_uncut(output, "failed")) for output in new))


def _mask_to_json(mask: ListedOriginal) -> MaskBody:
    body: MaskBody = {"id": mask.id, "created_at": mask.created, "last_used_at": mask.last_used}
    if (decision := mask.decision) is not None:
        body["why"] = decision.why
        body["preview"] = decision.preview
        body["session"] = decision.session
        body["tokens_before"] = decision.tokens_before
        body["tokens_after"] = decision.tokens_after
        return body
    note = read_note(mask.about)
    if preview := note.get("preview"):
        body["preview"] = str(preview)
    if server := note.get("server"):
        body["server"] = str(server)
    if tool := note.get("tool"):
        body["tool"] = str(tool)
    return body
