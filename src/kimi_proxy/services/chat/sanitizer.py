"""The sanitizer stage: what was decided about a tool result is repeated, a new one is shortened within its time."""

import asyncio
import logging
import secrets
import threading
import time
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from kimi_proxy.core import tokens
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat.edit import Place
from kimi_proxy.core.config.sections import SanitizerSettings as Settings
from kimi_proxy.core.errors import Reason, StoreUnavailable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.prune import CallContext
from kimi_proxy.features.pipeline import Draft
from kimi_proxy.features.prompt_cache import CacheMoment
from kimi_proxy.features.sanitizer import stage as offer
from kimi_proxy.features.sanitizer.history import contexts
from kimi_proxy.features.sanitizer.lossless import (
    Earlier,
    aged_form,
    bounded_form,
    lossless_form,
    readable_before,
    rows_of,
    table_form,
)
from kimi_proxy.features.sanitizer.plan import LongOutput, goal, plan
from kimi_proxy.features.sanitizer.policy import (
    POLICIES,
    EntryCut,
    aged_results,
    edits_by_quoting,
    is_quoted,
    is_user_turn,
    likely_used,
    old_results,
    paying_results,
)
from kimi_proxy.features.sanitizer.shorten import HUGE_TOKENS, ShortenedText, Task
from kimi_proxy.features.sanitizer.stage import EVENT, Decision, RequestDecisions, result_call_ids, sanitize
from kimi_proxy.services.chat.decisions import AT_ONCE, ChatDecisions, ScopedKey, ShortenedOutput, in_batches
from kimi_proxy.services.chat.handler import IN_LOOP_MAX_BYTES
from kimi_proxy.services.chat.prompt_cache import PromptCaches
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store.protocols import ListedOriginal
from kimi_proxy.services.workers.pool import Workers

BUSY_FACTOR = 3  # how much longer than its CPU time a request waits: agents run builds, so cores are shared
HURRY_S = 0.5  # beyond that, in which what is late is cut without scores; the rest of thousands goes whole
# What was shortened, now or before, is worth waiting for the disk, also on a busy machine; not once it has hung.
COMMIT_GRACE_S, HUNG_GRACE_S = 1.5, 0.25
IN_LOOP_MAX_CHARS = 128 * 1024
MAX_REMEMBERED = 10_000  # entries of a few hundred bytes
ROWS_BYTES = 4 * 1024**2  # of what is remembered of results, to find them in others
SEED_BYTES = 32

# Fields of the event that are summed up over requests.
_SUMMED = ("cut", "cut_now", "tokens_saved", "tool_tokens", "prefix_tokens_resent")

Value = TypeVar("Value")

log = logging.getLogger(__name__)


class Sanitizer:
    def __init__(
        self,
        settings: Settings,
        address: str,
        decisions: ChatDecisions,
        workers: Workers,
        metrics: Metrics,
        caches: PromptCaches | None = None,
        now: Callable[[], float] = time.monotonic,
        draw: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.is_on = settings.enabled
        self._settings = settings
        self._address = address
        self._decisions = decisions
        self._workers = workers
        self._metrics = metrics
        self._now = now
        self._draw = draw
        self._caches = caches or PromptCaches()
        self._cpu_s = settings.budget_ms / 1000
        self._grace_s = COMMIT_GRACE_S + self._cpu_s
        self._policy = POLICIES[settings.policy]
        self._rows: LruCache[ScopedKey, array[int]] = LruCache(MAX_REMEMBERED, max_bytes=ROWS_BYTES)
        self._rows_lock = threading.Lock()  # long results are looked at in threads
        self._has_tool: LruCache[ScopedKey, bool] = LruCache(MAX_REMEMBERED)
        self._since_start: Counter[str] = Counter()

    async def shorten(self, draft: Draft) -> Draft:
        """Return `draft` with long tool results cut, as they were cut before; the originals are on disk by then."""
        found, cache = await self._plan(draft), await self._caches.observe(draft)
        draft = replace(draft, cache=cache)
        decided = await self._decide(draft, found, cache)
        is_short = len(draft.request.body) <= IN_LOOP_MAX_BYTES
        done = sanitize(draft, decided) if is_short else await asyncio.to_thread(sanitize, draft, decided)
        self._count(decided, done)
        return done

    async def stats(self, who: Caller) -> JsonObject:
        """Return the settings, all tool results that were cut, and what requests saved since the start."""
        settings, totals = self._settings, await self._decisions.totals(who)
        saved = totals.tokens_before - totals.tokens_after
        return {
            "enabled": self.is_on,
            "policy": settings.policy,
            "threshold_tokens": settings.threshold_tokens or self._policy.entry_tokens,
            "quoted_threshold_tokens": settings.threshold_tokens or self._policy.quoted_tokens,
            "preview_length": settings.preview_length,
            "outputs": dict(totals.outputs),
            "tokens_before": totals.tokens_before,
            "tokens_after": totals.tokens_after,
            "tokens_saved": saved,
            "saved_percent": round(100 * saved / totals.tokens_before, 1) if totals.tokens_before else 0.0,
            "since_start": {name: self._since_start[name] for name in ("requests", *_SUMMED)},
        }

    async def masks(self, who: Caller, limit: int) -> list[JsonObject]:
        """Return what was cut last, in chats and elsewhere."""
        return [_mask_to_json(mask) for mask in await self._decisions.newest(who, limit)]

    def _count(self, decided: RequestDecisions, done: Draft) -> None:
        self._since_start["requests"] += 1
        if not decided.decisions:
            return
        for decision in decided.decisions.values():
            self._metrics.sanitizer_outputs.labels(decision.why).inc()
        fields: Mapping[str, JsonValue] = next((note.fields for note in done.notes if note.event == EVENT), {})
        numbers = {name: number for name in _SUMMED if isinstance(number := fields.get(name), int)}
        self._since_start.update(numbers)
        self._metrics.sanitizer_tokens_saved.inc(max(0, numbers.get("tokens_saved", 0)))

    async def _decide(self, draft: Draft, found: Sequence[LongOutput], cache: CacheMoment) -> RequestDecisions:
        """Return how each long tool result of a request leaves: as it did before, or as is decided now."""
        deadline = self._now() + BUSY_FACTOR * self._cpu_s
        offers_tool, rewritten = await self._offers_tool(draft, cache), 0
        decisions = await self._decisions_on(draft, found, offers_tool, deadline)
        if found and self._is_on_for(draft) and self._may_cut(draft, offers_tool):
            aged, rewritten = await self._age(draft, found, decisions, cache)
            decisions |= aged
        long = tuple(output for output in found if output.key in decisions)
        pending: dict[str, str] = {}
        if any(one.shown is not None for one in decisions.values()):
            results = self._decisions.pending_results(draft.caller, draft.session.id, result_call_ids(draft.request))
            pending = await self._read(results, pending)
        decided = RequestDecisions(long, decisions, offers_tool, pending, rewritten_tokens=rewritten)
        response_id = draft.request.previous_response_id
        return await self._with_previous_response(draft.caller, decided, response_id) if response_id else decided

    def _is_on_for(self, draft: Draft) -> bool:
        """Return whether anything new may be decided; what was decided before is repeated in any case."""
        return self.is_on and not draft.is_attested

    # Our tool

    async def _offers_tool(self, draft: Draft, cache: CacheMoment) -> bool:
        """Return whether our tool is in this conversation: it joins only while the prompt cache has nothing to lose."""
        request, who = draft.request, draft.caller
        place = who.scope, cache.conversation
        if not self._settings.recover_tool or not offer.may_offer_tool(request):
            return False
        has_tool = self._has_tool.get(place)
        if not has_tool and self._is_on_for(draft) and cache.is_cold and not offer.is_offered(request):
            # The request does not wait for the disk: what a crash loses of it costs one rewrite of the prefix.
            self._decisions.save_has_tool(who, cache.conversation)
            has_tool = True
        if has_tool is None:
            # Nearly every conversation has it: while the store cannot be read, to leave it out would cost more.
            has_tool = await self._read(self._decisions.has_tool(who, cache.conversation), self._is_on_for(draft))
        if has_tool or not self._decisions.is_shared:
            self._has_tool.put(place, has_tool)
        else:
            self._has_tool.forget(place)  # another server may let it join
        return has_tool

    def _may_cut(self, draft: Draft, offers_tool: bool) -> bool:
        """Return whether what is cut can be read back: by our tool, by the client's own, or by the hint that we add."""
        if offers_tool or offer.is_offered(draft.request):
            return True
        return not self._settings.recover_tool or offer.may_follow_hint(draft.request)

    # Old results

    async def _age(
        self, draft: Draft, outputs: Sequence[LongOutput], decisions: Mapping[bytes, Decision], cache: CacheMoment
    ) -> tuple[dict[bytes, Decision], int]:
        """Return new decisions for old results, where cutting them is free or pays, and the tokens rewritten for it."""
        if len(draft.request.body) <= IN_LOOP_MAX_BYTES:
            shortened, rewritten = self._aged_forms(draft, outputs, decisions, cache)
        else:
            shortened, rewritten = await asyncio.to_thread(self._aged_forms, draft, outputs, decisions, cache)
        if not shortened:
            return {}, 0
        try:
            async with self._store_answers(BUSY_FACTOR * self._cpu_s):
                return await self._decisions.commit(draft.caller, shortened, draft.session.id, replaces=True), rewritten
        except (StoreUnavailable, TimeoutError) as e:
            self._fell_back("settle", "store_unavailable", str(e))
            return {}, 0

    def _aged_forms(
        self, draft: Draft, outputs: Sequence[LongOutput], decisions: Mapping[bytes, Decision], cache: CacheMoment
    ) -> tuple[list[ShortenedOutput], int]:
        """Return the old results that may be cut deeper now, and the cached tokens that have to be sent anew for it."""
        policy = self._policy
        warm = policy.warm_cut(has_tools=bool(draft.request.tool_names))
        cold_from = cache.cold_from
        if cold_from is None and not (warm.within_requests and is_user_turn(draft.request)):
            return [], 0
        keep = warm.keep_newest if cold_from is None else policy.keep_newest
        aged = aged_results(draft.request, outputs, decisions)
        spares_files = warm.spares_files and cold_from is None
        aged_out = old_results(aged, keep, policy.old_tokens, spares_files=spares_files)
        found = [at for at in aged_out if outputs[at].spot[0] >= (cold_from or 0)]
        old, rewritten = [outputs[at] for at in found], 0
        if old and cold_from is None:
            shown = [(outputs[at], aged[at]) for at in found]
            old, rewritten = paying_results(draft.request, shown, warm.within_requests, cache.rules)
        hint = self._hint(draft)
        forms = [(output, aged_form(output, self._draw(SEED_BYTES), hint)) for output in old]
        gone = {output.key for output, form in forms if form}
        renewed = self._renew(draft.caller, outputs, decisions, gone, hint, goal(draft.request)) if gone else ()
        # What stands before the cold part is still in the prompt cache, and stays as it was sent.
        cold = [] if cold_from is None else [output for output in outputs if output.spot[0] >= cold_from]
        tables = self._tables(cold, decisions, gone, edits_by_quoting(draft.request.tool_names))
        made = (*forms, *renewed, *tables)
        return [ShortenedOutput(output, "", form) for output, form in made if form], rewritten

    def _tables(
        self, outputs: Sequence[LongOutput], decisions: Mapping[bytes, Decision], gone: Collection[bytes], quotes: bool
    ) -> Iterator[tuple[LongOutput, ShortenedText | None]]:
        """Yield results that stay whole, and that the model has read, as tables: an edit may quote what a tool read."""
        for output in outputs:
            decision = decisions.get(output.key)
            is_whole = output.key not in gone and (decision is None or decision.shown is None)
            if is_whole and not output.is_unread and not is_quoted(output.origin, quotes):
                yield output, table_form(output, self._draw(SEED_BYTES))

    def _renew(
        self,
        who: Caller,
        outputs: Sequence[LongOutput],
        decisions: Mapping[bytes, Decision],
        gone: Collection[bytes],
        hint: str,
        about: str,
    ) -> Iterator[tuple[LongOutput, ShortenedText]]:
        """What points to an old result that goes is shown again."""
        rows_of = partial(self._rows_of, who)
        for at, output in enumerate(outputs):
            decision = decisions.get(output.key)
            if decision is not None and decision.why == "repeated" and output.key not in gone:
                earlier = readable_before(outputs[:at], decisions, output, rows_of, gone)
                form = lossless_form(output, earlier, self._draw(SEED_BYTES), hint)
                yield output, self._fit(output, form or _whole(output, "asked_again"), hint, about)

    async def _with_previous_response(
        self, who: Caller, decided: RequestDecisions, response_id: str
    ) -> RequestDecisions:
        """Return `decided` with the recall results that `previous_response_id` still waits for."""
        nothing: Mapping[str, str] = {}
        results = await self._read(self._decisions.open_results(who, response_id), nothing)
        previous = await self._read(self._decisions.real_response_id(who, response_id), None)
        return replace(decided, previous_response=previous, results=results)

    async def _read(self, work: Awaitable[Value], fallback: Value) -> Value:
        try:
            async with self._store_answers():
                return await work
        except (StoreUnavailable, TimeoutError) as e:
            self._fell_back("remember", "store_unavailable", str(e))
            return fallback

    @asynccontextmanager
    async def _store_answers(self, more_s: float = 0.0) -> AsyncIterator[None]:
        """Raise TimeoutError if the store takes too long; after that it gets less time, until it answers again."""
        try:
            async with asyncio.timeout(self._grace_s + more_s):
                yield
        except TimeoutError:
            self._grace_s = HUNG_GRACE_S
            raise
        self._grace_s = COMMIT_GRACE_S + self._cpu_s

    async def _plan(self, draft: Draft) -> tuple[LongOutput, ...]:
        request, floor = draft.request, self._policy.old_tokens
        if len(request.body) <= IN_LOOP_MAX_BYTES:
            return plan(request, floor)
        return await asyncio.to_thread(plan, request, floor)

    async def _decisions_on(
        self, draft: Draft, outputs: Sequence[LongOutput], offers_tool: bool, deadline: float
    ) -> dict[bytes, Decision]:
        """Return a decision for each result that is long enough to need one."""
        if not outputs:
            return {}
        who, since = draft.caller, self._decisions.replacements
        try:
            # Whatever the rest took: what was cut before would come back, and with it all that it had saved.
            async with self._store_answers(max(0.0, deadline - self._now())):
                known = await self._decisions.read_known(who, outputs)
        except (StoreUnavailable, TimeoutError) as e:
            self._fell_back("remember", "store_unavailable", str(e))
            return self._as_remembered(who, outputs)
        # What the model has read, it has read whole: it is left to the next moment at which cutting is free.
        unknown = (output for output in outputs if output.key not in known and output.is_unread)
        new = [output for output in unknown if not self._decisions.is_short(who, output)]
        if not new:
            return known
        if not self._is_on_for(draft):
            return known | self._decisions.went_whole(who, new, "attested" if draft.is_attested else "switched_off")
        if not self._may_cut(draft, offers_tool):
            return known | self._decisions.went_whole(who, new, "not_worth_resending")
        marked = await self._read(self._decisions.mark_cut(who, new, draft.session), new)
        made = await self._shorten_new(draft, outputs, marked, known, deadline)
        shortened = [one for one in made if one.shortened.why != "below_threshold"]
        short = (one.output for one in made if one.shortened.why == "below_threshold")
        self._decisions.note_short(who, short, since)
        return known | await self._commit(draft, shortened, deadline)

    def _as_remembered(self, who: Caller, outputs: Sequence[LongOutput]) -> dict[bytes, Decision]:
        """Return decisions without the store: those in memory, else whole. What the model has not read was not sent."""
        known = self._decisions.from_memory(who, outputs)
        others = [o for o in outputs if o.key not in known and not self._decisions.is_short(who, o)]
        unread = self._decisions.went_whole(who, (one for one in others if one.is_unread), "store_unavailable")
        return known | {output.key: Decision("store_unavailable") for output in others} | unread

    async def _shorten_new(
        self,
        draft: Draft,
        outputs: Sequence[LongOutput],
        new: Sequence[LongOutput],
        known: Mapping[bytes, Decision],
        deadline: float,
    ) -> list[ShortenedOutput]:
        """Return the new results as they leave; those that cannot be scored before the deadline leave whole."""
        request, hint = draft.request, self._hint(draft)
        is_short = len(request.body) <= IN_LOOP_MAX_BYTES
        about = goal(request) if is_short else await asyncio.to_thread(goal, request)
        context_of = await asyncio.to_thread(self._contexts, draft, outputs, known)
        scored: list[ShortenedText] = []
        for some in in_batches(new, AT_ONCE):
            if self._now() > deadline + HURRY_S:
                scored += [_whole(output, output.whole_because or "out_of_time") for output in some]
                continue
            tasks = (self._one(draft, output, about, context_of.get(output.spot), deadline) for output in some)
            scored += await asyncio.gather(*tasks)
        # Earlier results are looked at too, for what a new one repeats of them.
        if sum(len(output.text) for output in outputs) <= IN_LOOP_MAX_CHARS:
            forms = self._forms(draft.caller, outputs, new, scored, known, hint, about)
        else:
            forms = await asyncio.to_thread(self._forms, draft.caller, outputs, new, scored, known, hint, about)
        return [ShortenedOutput(output, about, form) for output, form in zip(new, forms, strict=True)]

    def _contexts(
        self, draft: Draft, outputs: Sequence[LongOutput], known: Mapping[bytes, Decision]
    ) -> Mapping[Place, CallContext]:
        """Return what the agent was doing when each result came."""
        decided = ((output, known.get(output.key)) for output in outputs)
        shown = {output.spot: one.shown for output, one in decided if one is not None and one.shown is not None}
        return contexts(draft.request, edits_by_quoting(draft.request.tool_names), shown)

    def _forms(
        self,
        who: Caller,
        outputs: Sequence[LongOutput],
        new: Sequence[LongOutput],
        scored: Sequence[ShortenedText],
        known: Mapping[bytes, Decision],
        hint: str,
        about: str,
    ) -> list[ShortenedText]:
        """Return the shortest form of each new result. What this request cuts cannot be pointed to by a later one."""
        decisions, rows_of = dict(known), partial(self._rows_of, who)
        at = {output.key: place for place, output in enumerate(outputs)}
        forms: list[ShortenedText] = []
        for output, by_score in zip(new, scored, strict=True):
            earlier = readable_before(outputs[: at[output.key]], decisions, output, rows_of)
            form = self._best(output, by_score, earlier, hint, about)
            decisions[output.key] = Decision(form.why, form.shown if form.hidden else None)
            forms.append(form)
        return forms

    def _rows_of(self, who: Caller, output: LongOutput) -> "array[int]":
        place = who.scope, output.key
        with self._rows_lock:
            known = self._rows.get(place)
        if known is None:
            known = rows_of(output)
            with self._rows_lock:
                self._rows.put(place, known, known.itemsize * len(known))
        return known

    def _best(
        self, output: LongOutput, scored: ShortenedText, earlier: Sequence[Earlier], hint: str, about: str
    ) -> ShortenedText:
        """Return a form that loses nothing if it is as short as what the engine left."""
        if output.whole_because == "recovered":
            return scored
        light = lossless_form(output, earlier, self._draw(SEED_BYTES), hint)
        best = light if light and (not scored.hidden or light.tokens_after <= scored.tokens_after) else scored
        return self._fit(output, best, hint, about)

    def _fit(self, output: LongOutput, form: ShortenedText, hint: str, about: str) -> ShortenedText:
        if len(form.shown) > HUGE_TOKENS and (form.tokens_after or tokens.count(form.shown)) > HUGE_TOKENS:
            return bounded_form(output, self._draw(SEED_BYTES), HUGE_TOKENS, hint, form.tokens_before, about) or form
        return form

    async def _one(
        self, draft: Draft, output: LongOutput, about: str, context: CallContext | None, deadline: float
    ) -> ShortenedText:
        """Return what the engine leaves of a result that is long enough for it."""
        if output.whole_because:
            return _whole(output, output.whole_because)
        quotes = edits_by_quoting(draft.request.tool_names)
        if set_by_user := self._settings.threshold_tokens:
            cut = EntryCut(set_by_user)
        else:
            likely = await asyncio.to_thread(likely_used, output.text, context)
            cut = self._policy.entry_cut(output.origin, quotes, likely)
        if len(output.text) <= cut.over_tokens:  # a token has one character at least
            return _whole(output, "below_threshold")
        task = Task(
            text=output.text,
            goal=about,
            origin=output.origin,
            is_unread=output.is_unread,
            threshold_tokens=cut.over_tokens,
            preview_chars=self._settings.preview_length,
            seed=self._draw(SEED_BYTES),
            hint=self._hint(draft),
            keep_tokens=cut.keep_tokens,
            context=context,
        )
        try:
            return await self._workers.shorten(task, max(0.0, deadline - self._now()), self._cpu_s)
        except TimeoutError:
            return _whole(output, "out_of_time")
        except ChildProcessError as e:
            self._fell_back("shorten", "failed", str(e))
            return _whole(output, "failed")

    async def _commit(
        self, draft: Draft, shortened: Sequence[ShortenedOutput], deadline: float
    ) -> dict[bytes, Decision]:
        if not shortened:
            return {}
        try:
            async with self._store_answers(max(0.0, deadline - self._now())):
                return await self._decisions.commit(draft.caller, shortened, draft.session.id)
        except (StoreUnavailable, TimeoutError) as e:
            self._fell_back("settle", "store_unavailable", str(e))
            return self._decisions.went_whole(draft.caller, (one.output for one in shortened), "store_unavailable")

    def _hint(self, draft: Draft) -> str:
        """Return how a model without our tool gets at what was cut; empty if it has the tool."""
        request = draft.request
        if offer.is_offered(request) or (self._settings.recover_tool and offer.may_offer_tool(request)):
            return ""  # else nothing would be cut
        return offer.hint(self._address)

    def _fell_back(self, step: str, code: str, what: str) -> None:
        self._metrics.chat_faults.labels(step, code).inc()
        log.warning("sanitizer fell back", extra={"step": step, "code": code, "what": what[:300]})


def _whole(output: LongOutput, why: Reason) -> ShortenedText:
    return ShortenedText(output.text, why, (), 0, 0)


def _mask_to_json(mask: ListedOriginal) -> JsonObject:
    fields: JsonObject = {"id": mask.id, "created_at": mask.created, "last_used_at": mask.last_used}
    if mask.decision is None:
        return fields
    names = ("why", "preview", "session", "tokens_before", "tokens_after")
    return fields | {name: getattr(mask.decision, name) for name in names}
