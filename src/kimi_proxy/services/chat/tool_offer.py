"""The recovery tool: which conversations have it, and how a model without it can read cut text back."""

from kimi_proxy.core.cache import LruCache
from kimi_proxy.features.pipeline import Draft
from kimi_proxy.features.prompt_cache import CacheMoment
from kimi_proxy.features.sanitizer import stage
from kimi_proxy.services.chat.deadlines import StoreGrace
from kimi_proxy.services.chat.decisions import ScopedKey
from kimi_proxy.services.chat.facts import ChatFacts

MAX_REMEMBERED = 10_000  # entries of a few hundred bytes


class ToolOffer:
    def __init__(self, is_on: bool, address: str, facts: ChatFacts, grace: StoreGrace) -> None:
        self._is_on = is_on
        self._address = address
        self._facts = facts
        self._grace = grace
        self._has_tool: LruCache[ScopedKey, bool] = LruCache(MAX_REMEMBERED)

    async def is_in(self, draft: Draft, cache: CacheMoment, may_join: bool) -> bool:
        """Return whether our tool is in this conversation: it joins only while the prompt cache has nothing to lose."""
        request, who = draft.request, draft.caller
        place = who.scope, cache.conversation
        if not self._is_on or not stage.may_offer_tool(request):
            return False
        has_tool = self._has_tool.get(place)
        if not has_tool and may_join and cache.is_cold and not stage.is_offered(request):
            # The request does not wait for the disk: losing this in a crash costs one rewrite of the cached prefix.
            self._facts.save_has_tool(who, cache.conversation)
            has_tool = True
        if has_tool is None:
            # Nearly every conversation has the tool: if the store cannot be read, leaving it out would cost more.
            has_tool = await self._grace.read(self._facts.has_tool(who, cache.conversation), may_join)
        if has_tool or not self._facts.is_shared:
            self._has_tool.put(place, has_tool)
        else:
            self._has_tool.forget(place)  # another server may add it
        return has_tool

    def can_read_back(self, draft: Draft, offers_tool: bool) -> bool:
        """Return whether cut text can be read back: with our tool, the client's own, or the hint that we add."""
        if offers_tool or stage.is_offered(draft.request):
            return True
        return not self._is_on or stage.may_follow_hint(draft.request)

    def hint(self, draft: Draft) -> str:
        """Return the hint on how a model without our tool reads cut text; empty if it has the tool."""
        request = draft.request
        if stage.is_offered(request) or (self._is_on and stage.may_offer_tool(request)):
            return ""  # else nothing would be cut
        return stage.hint(self._address)
