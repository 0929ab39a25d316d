"""The sanitizer stage: what was decided about a tool result is repeated, a new one is shortened within its time."""

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.config.sections import SanitizerSettings as Settings
from kimi_proxy.core.errors import Reason, StoreUnavailable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.pipeline import Draft
from kimi_proxy.features.sanitizer import stage as offer
from kimi_proxy.features.sanitizer.plan import LongOutput, goal, plan
from kimi_proxy.features.sanitizer.shorten import ShortenedText, Task
from kimi_proxy.features.sanitizer.stage import (
    EVENT,
    Decision,
    RequestDecisions,
    is_first_cut_worth,
    result_call_ids,
    sanitize,
)
from kimi_proxy.services.chat.decisions import ChatDecisions, ShortenedOutput
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store.protocols import ListedOriginal
from kimi_proxy.services.workers import Workers

COMMIT_GRACE_S = 0.25  # what was shortened in time, now or before, is worth waiting for the disk
IN_LOOP_MAX_BYTES = 1024**2
MAX_SMALL = 50_000
DAY_S = 86_400
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
        self._since_start: Counter[str] = Counter()
        # Tool results below the threshold: to count their tokens again with every request would be a waste.
        self._small: LruCache[bytes, bool] = LruCache(MAX_SMALL, ttl_s=DAY_S, now=now)

    async def shorten(self, draft: Draft) -> Draft:
        """Return `draft` with long tool results cut, as they were cut before; the originals are on disk by then."""
        decided = await self._decided(draft)
        done = sanitize(draft, decided)
        self._count(decided, done)
        return done

    async def stats(self) -> JsonObject:
        """Return the settings, all tool results that were cut, and what requests saved since the start."""
        settings, totals = self._settings, await self._decisions.totals()
        saved = totals.tokens_before - totals.tokens_after
        return {
            "enabled": self.is_on,
            "threshold_tokens": settings.threshold_tokens,
            "preview_length": settings.preview_length,
            "outputs": dict(totals.outputs),
            "tokens_before": totals.tokens_before,
            "tokens_after": totals.tokens_after,
            "tokens_saved": saved,
            "saved_percent": round(100 * saved / totals.tokens_before, 1) if totals.tokens_before else 0.0,
            "since_start": {name: self._since_start[name] for name in ("requests", *_SUMMED)},
        }

    async def masks(self, limit: int) -> list[JsonObject]:
        """Return what was cut last, in chats and elsewhere."""
        return [_mask_to_json(mask) for mask in await self._decisions.newest(limit)]

    def _count(self, decided: RequestDecisions, done: Draft) -> None:
        for decision in decided.decisions.values():
            self._metrics.sanitizer_outputs.labels(decision.why).inc()
        fields: Mapping[str, JsonValue] = next((note.fields for note in done.notes if note.event == EVENT), {})
        numbers = {name: number for name in _SUMMED if isinstance(number := fields.get(name), int)}
        self._since_start.update({"requests": 1, **numbers})
        self._metrics.sanitizer_tokens_saved.inc(max(0, numbers.get("tokens_saved", 0)))

    async def _decided(self, draft: Draft) -> RequestDecisions:
        deadline = self._now() + self._settings.budget_ms / 1000
        request, threshold = draft.request, self._settings.threshold_tokens
        is_short = len(request.body) <= IN_LOOP_MAX_BYTES
        found = plan(request, threshold) if is_short else await asyncio.to_thread(plan, request, threshold)
        outputs = [output for output in found if self._small.get(output.key) is None]
        decisions = await self._decisions_on(draft, outputs, deadline) if outputs else {}
        long = tuple(output for output in outputs if output.key in decisions)
        pending: dict[str, str] = {}
        if any(one.shown is not None for one in decisions.values()):
            results = self._decisions.pending_results(draft.session.id, result_call_ids(draft.request))
            pending = await self._read(results, pending)
        decided = RequestDecisions(long, decisions, self._settings.recover_tool, pending)
        response_id = draft.request.previous_response_id
        return await self._with_previous_response(decided, response_id) if response_id else decided

    async def _with_previous_response(self, decided: RequestDecisions, response_id: str) -> RequestDecisions:
        """Return `decided` with the recall results that `previous_response_id` still waits for."""
        nothing: Mapping[str, str] = {}
        results = await self._read(self._decisions.open_results(response_id), nothing)
        previous = await self._read(self._decisions.real_response_id(response_id), None)
        return replace(decided, previous_response=previous, results=results)

    async def _read(self, work: Awaitable[Value], fallback: Value) -> Value:
        try:
            async with asyncio.timeout(COMMIT_GRACE_S):
                return await work
        except (StoreUnavailable, TimeoutError) as e:
            self._fell_back("remember", "store_unavailable", str(e))
            return fallback

    async def _decisions_on(
        self, draft: Draft, outputs: Sequence[LongOutput], deadline: float
    ) -> dict[bytes, Decision]:
        """Return a decision for each output that is long enough to need one."""
        try:
            # Whatever the rest took: what was cut before would come back, and with it all that it had saved.
            async with asyncio.timeout(max(0.0, deadline - self._now()) + COMMIT_GRACE_S):
                known = await self._decisions.known(outputs)
        except (StoreUnavailable, TimeoutError) as e:
            self._fell_back("remember", "store_unavailable", str(e))
            # What the model has not read yet was not sent before, and can be decided.
            unread = self._decisions.went_whole((one for one in outputs if one.is_unread), "store_unavailable")
            return {output.key: Decision("store_unavailable") for output in outputs} | unread
        new = [output for output in outputs if output.key not in known]
        if not new:
            return known
        if not self.is_on:
            return known | self._decisions.went_whole(new, "switched_off")
        shortened = await self._shortened(draft, new, deadline)
        if all(decision.shown is None for decision in known.values()) and not self._is_worth(draft, shortened):
            # They stay whole, because that is what the prompt cache will have.
            shortened = [
                replace(one, shortened=_whole(one.output, "not_worth_resending")) if one.shortened.hidden else one
                for one in shortened
            ]
        return known | await self._committed(draft, shortened, deadline)

    def _is_worth(self, draft: Draft, shortened: Sequence[ShortenedOutput]) -> bool:
        cut = [one.shortened for one in shortened if one.shortened.hidden]
        saved = sum(one.tokens_before - one.tokens_after for one in cut)
        return not cut or is_first_cut_worth(draft.request, saved, self._settings.recover_tool)

    async def _shortened(self, draft: Draft, outputs: Sequence[LongOutput], deadline: float) -> list[ShortenedOutput]:
        about = goal(draft.request)
        done = await asyncio.gather(*(self._one(draft, output, about, deadline) for output in outputs))
        long: list[ShortenedOutput] = []
        for output, shortened in zip(outputs, done, strict=True):
            if shortened.why == "below_threshold":
                self._small.put(output.key, True)
            else:
                long.append(ShortenedOutput(output, about, shortened))
        return long

    async def _one(self, draft: Draft, output: LongOutput, about: str, deadline: float) -> ShortenedText:
        if output.whole_because:
            return _whole(output, output.whole_because)
        settings = self._settings
        task = Task(
            text=output.text,
            goal=about,
            origin=output.origin,
            is_unread=output.is_unread,
            threshold_tokens=settings.threshold_tokens,
            preview_chars=settings.preview_length,
            seed=self._draw(SEED_BYTES),
            hint=self._hint(draft),
        )
        try:
            return await self._workers.shorten(task, max(0.0, deadline - self._now()))
        except TimeoutError:
            return _whole(output, "out_of_time")
        except ChildProcessError as e:
            self._fell_back("shorten", "failed", str(e))
            return _whole(output, "failed")

    async def _committed(
        self, draft: Draft, shortened: Sequence[ShortenedOutput], deadline: float
    ) -> dict[bytes, Decision]:
        if not shortened:
            return {}
        try:
            async with asyncio.timeout(max(0.0, deadline - self._now()) + COMMIT_GRACE_S):
                return await self._decisions.commit(shortened, draft.session.id)
        except (StoreUnavailable, TimeoutError) as e:
            self._fell_back("settle", "store_unavailable", str(e))
            return self._decisions.went_whole((one.output for one in shortened), "store_unavailable")

    def _hint(self, draft: Draft) -> str:
        """Return how a model without our tool gets at what was cut; empty if it has the tool."""
        request = draft.request
        if offer.is_offered(request) or (self._settings.recover_tool and offer.may_offer_tool(request)):
            return ""
        return (
            "[kimi-proxy left out what the markers name; files are whole. To read it: MCP tool recover_text, or "
            f"GET {self._address}/api/mask/{{id}}?lines=START-END]"
        )

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
