"""Tools on demand: which descriptions a conversation leaves out, decided while its prompt cache is cold."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from kimi_proxy.core import tokens
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.config.sections import DeferralSettings
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.chat.conversations import is_answered
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.prompt_cache import CacheMoment
from kimi_proxy.features.clients import deferral
from kimi_proxy.features.clients.deferral import Choice
from kimi_proxy.features.models import Models, Target
from kimi_proxy.features.sanitizer import stage
from kimi_proxy.features.tool_weights import client_of
from kimi_proxy.proxy.headers import value_of
from kimi_proxy.services.chat.decisions import ScopedKey
from kimi_proxy.services.chat.facts import ChatFacts

log = logging.getLogger(__name__)

MAX_REMEMBERED = 10_000  # entries of a few hundred bytes
DAY_S = 86_400


class NativeSearch:
    """The models whose providers load tools when they have found them: by their documentation, unless one refused."""

    def __init__(self, models: Models | None = None) -> None:
        self._models = models
        self._refused: set[Target] = set()
        self._answered: LruCache[ScopedKey, bool] = LruCache(MAX_REMEMBERED)  # conversations that have had it

    def is_offered(self, draft: Draft) -> bool:
        request, target = draft.request, draft.target
        searching, is_translated = request.format.searching, draft.upstream_wire not in (None, request.wire)
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

    def note_refusal(self, draft: Draft) -> None:
        """Note that the provider refused a request with its own search for tools, and answered the same without."""
        self._refused.add(draft.target)
        log.warning(
            "the provider's own search for tools was refused, ours is used from now on",
            extra={"provider": draft.target.provider, "model": draft.target.model[:80]},
        )


@dataclass(slots=True)
class ToolNames:
    """Names of tools that people may change while everything runs."""

    names: tuple[str, ...] = ()


class ToolDeferral:
    """Leaves out the descriptions of tools that are rarely used.

    Which ones is decided while the prompt cache of a conversation is cold, written down before the request leaves, and
    repeated until it is cold again.
    """

    def __init__(
        self,
        settings: DeferralSettings,
        chosen: ToolNames,
        facts: ChatFacts,
        now: Callable[[], float] = time.time,
        native: NativeSearch | None = None,
    ) -> None:
        self.native = native or NativeSearch()
        self._settings = settings
        self.chosen = chosen
        self._facts = facts
        self._now = now
        self._known: LruCache[ScopedKey, frozenset[str]] = LruCache(MAX_REMEMBERED)
        self._noted: LruCache[tuple[str, str, str], int] = LruCache(MAX_REMEMBERED)  # the last day of each tool

    async def defer(self, draft: Draft) -> Draft:
        """Return the draft without the tools that its conversation leaves out."""
        moment, request = draft.cache, draft.request
        if moment is None or not request.tool_names:
            return draft
        is_automatic, place = self._is_opted_in(draft), (draft.caller.scope, moment.conversation)
        is_on = is_automatic or bool(self.chosen.names)
        known = self._known.get(place) if not (is_on and self._facts.is_shared) else None
        if known is None and moment.is_cold and not request.is_kept and not is_answered(draft.request):
            known = frozenset()  # it is new
        if not is_on and known is not None and not known:
            return draft
        if not stage.may_offer_tool(request) or not deferral.may_defer(request):
            return draft
        try:
            if known is None:
                known = await self._facts.deferred_tools(draft.caller, moment.conversation)
            names = await self._decide(draft, moment, known, is_on, is_automatic)
            self._known.put(place, names)
        except StoreUnavailable:
            # What cannot be repeated after a restart is not begun.
            names = known or self._known.get(place) or frozenset()
        changed, deferred = deferral.leave_out(request, names, self.native.is_offered(draft))
        return draft if deferred is None else replace(draft, request=changed, deferred=deferred)

    def _is_opted_in(self, draft: Draft) -> bool:
        if not self._settings.clients:
            return False
        agent = value_of(draft.headers, b"user-agent").decode("ascii", "replace")
        return deferral.is_opted_in(self._settings.clients, agent, draft.request.tool_names)

    async def _decide(
        self, draft: Draft, moment: CacheMoment, known: frozenset[str], is_on: bool, is_automatic: bool
    ) -> frozenset[str]:
        """Return the names of the tools to leave out; while the cache is warm, those that were left out before."""
        if is_on:
            await self._note_calls(draft)
        if not moment.is_cold:
            return known
        may_begin = is_on and not (draft.is_attested or draft.is_observed)
        names = await self._choose(draft, is_automatic, known) if may_begin else frozenset[str]()
        if names != known:
            await self._facts.save_deferred_tools(draft.caller, moment.conversation, names)
        return names

    async def _choose(self, draft: Draft, is_automatic: bool, known: frozenset[str]) -> frozenset[str]:
        """Return the tools to leave out from now on; those that were, go on so."""
        request, used = draft.request, frozenset[str]()
        tools = deferral.client_tools(request, tokens.count)
        if is_automatic:
            used = deferral.called_names(request) | await self._used_before_today(draft)
        choice = Choice(is_automatic, self._settings.always, self.chosen.names, used - known)
        return deferral.choose(tools, choice, tokens.count)

    async def _used_before_today(self, draft: Draft) -> frozenset[str]:
        """Return the tools that this client called lately; not today: all conversations of a day begin alike."""
        today, names = self._today(), draft.request.tool_names
        days = await self._facts.tool_days(draft.caller, client_of(names), names)
        since = today - deferral.USED_WITHIN_DAYS
        return frozenset(name for name, (first, last) in days.items() if first < today and last >= since)

    async def _note_calls(self, draft: Draft) -> None:
        """Write down once a day that a tool was called."""
        who, today, client = draft.caller, self._today(), client_of(draft.request.tool_names)
        called = deferral.called_names(draft.request).intersection(draft.request.tool_names)
        new = [name for name in called if self._noted.get((who.scope, client, name)) != today]
        if new:
            before = await self._facts.tool_days(who, client, new)
            days = {name: (before.get(name, (today, today))[0], today) for name in new}
            await self._facts.save_tool_days(who, client, days)
        for name in new:
            self._noted.put((who.scope, client, name), today)

    def _today(self) -> int:
        return int(self._now() // DAY_S)
