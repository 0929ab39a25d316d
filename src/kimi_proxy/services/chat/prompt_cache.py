"""What the provider's prompt cache holds of each conversation, as far as we can know."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Request
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.lines import encoded
from kimi_proxy.features.pipeline import Draft
from kimi_proxy.features.sanitizer.plan import conversation_hash
from kimi_proxy.features.sanitizer.policy import SentPrefix, is_cold
from kimi_proxy.services.store.protocols import Replicas, SessionStore

MAX_CONVERSATIONS = 10_000

LastRequest = Callable[[Caller, str], Awaitable[float | None]]  # when a session last sent something, in seconds


@dataclass(frozen=True, slots=True)
class PromptCacheState:
    """A conversation at the moment of a request."""

    conversation: bytes
    is_cold: bool  # nothing of it is cached any more: the provider writes whatever we send anew


async def never(who: Caller, session: str) -> float | None:
    """Return None: no other process has sent a request of this session."""
    return None


def last_request_in(sessions: SessionStore) -> LastRequest:
    """Return a look-up for sessions that were last seen by another process."""

    async def last_request(who: Caller, session: str) -> float | None:
        try:
            record = await sessions.get(who, session)
        except StoreUnavailable:
            return None
        return record.last_used if record else None

    return last_request


class PromptCaches:
    """Notes what is sent of each conversation, and when: by that its provider's prompt cache is warm or cold."""

    def __init__(
        self,
        last_request: LastRequest = never,
        now: Callable[[], float] = time.time,
        replicas: Replicas | None = None,  # other servers send requests of the same conversations
    ) -> None:
        self._last_request = last_request
        self._now = now
        self._replicas = replicas
        self._sent: LruCache[tuple[str, bytes], SentPrefix] = LruCache(MAX_CONVERSATIONS)

    async def observe(self, draft: Draft) -> PromptCacheState:
        """Return the state of the conversation that `draft` belongs to, and note that it is sent now."""
        request, session = draft.request, draft.session.id
        # Of a conversation that the provider keeps only the end passes here: it has to be the same without its words.
        begins = b"" if request.is_kept else conversation_hash(request)
        conversation = sha256(session.encode("utf-8", "surrogatepass") + b"\0" + begins).digest()
        # The cache is that of the API which the provider speaks.
        life_s = (draft.upstream_wire or request.wire).format.prompt_cache_life_s(request.json)
        now = SentPrefix(self._now(), life_s, _beginning(request))
        place = draft.caller.scope, conversation
        before = self._sent.get(place)
        # One without an answer is new, however busy its session is: a helper of the agent, or after a compaction.
        # Nor is there one where the provider keeps the conversation, which had our tool when it began.
        if (
            before is None
            and _is_answered(request)
            and (last := await self._last_request(draft.caller, session)) is not None
        ):
            before = SentPrefix(last, now.life_s)
        self._sent.put(place, now)
        return PromptCacheState(conversation, await self._is_cold(place, before, now, request.body))

    async def _is_cold(self, place: tuple[str, bytes], before: SentPrefix | None, now: SentPrefix, body: bytes) -> bool:
        """Return whether the cache is cold, by what other servers have sent too; while the store is away, by ours."""
        by_ours = is_cold(before, now)
        if self._replicas is None:
            return by_ours
        own = sha256(encoded(place[0]) + b"\0" + place[1]).digest()
        try:
            return await self._replicas.is_cold(own, now, sha256(body).digest(), by_ours)
        except StoreUnavailable:
            return by_ours


def _is_answered(request: Request) -> bool:
    return any(message.role == "assistant" for message in request.messages)


def _beginning(request: Request) -> bytes:
    """Return a hash of what a cached prefix begins with: the model, which reads no other's cache, and the tools.

    The system text is left out: some clients put a number into it that changes with every request.
    """
    tools = request.members.get("tools")
    return sha256(request.model.encode("utf-8", "surrogatepass") + b"\0" + (bytes(tools) if tools else b"")).digest()
