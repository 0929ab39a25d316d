"""Old thinking that clients send back: the provider drops it, starting when its prompt cache is cold anyway."""

from dataclasses import replace

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.chat import edit
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.pipeline import Draft
from kimi_proxy.features.prompt_cache import thinking_turns
from kimi_proxy.proxy.headers import value_of
from kimi_proxy.services.chat.decisions import ScopedKey
from kimi_proxy.services.chat.facts import ChatFacts

KEPT_TURNS = 1  # the newest, when the cache is cold
BETA, HEADER = b"context-management-", b"anthropic-beta"  # the provider refuses the edit of a client without it
MAX_REMEMBERED = 10_000


class ThinkingClearer:
    """Asks the provider to leave out the thinking of old turns.

    How many turns that are is decided when the cache is cold, and repeated while it is warm: the number of turns that
    are kept grows with the conversation, so that no other thinking goes.
    """

    def __init__(self, is_on: bool, facts: ChatFacts) -> None:
        self.is_on = is_on
        self._facts = facts
        self._cleared: LruCache[ScopedKey, int] = LruCache(MAX_REMEMBERED)

    async def clear(self, draft: Draft) -> Draft:
        """Return the draft with old thinking left out, as far as it was decided before or is free now."""
        moment, request = draft.cache, draft.request
        is_translated = draft.upstream_wire not in (None, request.wire)
        if not self.is_on or moment is None or is_translated or BETA not in value_of(draft.headers, HEADER):
            return draft
        turns = thinking_turns(request)
        # Of a request that must leave as it came, only what was cleared before may be cleared again.
        is_free = moment.is_cold and not (draft.is_attested or draft.is_observed)
        cleared = await self._decide(draft, moment.conversation, turns - KEPT_TURNS if is_free else 0)
        if cleared <= 0 or turns <= cleared:
            return draft
        changed = edit.with_thinking_cleared(request, turns - cleared)
        # With edits of the client's own, what is left out is not ours alone.
        is_ours = not request.is_cleared
        return draft if changed is request else replace(draft, request=changed, clears_thinking=is_ours)

    async def _decide(self, draft: Draft, conversation: bytes, free: int) -> int:
        """Return how many turns are cleared; `free` are those that may be from now on."""
        who, place = draft.caller, (draft.caller.scope, conversation)
        known = None if self._facts.is_shared else self._cleared.get(place)
        try:
            if known is None:
                known = await self._facts.cleared_turns(who, conversation)
            if free > 0 and free != known:
                await self._facts.save_cleared_turns(who, conversation, free)
                known = free
        except StoreUnavailable:
            return self._cleared.get(place) or 0
        self._cleared.put(place, known)
        return known
