"""The known state of the provider's prompt cache for each conversation, and the removal of old thinking, which starts
when that cache is cold anyway.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from hashlib import sha256

from kimi_proxy.core.aside import PARSED_BYTES, aside
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Request, edit
from kimi_proxy.core.config.sections import CacheSettings, ClearThinking
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.lines import encode_text
from kimi_proxy.features.chat.conversations import is_answered
from kimi_proxy.features.chat.pipeline import ChangingStage, Draft
from kimi_proxy.features.chat.prompt_cache import (
    CacheMoment,
    Difference,
    PrefixDigests,
    SentPrefix,
    anchored_request,
    describe_change,
    digests,
    first_difference,
    is_cold,
    is_compacted,
    keeps_last_turn,
    marked_request,
    thinking_turns,
)
from kimi_proxy.features.models import Target
from kimi_proxy.features.models.known import CacheRules, cache_rules
from kimi_proxy.proxy.headers import value_of
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.newest_requests import NewestRequests
from kimi_proxy.services.chat.observers import ChatObserver
from kimi_proxy.services.chat.relay import Exchange
from kimi_proxy.services.remembered import Memory, Remembered, stays, with_any
from kimi_proxy.services.store.protocols import Replicas

MAX_CONVERSATIONS, DIGESTS_BYTES = 10_000, 32 * 1024**2
# Newest requests, to say what changed in the next one: of short conversations they would hold most of the memory.
MAX_BODIES, BODIES_BYTES = 500, 12 * 1024**2
BEGINNING_S = 300.0  # the shorter life of the caches that are marked
ANSWER_S = 120.0  # where a life counts from the end of an answer, of which other servers know only the beginning

LastRequest = Callable[[Caller, str], Awaitable[float | None]]  # when a session last sent something, in seconds
ScopedKey = tuple[str, bytes]  # whose it is, and what
RulesOf = Callable[[Target, str | None], CacheRules]


@dataclass(frozen=True, slots=True)
class _SentRequest:
    """The newest request of a conversation."""

    prefix: SentPrefix
    digests: PrefixDigests | None
    body: bytes  # its digest
    tokens: int = 0  # that the provider counted
    proven_s: float = 0.0  # a pause after which the provider still had it, longer than the life that we know of
    was_cold: bool = False  # when it was sent, by what this server knew


async def never(who: Caller, session: str) -> float | None:
    """Return None: no other process has sent a request of this session."""
    return None


def last_request_in(newest: NewestRequests) -> LastRequest:
    """Return a look-up for sessions that were last seen by another process."""

    async def last_request(who: Caller, session: str) -> float | None:
        try:
            found = await newest.read(who, session)
        except StoreUnavailable:
            return None
        return found.at if found is not None else None

    return last_request


def by_provider_name(target: Target, ttl: str | None) -> CacheRules:
    """Return the rules of the provider that the settings call by the name of its maker."""
    return cache_rules(target.provider, target.model, ttl)


class PromptCaches(ChatObserver):
    """Tracks the requests of each conversation and their times, to know whether its prompt cache is warm or cold."""

    def __init__(
        self,
        last_request: LastRequest = never,
        now: Callable[[], float] = time.time,
        replicas: Replicas | None = None,  # other servers send requests of the same conversations
        rules: RulesOf = by_provider_name,
        settings: CacheSettings | None = None,
        memory: Memory | None = None,
    ) -> None:
        memory = memory or Memory()
        self._last_request = last_request
        self._now = now
        self._replicas = replicas
        self._rules = rules
        self._settings = settings or CacheSettings()
        self._sent: Remembered[ScopedKey, _SentRequest] = Remembered(
            memory, "prompt caches", size=MAX_CONVERSATIONS, max_bytes=DIGESTS_BYTES, forget=stays
        )
        self._beginnings: Remembered[ScopedKey, bool] = Remembered(
            memory, "beginnings seen lately", size=MAX_CONVERSATIONS, life_s=BEGINNING_S, now=now, forget=stays
        )
        # The last counts of a conversation with this beginning, in its session.
        self._last_tokens: Remembered[ScopedKey, int] = Remembered(
            memory, "counts by beginning", size=MAX_CONVERSATIONS, forget=stays
        )
        self._bodies: Remembered[ScopedKey, Request] = Remembered(
            memory, "newest bodies", size=MAX_BODIES, max_bytes=BODIES_BYTES, forget=with_any
        )

    async def observe(self, draft: Draft) -> CacheMoment:
        """Return the state of the conversation that `draft` belongs to, and note that it is sent now."""
        request = draft.request
        place = _place_of(draft)
        # The cache belongs to the API that the provider supports.
        wire = draft.upstream_wire or request.wire
        rules = self._rules(draft.target, ttl := wire.format.cache_ttl(request.json))
        found = await self._digests(request)
        known_as = draft.conversation
        source = known_as.parent or known_as
        before = self._sent.get(place) or self._sent.get((place[0], source.place))
        last_at = before.prefix.at if before else None
        # A conversation without an answer is new, even in a busy session: a sub-agent, or one after a compaction. So is
        # an unknown one that begins with a summary: clients may keep their last answers after it.
        is_new = not is_answered(request) or (known_as.is_unknown and is_compacted(request))
        # Where the provider keeps the conversation, it had our tool when it began.
        if before is None and not is_new:
            last_at = await self._last_request(draft.caller, source.session)
        can_mark = ttl is None and rules.match == "marks" and self._settings.marks and wire is request.wire
        # Marking a conversation pays off from its second request.
        adds_marks = can_mark and last_at is not None and is_answered(request)
        rules = self._rules(draft.target, "") if adds_marks else rules
        proven_s = before.proven_s if before else 0.0
        cold_after_s = max(rules.cold_after_s, proven_s)
        now = SentPrefix(self._now(), cold_after_s, found.beginning if found else b"")
        sent = before.prefix if before else None if last_at is None else SentPrefix(last_at, cold_after_s)
        body = self._bodies.get(place) or self._bodies.get((place[0], source.place))
        digest = sha256(request.body).digest() if self._replicas else b""
        # Of two equal requests at once the second may be noted first: it is judged like the one before it.
        is_repeated_cold = before is not None and before.was_cold and bool(digest) and before.body == digest
        by_ours = is_repeated_cold or is_cold(sent, now)
        self._note(place, _SentRequest(now, found, digest, 0, proven_s, by_ours), request)
        compacted = self._compacted_tokens(draft, before, found)
        parent = (place[0], source.place) if known_as.parent else None
        cold, newest = await self._judge(place, parent, now, digest, by_ours, rules)
        is_newest = self._replicas is None or (before is not None and newest == before.body)
        change = first_difference(before.digests, found) if is_newest and before and before.digests and found else None
        if change is not None and body is not None:
            change = describe_change(body, request, change)
        return CacheMoment(
            place[1],
            rules,
            0 if cold else self._cold_from(change),
            None if last_at is None else max(0.0, now.at - last_at),
            change,
            compacted or (before.tokens if before and is_newest and before.prefix.cold_after_s else 0),
            adds_marks,
            can_mark and self._knows(draft.caller, found),
            compacted > 0,
        )

    def is_warm(self, draft: Draft) -> bool:
        """Return whether the provider still has the conversation of a request that is about to be sent."""
        sent = self._sent.get(_place_of(draft))
        return sent is not None and not is_cold(sent.prefix, replace(sent.prefix, at=self._now()))

    def _compacted_tokens(self, draft: Draft, before: _SentRequest | None, found: PrefixDigests | None) -> int:
        """Return the tokens counted for the conversation whose compacted form this new one continues."""
        if before is not None or found is None or not is_compacted(draft.request):
            return 0
        return self._last_tokens.get(_beginning_of(draft, found)) or 0

    def _knows(self, who: Caller, found: PrefixDigests | None) -> bool:
        """Return whether a conversation that began in the same way was seen lately, and note that this one does."""
        if found is None:
            return False
        known = self._beginnings.get((who.scope, found.beginning)) is not None
        self._beginnings.put((who.scope, found.beginning), True)
        return known

    def on_end(self, exchange: Exchange) -> None:
        """Record the provider's counts: a hit after a pause proves that its cache lived that long."""
        moment = exchange.draft.cache
        scope = exchange.draft.caller.scope
        sent = self._sent.get((scope, moment.conversation)) if moment else None
        if moment is None or sent is None:
            return
        prefix = sent.prefix
        proven_s = sent.proven_s
        if moment.rules.clock == "response":
            prefix = replace(prefix, at=max(prefix.at, self._now()))
        usage = exchange.recalled.first or exchange.usage
        if usage is not None and moment.is_outlived_by(usage.cached_tokens):
            proven_s = max(proven_s, moment.pause_s or 0.0)
            prefix = replace(prefix, cold_after_s=max(prefix.cold_after_s, proven_s))
        tokens = usage.input_tokens if usage is not None else sent.tokens
        if sent.digests is not None and tokens:
            self._last_tokens.put(_beginning_of(exchange.draft, sent.digests), tokens)
        self._note((scope, moment.conversation), replace(sent, prefix=prefix, tokens=tokens, proven_s=proven_s))

    def _note(self, place: ScopedKey, sent: _SentRequest, request: Request | None = None) -> None:
        self._sent.put(place, sent, 200 + (len(sent.digests.messages) if sent.digests else 0))
        if request is not None and sent.digests is not None:
            # Only the bytes: the parsed form takes several times their memory.
            self._bodies.put(place, Request(request.wire, request.body), len(request.body))

    async def _digests(self, request: Request) -> PrefixDigests | None:
        """Return None where the provider keeps the conversation, of which only the end is here."""
        if request.is_continued:
            return None
        return await aside(len(request.body) <= PARSED_BYTES, digests, request)

    def _cold_from(self, change: Difference | None) -> int | None:
        if change is None or (change.part == "message" and not self._settings.cut_after_change):
            return None
        return change.cold_from

    async def _judge(
        self,
        place: ScopedKey,
        parent: ScopedKey | None,
        now: SentPrefix,
        digest: bytes,
        by_ours: bool,
        rules: CacheRules,
    ) -> tuple[bool, bytes | None]:
        """Return whether the cache is cold, and the digest of the conversation's newest request before this one.

        By what other servers have sent too; while the store is away, by ours.
        """
        if self._replicas is None:
            return by_ours, None
        if rules.clock == "response" and now.cold_after_s:
            now = replace(now, cold_after_s=now.cold_after_s + ANSWER_S)
        continued = _shared_key(parent) if parent else b""
        try:
            return await self._replicas.note_sent(_shared_key(place), now, digest, if_unknown=by_ours, parent=continued)
        except StoreUnavailable:
            return by_ours, None


def _place_of(draft: Draft) -> ScopedKey:
    """Return whose conversation a request belongs to, and which."""
    return draft.caller.scope, draft.conversation.place


def _shared_key(place: ScopedKey) -> bytes:
    """Return what other servers know a conversation by."""
    return sha256(encode_text(place[0]) + b"\0" + place[1]).digest()


def _beginning_of(draft: Draft, found: PrefixDigests) -> ScopedKey:
    return _place_in_session(draft, found.beginning)


def _place_in_session(draft: Draft, what: bytes) -> ScopedKey:
    session = draft.session.id.encode("utf-8", "surrogatepass")
    return draft.caller.scope, sha256(session + b"\0" + what).digest()


class CacheMarks(ChangingStage[CacheMoment]):
    """Marks where the provider's prompt cache may begin and end, as far as the client has not used all marks itself."""

    def __init__(self, settings: CacheSettings | None = None) -> None:
        self._settings = settings or CacheSettings()

    async def decide(self, draft: Draft) -> CacheMoment | None:
        moment = draft.cache
        return moment if moment is not None and moment.rules.match == "marks" else None

    def render(self, draft: Draft, plan: CacheMoment) -> Draft:
        request = draft.request
        if request.format.cache_ttl(request.json) is None:
            marked = marked_request(request, plan)
            return draft if marked is request else replace(draft, request=marked, is_marked=True)
        if not self._settings.anchor:
            return draft
        anchored = anchored_request(request, plan.rules)
        return draft if anchored is request else replace(draft, request=anchored)


KEPT_TURNS = 1  # the newest
BETA, HEADER = b"context-management-", b"anthropic-beta"  # the provider refuses the edit of a client without it
PLAN_BETA = b"oauth-"  # what a client with the login of a plan sends


@dataclass(frozen=True, slots=True)
class ThinkingPlan:
    """How many turns of a conversation go without their thinking: `before` so far, `cleared` from now on."""

    turns: int
    before: int
    cleared: int
    is_read: bool = True  # from the store


class ThinkingClearer(ChangingStage[ThinkingPlan]):
    """Asks the provider to drop the thinking of old turns.

    The number of cleared turns is decided when none of that thinking is cached any more, and repeated while it is: the
    number of kept turns grows with the conversation, so that no other thinking is dropped.
    """

    def __init__(self, setting: ClearThinking, facts: ChatFacts) -> None:
        self._setting = setting
        self._facts = facts

    async def decide(self, draft: Draft) -> ThinkingPlan | None:
        moment = draft.cache
        request = draft.request
        if moment is None or not self._is_on_for(draft):
            return None
        turns = thinking_turns(request)
        try:
            known = await self._facts.cleared_turns(draft.caller, moment.conversation)
        except StoreUnavailable:
            known = self._facts.last_cleared_turns(draft.caller, moment.conversation)
            return ThinkingPlan(len(turns), known, known, is_read=False)
        oldest = turns[known] if known < len(turns) else -1
        is_uncached = moment.is_cold or (moment.cold_from is not None and moment.cold_from <= oldest)
        # In a request that must be sent unchanged, only thinking that was cleared before may be cleared again.
        is_free = is_uncached and not (draft.is_attested or draft.is_observed)
        free = len(turns) - KEPT_TURNS if is_free else 0
        return ThinkingPlan(len(turns), known, free if free > 0 else known)

    async def commit(self, draft: Draft, plan: ThinkingPlan) -> ThinkingPlan:
        """Write down how many turns are cleared; what cannot be repeated after a restart is not begun."""
        if draft.cache is None or not plan.is_read:
            return plan
        if plan.cleared != plan.before:
            try:
                await self._facts.save_cleared_turns(draft.caller, draft.cache.conversation, plan.cleared)
            except StoreUnavailable:
                return replace(plan, cleared=plan.before)
        return plan

    def render(self, draft: Draft, plan: ThinkingPlan) -> Draft:
        """Return the draft without old thinking, as far as that was decided before or is free now."""
        request = draft.request
        if plan.cleared <= 0 or plan.turns <= plan.cleared:
            return draft
        changed = edit.with_thinking_cleared(request, plan.turns - plan.cleared)
        # If the client has edits of its own, they are not ours to change.
        is_ours = not request.is_cleared
        return draft if changed is request else replace(draft, request=changed, clears_thinking=is_ours)

    def _is_on_for(self, draft: Draft) -> bool:
        """Return whether the provider may be asked: by the settings, and because it knows the edit."""
        betas = value_of(draft.headers, HEADER)
        is_translated = draft.upstream_wire not in (None, draft.request.wire)
        if not self._setting or is_translated or BETA not in betas:
            return False
        return self._setting is True or (PLAN_BETA not in betas and keeps_last_turn(draft.target.model))
