"""Hooks of an agent: tool output is cut before it enters the conversation, within a few milliseconds."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256

from kimi_proxy.addons.hooks import events as hooks
from kimi_proxy.addons.hooks.events import HookEvent, Steps
from kimi_proxy.addons.hooks.settings import HookSettings
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config.sections import SanitizerSettings
from kimi_proxy.core.errors import StoreUnavailable, WarningCode
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.lines import encode_text
from kimi_proxy.core.markers import quoted_ids
from kimi_proxy.features.agent_hooks import AFTER_PROMPT, BEFORE_TOOL, WITHOUT_PERMISSION
from kimi_proxy.features.sanitizer.decide import EntryLimits, enter, leave_uncut, task_of
from kimi_proxy.features.sanitizer.lossless import head_form, lossless_form
from kimi_proxy.features.sanitizer.plan import LongOutput, is_recovery, prompt_goal
from kimi_proxy.features.sanitizer.policy import POLICIES, EntryCut
from kimi_proxy.features.sanitizer.shorten import HUGE_TOKENS, Hidden, ShortenedText
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.sanitizer import WaitLimit
from kimi_proxy.services.chat.session_lookup import SessionNames
from kimi_proxy.services.events import Publish, no_op
from kimi_proxy.services.fail_open import FailOpen
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.originals import HookOutput, Keeper, hidden_source, key_of
from kimi_proxy.services.pruner import EVENT as PRUNE_EVENT
from kimi_proxy.services.pruner import PruneFields
from kimi_proxy.services.settings import ObserveMode
from kimi_proxy.services.store.protocols import Originals
from kimi_proxy.services.workers.pool import Workers

SECRET_BYTES = 32
MAX_SESSIONS, MAX_TEXTS = 1000, 20_000
DAY_S = 86_400
# Beyond this, lines are scored by the words of the question and by signs of failure alone.
SCORED_MAX_CHARS = 256 * 1024

log = logging.getLogger(__name__)


REFUSED: PruneFields = {
    "prune_id": None,
    "outcome": "recall_refused",
    "via": "hooks",
    "original_lines": 0,
    "pruned_lines": 0,
    "tokens_est_before": 0,
    "tokens_est_after": 0,
}


@dataclass(frozen=True, slots=True)
class HookCut:
    """A text of a tool's output, and its replacement for the model."""

    steps: Steps
    form: ShortenedText


class ToolHooks:
    def __init__(
        self,
        settings: HookSettings,
        sanitizer: SanitizerSettings,
        originals: Originals,
        names: SessionNames,
        workers: Workers,
        metrics: Metrics,
        facts: ChatFacts,
        publish: Publish = no_op,
        now: Callable[[], float] = time.monotonic,
        draw: Callable[[int], bytes] = secrets.token_bytes,
        mode: ObserveMode | None = None,
    ) -> None:
        self.is_on = settings.enabled
        self._facts = facts
        self._mode = mode or ObserveMode()
        self._cpu_s = settings.budget_ms / 1000
        self._policy = POLICIES[sanitizer.policy]
        self._reads = sanitizer.policy == "deep"
        self._limits = EntryLimits(sanitizer.threshold_tokens, sanitizer.preview_length)
        self._originals = originals
        self._keeper = Keeper(originals)
        self._names = names
        self._workers = workers
        self._metrics = metrics
        self._fail_open = FailOpen("a hook passed an output through uncut", self._count_uncut)
        self._publish = publish
        self._now = now
        self._secret = draw(SECRET_BYTES)  # the same call gets the same ids, which no one else can guess
        self._goals: LruCache[tuple[str, str], str] = LruCache(MAX_SESSIONS, ttl_s=DAY_S, now=now)
        self._refused: LruCache[tuple[str, str], bool] = LruCache(MAX_SESSIONS, ttl_s=DAY_S, now=now)
        self._cut_for: LruCache[bytes, str] = LruCache(MAX_TEXTS, ttl_s=DAY_S, now=now)  # the ids of calls

    def forget(self, who: Caller, session: str | None) -> None:
        """Forget what a person's sessions are about, whose names are the agents' own: the next prompt says it again."""
        self._goals.forget_matching(lambda place: place[0] == who.scope)

    async def answer(self, who: Caller, given: JsonObject) -> JsonObject:
        """Return the response to a hook: the tool's output with its long texts cut, or {} to leave it unchanged.

        Originals are on disk by then. On any failure, or beyond the CPU time budget, the output stays uncut. A busy
        machine delays the response but does not change it.
        """
        event = hooks.parse(given)
        if event.name == AFTER_PROMPT:
            self._goals.put((who.scope, event.session), prompt_goal(event.prompt))
            return {}
        if event.name == BEFORE_TOOL:
            return hooks.permission(event)
        if event.name in WITHOUT_PERMISSION:
            await self._note_refusal(who, event)
            return {}
        if not self.is_on or not event.texts or is_recovery(event.origin.tool, event.origin.command):
            return {}
        unchanged: JsonObject = {}
        return await self._fail_open.run("shorten", self._shorten_texts(who, event), lambda code: unchanged)

    async def _note_refusal(self, who: Caller, event: HookEvent) -> None:
        """Remember that the model of a session cannot read cut text back, if that is the tool in question."""
        if not is_recovery(event.origin.tool):
            return
        if self._refused.get((who.scope, event.session)):
            return
        self._refused.put((who.scope, event.session), True)
        log.warning("an agent has no permission for recover_text: nothing new is cut in its session")
        self._publish(who, PRUNE_EVENT, REFUSED)
        try:
            await self._facts.save_refused_recall(who, await self._names.id_of(who, event.session))
        except StoreUnavailable as e:
            log.warning("a refusal was not stored", extra={"what": str(e)[:300]})

    async def _is_refused(self, who: Caller, event: HookEvent) -> bool:
        if self._refused.get((who.scope, event.session)):
            return True
        return await self._facts.is_recall_refused(who, await self._names.id_of(who, event.session))

    async def _shorten_texts(self, who: Caller, event: HookEvent) -> JsonObject:
        deadline = WaitLimit.begin(self._cpu_s, self._now)
        async with asyncio.timeout(deadline.left_s):
            cuts = await self._cuts(who, event, deadline)
        if not cuts:
            return {}
        self._account(who, cuts)
        if self._mode.is_on:
            return {}
        return hooks.answer(hooks.replace_texts(event.response, [(cut.steps, cut.form.shown) for cut in cuts]))

    async def _cuts(self, who: Caller, event: HookEvent, deadline: WaitLimit) -> list[HookCut]:
        cuts: list[HookCut] = []
        limit = self._entry_cut(event).over_tokens
        if any(len(text) > limit for _, text in event.texts) and await self._is_refused(who, event):
            self._metrics.hook_outputs.labels("recall_refused").inc()
            return cuts
        for steps, text in event.texts:
            form = await self._form(who, event, text, deadline)
            if form is not None and form.hidden:
                if not self._mode.is_on:
                    await asyncio.gather(*(self._keep_original(who, event, hidden, form) for hidden in form.hidden))
                cuts.append(HookCut(steps, form))
        return cuts

    async def _form(self, who: Caller, event: HookEvent, text: str, deadline: WaitLimit) -> ShortenedText | None:
        """Return the shortened form of a text; None if it stays uncut."""
        cut = self._entry_cut(event)
        if len(text) <= cut.over_tokens or (event.is_read and not self._reads) or await self._is_cut(who, text):
            return None
        pieces = (b"hook", encode_text(who.scope), encode_text(event.session), encode_text(text))
        key = sha256(b"\0".join(pieces)).digest()
        if await self._was_cut_for_another_call(who, event, key, text):
            return None
        output = LongOutput((0, 0), 0, len(text), text, event.origin, event.call_id, is_unread=True, key=key)
        if event.is_read:
            form = await asyncio.to_thread(head_form, output, self._seed(output), HUGE_TOKENS)
        else:
            form = await self._shorten(output, cut, self._goals.get((who.scope, event.session)) or "", deadline)
        if form is not None and form.hidden:
            self._cut_for.put(key, event.call_id)
        return form

    def _entry_cut(self, event: HookEvent) -> EntryCut:
        """Return how to cut the output. Whether the agent will quote it is unknown, so it is cut like any other."""
        set_by_user = self._limits.threshold_tokens
        return EntryCut(set_by_user or self._policy.entry_cut(event.origin, edits_by_quoting=True).over_tokens)

    async def _shorten(self, output: LongOutput, cut: EntryCut, goal: str, deadline: WaitLimit) -> ShortenedText:
        task = task_of(output, cut, goal, self._limits, self._seed(output))
        if task is None:
            return leave_uncut(output, "below_threshold")
        task = replace(task, is_scored=len(output.text) <= SCORED_MAX_CHARS)
        scored = await self._workers.shorten(task, deadline.left_s, self._cpu_s)
        light = lossless_form(output, (), self._seed(output))
        fits = bool(scored.hidden) and scored.tokens_after <= HUGE_TOKENS
        if len(scored.shown) > HUGE_TOKENS and not fits:  # it may have to be counted, and chosen from
            return await asyncio.to_thread(enter, output, scored, light, goal, self._seed)
        return enter(output, scored, light, goal, self._seed)

    async def _is_cut(self, who: Caller, text: str) -> bool:
        """Return whether the text contains a marker with one of our ids."""
        ids = quoted_ids(text)
        return bool(ids) and bool(await self._originals.live(who, ids))

    async def _was_cut_for_another_call(self, who: Caller, event: HookEvent, key: bytes, text: str) -> bool:
        """Return whether the session has seen this output before, cut: the model asks again because it missed a part.

        Raise StoreUnavailable if the store does not answer.
        """
        before = self._cut_for.get(key)
        if before is not None:
            return before != event.call_id
        # It may have been cut before a restart, or by another server.
        return await self._originals.find(who, _key_of(event, encode_text(text))) is not None

    def _seed(self, output: LongOutput) -> bytes:
        return sha256(self._secret + output.key).digest()

    async def _keep_original(self, who: Caller, event: HookEvent, hidden: Hidden, form: ShortenedText) -> None:
        """Return once the original is on disk. Raise StoreUnavailable if it is not."""
        raw = encode_text(hidden.text)
        goal = self._goals.get((who.scope, event.session)) or ""
        source = HookOutput(
            hidden_source(hidden, goal),
            tool=event.origin.tool[:100],
            session=await self._names.id_of(who, event.session),
            why=form.why,
            chars=len(hidden.text),
            lines=hidden.text.count("\n") + 1,
            tokens=(form.tokens_before, form.tokens_after),
        )
        await self._keeper.keep(who, hidden.id, _key_of(event, raw), raw, source)

    def _account(self, who: Caller, cuts: list[HookCut]) -> None:
        before = sum(cut.form.tokens_before for cut in cuts)
        after = sum(cut.form.tokens_after for cut in cuts)
        is_observed = self._mode.is_on
        self._metrics.hook_outputs.labels("observed" if is_observed else "cut").inc(len(cuts))
        self._metrics.hook_tokens_saved.inc(0 if is_observed else max(0, before - after))
        for cut in cuts:
            hidden = cut.form.hidden[0]
            count = hidden.text.count("\n") + 1
            fields: PruneFields = {
                # While observing nothing is stored, so there is no id.
                "prune_id": None if is_observed else hidden.id,
                "outcome": "observed" if is_observed else "pruned",
                "via": "hooks",
                "original_lines": count,
                "pruned_lines": max(0, count - cut.form.shown.count("\n") - 1),
                "tokens_est_before": cut.form.tokens_before,
                "tokens_est_after": cut.form.tokens_after,
            }
            self._publish(who, PRUNE_EVENT, fields)

    def _count_uncut(self, step: str, code: WarningCode) -> None:
        self._metrics.hook_outputs.labels("out_of_time" if code == "timeout" else "failed").inc()


def _key_of(event: HookEvent, raw: bytes) -> bytes:
    """Return the key of an original, by which the same output is found again in its session."""
    return key_of("hook", raw, encode_text(event.session) + b"\0")
