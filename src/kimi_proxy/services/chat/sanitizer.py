"""The sanitizer at work: what was decided once is repeated, what is new is shortened within its time."""

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
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.pipeline import Draft, Stage
from kimi_proxy.features.sanitizer import stage as offer
from kimi_proxy.features.sanitizer.plan import Output, Plan, goal, plan
from kimi_proxy.features.sanitizer.shorten import Shortened, Task
from kimi_proxy.features.sanitizer.stage import EVENT, Decided, Decision, call_names, is_first_cut_worth, sanitize
from kimi_proxy.services.chat.decisions import ChatDecisions, ShortenedOutput
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store import DecisionTotals, ListedOriginal
from kimi_proxy.services.workers import Workers

# What is summed up over requests.
_SUMMED = ("cut", "cut_now", "tokens_saved", "tool_tokens", "prefix_tokens_resent")


class Savings:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._since_start: Counter[str] = Counter()

    def count(self, decided: Decided, done: Draft) -> None:
        """What was decided about a request, and what became of it."""
        for decision in decided.decisions.values():
            self._metrics.sanitizer_outputs.labels(decision.why).inc()
        told: Mapping[str, JsonValue] = next((note.fields for note in done.notes if note.event == EVENT), {})
        numbers = {name: number for name in _SUMMED if isinstance(number := told.get(name), int)}
        self._since_start.update({"requests": 1, **numbers})
        self._metrics.sanitizer_tokens_saved.inc(max(0, numbers.get("tokens_saved", 0)))

    def told(self, totals: DecisionTotals) -> JsonObject:
        """Outputs that were cut, each counted once, and what requests were spared of since the start."""
        saved = totals.tokens_before - totals.tokens_after
        return {
            "outputs": dict(totals.outputs),
            "tokens_before": totals.tokens_before,
            "tokens_after": totals.tokens_after,
            "tokens_saved": saved,
            "saved_percent": round(100 * saved / totals.tokens_before, 1) if totals.tokens_before else 0.0,
            "since_start": {name: self._since_start[name] for name in ("requests", *_SUMMED)},
        }


def mask_told(mask: ListedOriginal) -> JsonObject:
    told: JsonObject = {"id": mask.id, "created_at": mask.created, "last_used_at": mask.last_used}
    if mask.decision is None:
        return told
    decision = mask.decision
    return told | {
        "why": decision.why,
        "preview": decision.preview,
        "session": decision.session,
        "tokens_before": decision.tokens_before,
        "tokens_after": decision.tokens_after,
    }


COMMIT_GRACE_S = 0.25  # what was shortened in time, now or before, is worth waiting for the disk
IN_LOOP_MAX_BYTES = 1024**2
SMALL_REMEMBERED = 50_000
DAY_S = 86_400
SEED_BYTES = 32

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
        self._savings = Savings(metrics)
        # Outputs below the threshold: to count their tokens again with every request would be a waste.
        self._small: LruCache[bytes, bool] = LruCache(
            ttl_s=DAY_S, max_entries=SMALL_REMEMBERED, max_bytes=SMALL_REMEMBERED, now=now
        )

    async def stage(self, draft: Draft) -> Stage:
        """The stage for this request, with all decided that the outside has a say in."""
        decided = await self._decided(draft)

        def sanitized(draft: Draft) -> Draft:
            done = sanitize(draft, decided)
            self._savings.count(decided, done)
            return done

        return sanitized

    async def stats(self) -> JsonObject:
        settings = self._settings
        limits = {"threshold_tokens": settings.threshold_tokens, "preview_length": settings.preview_length}
        return {"enabled": self.is_on, **limits, **self._savings.told(await self._decisions.totals())}

    async def masks(self, limit: int) -> list[JsonObject]:
        """What was cut last, by whichever door."""
        return [mask_told(mask) for mask in await self._decisions.newest(limit)]

    async def _decided(self, draft: Draft) -> Decided:
        deadline = self._now() + self._settings.budget_ms / 1000
        found = await self._plan(draft)
        outputs = [output for output in found.outputs if self._small.get(output.key) is None]
        decisions = await self._made(draft, outputs, deadline) if outputs else {}
        long = tuple(output for output in outputs if output.key in decisions)
        owed = await self._owed(draft) if any(one.shown is not None for one in decisions.values()) else {}
        decided = Decided(replace(found, outputs=long), decisions, self._settings.recover_tool, owed)
        response_id = draft.request.previous_response_id
        return await self._with_previous_response(decided, response_id) if response_id else decided

    async def _with_previous_response(self, decided: Decided, response_id: str) -> Decided:
        """Return `decided` with the recall results that the previous response still waits for."""
        nothing: Mapping[str, str] = {}
        results = await self._read(self._decisions.left_open(response_id), nothing)
        previous = await self._read(self._decisions.real_name(response_id), None)
        return replace(decided, previous_response=previous, results=results)

    async def _owed(self, draft: Draft) -> dict[str, str]:
        return await self._read(self._decisions.owed(draft.session.id, call_names(draft.request)), {})

    async def _read(self, work: Awaitable[Value], instead: Value) -> Value:
        try:
            async with asyncio.timeout(COMMIT_GRACE_S):
                return await work
        except (StoreUnavailable, TimeoutError) as e:
            self._failed("remember", "store_unavailable", str(e))
            return instead

    async def _plan(self, draft: Draft) -> Plan:
        request, threshold = draft.request, self._settings.threshold_tokens
        if len(request.body) <= IN_LOOP_MAX_BYTES:
            return plan(request, threshold)
        return await asyncio.to_thread(plan, request, threshold)

    async def _made(self, draft: Draft, outputs: Sequence[Output], deadline: float) -> dict[bytes, Decision]:
        """A decision for each output that is long enough to need one."""
        try:
            # Whatever the rest took: what was cut before would come back, and with it all that it had saved.
            async with asyncio.timeout(max(0.0, deadline - self._now()) + COMMIT_GRACE_S):
                known = await self._decisions.known(outputs)
        except (StoreUnavailable, TimeoutError) as e:
            self._failed("remember", "store_unavailable", str(e))
            return self._all_whole(outputs)
        new = [output for output in outputs if output.key not in known]
        if not new:
            return known
        if not self.is_on:
            return known | self._decisions.went_whole(new, "switched_off")
        made = await self._shortened(draft, new, deadline)
        if all(decision.shown is None for decision in known.values()) and not self._is_worth(draft, made):
            made = [replace(one, shortened=_whole(one)) for one in made]
        return known | await self._settled(draft, made, deadline)

    def _is_worth(self, draft: Draft, made: Sequence[ShortenedOutput]) -> bool:
        cut = [one.shortened for one in made if one.shortened.hidden]
        saved = sum(one.tokens_before - one.tokens_after for one in cut)
        return not cut or is_first_cut_worth(draft.request, saved, self._settings.recover_tool)

    def _all_whole(self, outputs: Sequence[Output]) -> dict[bytes, Decision]:
        """Nobody can tell how they were sent before. What the model has not read was not."""
        unread = self._decisions.went_whole((output for output in outputs if output.is_unread), "store_unavailable")
        return {output.key: Decision("store_unavailable") for output in outputs} | unread

    async def _shortened(self, draft: Draft, outputs: Sequence[Output], deadline: float) -> list[ShortenedOutput]:
        about = goal(draft.request)
        done = await asyncio.gather(*(self._one(draft, output, about, deadline) for output in outputs))
        made = [ShortenedOutput(output, about, one) for output, one in zip(outputs, done, strict=True)]
        for one in made:
            if one.shortened.why == "below_threshold":
                self._small.put(one.output.key, True, 1)
        return [one for one in made if one.shortened.why != "below_threshold"]

    async def _one(self, draft: Draft, output: Output, about: str, deadline: float) -> Shortened:
        if output.whole_because:
            return Shortened(output.text, output.whole_because, (), 0, 0)
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
            return Shortened(output.text, "out_of_time", (), 0, 0)
        except ChildProcessError as e:
            self._failed("shorten", "failed", str(e))
            return Shortened(output.text, "failed", (), 0, 0)

    async def _settled(self, draft: Draft, made: Sequence[ShortenedOutput], deadline: float) -> dict[bytes, Decision]:
        if not made:
            return {}
        try:
            async with asyncio.timeout(max(0.0, deadline - self._now()) + COMMIT_GRACE_S):
                return await self._decisions.settle(made, draft.session.id)
        except (StoreUnavailable, TimeoutError) as e:
            self._failed("settle", "store_unavailable", str(e))
            return self._decisions.went_whole((one.output for one in made), "store_unavailable")

    def _hint(self, draft: Draft) -> str:
        """What a model can do that has no tool for it."""
        request = draft.request
        if offer.is_offered(request) or (self._settings.recover_tool and offer.may_join(request)):
            return ""
        return (
            "[kimi-proxy left out what the markers name; files are whole. To read it: MCP tool recover_text, or "
            f"GET {self._address}/api/mask/{{id}}?lines=START-END]"
        )

    def _failed(self, step: str, code: str, what: str) -> None:
        self._metrics.chat_faults.labels(step, code).inc()
        log.warning("sanitizer fell back", extra={"step": step, "code": code, "what": what[:300]})


def _whole(made: ShortenedOutput) -> Shortened:
    """As it came; it stays so, because that is what the provider will have cached."""
    why = "not_worth_resending" if made.shortened.hidden else made.shortened.why
    return Shortened(made.output.text, why, (), 0, 0)
