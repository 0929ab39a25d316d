"""Tools on demand: which descriptions a conversation leaves out, decided while its prompt cache is cold."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kimi_proxy.addons.tools_on_demand import deferral
from kimi_proxy.addons.tools_on_demand.deferral import Choice
from kimi_proxy.addons.tools_on_demand.settings import DeferralSettings
from kimi_proxy.core import tokens
from kimi_proxy.core.chat import edit
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.chat.conversations import is_answered
from kimi_proxy.features.chat.pipeline import ChangingStage, Draft
from kimi_proxy.features.models import Models, Target
from kimi_proxy.features.sanitizer import stage
from kimi_proxy.features.tool_weights import client_of
from kimi_proxy.proxy.headers import value_of
from kimi_proxy.services.chat.decisions import ScopedKey
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.remembered import Memory, Remembered, stays
from kimi_proxy.services.settings import NameList

log = logging.getLogger(__name__)

MAX_REMEMBERED = 10_000  # entries of a few hundred bytes
DAY_S = 86_400


class NativeSearch:
    """The models whose providers load tools when they have found them: by their documentation, unless one refused."""

    def __init__(self, models: Models | None = None, memory: Memory | None = None) -> None:
        self._models = models
        self._refused: set[Target] = set()
        self._answered: Remembered[ScopedKey, bool] = Remembered(
            memory or Memory(), "conversations whose provider has searched for tools", size=MAX_REMEMBERED, forget=stays
        )

    def is_offered(self, draft: Draft) -> bool:
        request = draft.request
        target = draft.target
        searching = request.format.searching
        is_translated = draft.upstream_wire not in (None, request.wire)
        # Of a stored answer the provider would want every result, also of a search beside a call of the client's.
        if self._models is None or searching is None or is_translated or request.is_kept:
            return False
        # A switch would break the prompt cache of a conversation that began with it.
        if target in self._refused and not self.has_answered(draft):
            return False
        maker, models = searching
        return self._models.maker(target.provider) == maker and models.match(target.model) is not None

    def has_answered(self, draft: Draft) -> bool:
        """Return whether the provider has loaded tools in this conversation while its prompt cache was kept."""
        moment = draft.cache
        return moment is not None and not moment.is_cold and (draft.caller.scope, moment.conversation) in self._answered

    def note_answer(self, draft: Draft) -> None:
        if draft.cache is not None:
            self._answered.put((draft.caller.scope, draft.cache.conversation), True)

    def without(self, draft: Draft) -> Draft:
        """Return the draft with a search of our own: the provider has refused its own, or something else in it."""
        left_out = draft.deferred
        if not isinstance(left_out, deferral.DeferredTools) or left_out.native is None:
            return draft
        before = edit.with_model(left_out.native, draft.request.model)
        request, deferred = deferral.leave_out(before, left_out.tools)
        return replace(draft, request=request, deferred=deferred)

    def note_refusal(self, draft: Draft) -> None:
        """Note that the provider refused a request with its own search for tools, and answered the same without."""
        self._refused.add(draft.target)
        log.warning(
            "the provider's own search for tools was refused, ours is used from now on",
            extra={"provider": draft.target.provider, "model": draft.target.model[:80]},
        )


@dataclass(frozen=True, slots=True)
class DeferralPlan:
    """The tools that a conversation leaves out: `before` so far, `names` from now on."""

    before: frozenset[str]
    names: frozenset[str]
    is_native: bool
    days: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # on which tools were called, to be noted
    is_read: bool = False  # from the store


class ToolDeferral(ChangingStage[DeferralPlan]):
    """Leaves out the descriptions of tools that are rarely used.

    Which ones is decided while the prompt cache of a conversation is cold, written down before the request leaves, and
    repeated until it is cold again.
    """

    def __init__(
        self,
        settings: DeferralSettings,
        chosen: NameList,
        facts: ChatFacts,
        now: Callable[[], float] = time.time,
        native: NativeSearch | None = None,
    ) -> None:
        self.native = native or NativeSearch()
        self._settings = settings
        self.chosen = chosen
        self._facts = facts
        self._now = now

    async def decide(self, draft: Draft) -> DeferralPlan | None:
        moment = draft.cache
        request = draft.request
        if moment is None or not request.tool_names:
            return None
        is_automatic = self._is_opted_in(draft)
        is_on = is_automatic or bool(self.chosen.names)
        known = self._facts.knows_deferred_tools(draft.caller, moment.conversation)
        if known is None and moment.is_cold and not request.is_kept and not is_answered(draft.request):
            known = frozenset()  # it is new
            self._facts.assume_no_deferred_tools(draft.caller, moment.conversation)
        if not is_on and known is not None and not known:
            return None
        if not stage.may_offer_tool(request) or not deferral.may_defer(request):
            return None
        is_native = self.native.is_offered(draft)
        try:
            if known is None:
                known = await self._facts.deferred_tools(draft.caller, moment.conversation)
            days = await self._days_of_calls(draft) if is_on else {}
            # While the cache is warm, what was left out before is left out again.
            names = await self._names(draft, is_on, is_automatic, known) if moment.is_cold else known
        except StoreUnavailable:
            before = known or self._facts.last_deferred_tools(draft.caller, moment.conversation)
            return DeferralPlan(before, before, is_native)
        return DeferralPlan(known, names, is_native, days, is_read=True)

    async def commit(self, draft: Draft, plan: DeferralPlan) -> DeferralPlan:
        """Write down which tools are left out; what cannot be repeated after a restart is not begun."""
        if draft.cache is None or not plan.is_read:
            return plan
        who = draft.caller
        conversation = draft.cache.conversation
        client = client_of(draft.request.tool_names)
        try:
            if plan.days:
                await self._facts.save_tool_days(who, client, plan.days)
            if plan.names != plan.before:
                await self._facts.save_deferred_tools(who, conversation, plan.names)
            elif not plan.names:
                self._facts.assume_no_deferred_tools(who, conversation)
        except StoreUnavailable:
            return replace(plan, names=plan.before)
        return plan

    def render(self, draft: Draft, plan: DeferralPlan) -> Draft:
        """Return the draft without the tools that its conversation leaves out."""
        changed, deferred = deferral.leave_out(draft.request, plan.names, plan.is_native)
        if deferred is None:
            return draft
        search = self.native if deferred.native else None
        return replace(draft, request=changed, deferred=replace(deferred, search=search))

    def _is_opted_in(self, draft: Draft) -> bool:
        if not self._settings.clients:
            return False
        agent = value_of(draft.headers, b"user-agent").decode("ascii", "replace")
        return deferral.is_opted_in(self._settings.clients, agent, draft.request.tool_names)

    async def _names(self, draft: Draft, is_on: bool, is_automatic: bool, known: frozenset[str]) -> frozenset[str]:
        """Return the names of the tools to leave out from now on, at a moment when the cache has nothing to lose."""
        if not is_on or draft.is_attested or draft.is_observed:
            return frozenset()
        return await self._choose(draft, is_automatic, known)

    async def _choose(self, draft: Draft, is_automatic: bool, known: frozenset[str]) -> frozenset[str]:
        """Return the tools to leave out from now on; those that were, go on so."""
        request = draft.request
        used = frozenset[str]()
        tools = deferral.client_tools(request, tokens.count)
        if is_automatic:
            used = deferral.called_names(request) | await self._used_before_today(draft)
        choice = Choice(is_automatic, self._settings.always, self.chosen.names, used - known)
        return deferral.choose(tools, choice, tokens.count)

    async def _used_before_today(self, draft: Draft) -> frozenset[str]:
        """Return the tools that this client called lately; not today: all conversations of a day begin alike."""
        today = self._today()
        names = draft.request.tool_names
        days = await self._facts.tool_days(draft.caller, client_of(names), names)
        since = today - deferral.USED_WITHIN_DAYS
        return frozenset(name for name, (first, last) in days.items() if first < today and last >= since)

    async def _days_of_calls(self, draft: Draft) -> Mapping[str, tuple[int, int]]:
        """Return the first day and today for the tools that were called, unless that was noted today."""
        who = draft.caller
        today = self._today()
        client = client_of(draft.request.tool_names)
        called = deferral.called_names(draft.request).intersection(draft.request.tool_names)
        new = [name for name in called if self._facts.last_tool_day(who, client, name) != today]
        before = await self._facts.tool_days(who, client, new) if new else {}
        return {name: (before.get(name, (today, today))[0], today) for name in new}

    def _today(self) -> int:
        return int(self._now() // DAY_S)
