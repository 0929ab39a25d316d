"""The provider's tokens for one of ours, from how its counts grow between two requests of a conversation.

The ratio of both counts of a whole request would be wrong: a provider also counts thinking that we cannot read, images
and documents. Text that is cut has none of these.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.chat import Kind, Message, Request
from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.features.chat.context import Composition

Conversation: TypeAlias = tuple[str, str, str]  # scope, session and model

MAX_CONVERSATIONS = 10_000
REMEMBERED_REQUESTS = 4  # of a session: those of its sub-agents and of its titles come in between
# A conversation's own growth counts as much as what is known of its model once it reaches this.
USUAL_TOKENS = 2_000
KNOWN_TOKENS = 200_000  # of a model's growth; what is older counts less and less
LEAST_TOKENS = 100  # in a shorter growth, the text between messages counts too much
UNSAID_TOKENS = 100  # in an answer, around its calls
LEAST_RATIO, MOST_RATIO = 0.5, 3.0  # no tokenizer differs more from ours

_UNREAD: Collection[Kind] = ("image", "other")
_THINKING: Collection[Kind] = ("thinking", "other")  # the latter where its provider redacts it


@dataclass(slots=True)
class CountedRequest:
    """A request as sent, and the counts that its answer brings."""

    conversation: Conversation
    messages: int
    tokens: int  # by our own count
    since: "CountedRequest | None" = None  # the request that it continues
    grown: int = 0  # tokens by our own count: what was added to that one behind its answer; 0 if it is not comparable
    answered: int = 0  # and those of the answer
    has_thinking: bool = False  # the answer came back with its thinking
    counted: int | None = None  # by the provider
    written: int = 0  # by the provider, of its answer
    reasoned: int = 0  # of these, those that it names as thinking

    def growth(self, counted: int) -> tuple[int, int]:
        """Return how many tokens were added to the request before, by the provider's count and by ours."""
        before = self.since
        if before is None or before.counted is None:
            return 0, 0
        added = counted - before.counted
        # Thinking that is not sent back is in no prompt.
        answer = before.written if self.has_thinking else before.written - before.reasoned
        if not self.has_thinking and answer > MOST_RATIO * self.answered + UNSAID_TOKENS:
            return added, self.grown + self.answered  # it thought, and does not say how much
        return added - answer, self.grown


class TokenScales:
    """Learns the ratio by conversation and by model."""

    def __init__(self) -> None:
        self._requests: LruCache[Conversation, tuple[CountedRequest, ...]] = LruCache(MAX_CONVERSATIONS)
        self._conversations: LruCache[Conversation, _Growth] = LruCache(MAX_CONVERSATIONS)
        self._models: LruCache[str, _Growth] = LruCache(MAX_CONVERSATIONS)

    def send(self, conversation: Conversation, request: Request, weighed: Composition) -> CountedRequest:
        """Note a request, with the one that it continues."""
        sent = CountedRequest(conversation, len(request.messages), weighed.total)
        before = self._requests.get(conversation) or ()
        sent.since = next((one for one in reversed(before) if _continues(weighed, one)), None)
        if sent.since is not None:
            _compare(sent, request, weighed, sent.since)
        for one in before[: 1 - REMEMBERED_REQUESTS]:
            one.since = None  # or requests without an answer would hold on to each other
        self._requests.put(conversation, (*before[1 - REMEMBERED_REQUESTS :], sent))
        return sent

    def count(self, sent: CountedRequest, usage: Usage, cleared: int = 0) -> None:
        """Note the provider's counts of a request and of its answer; it leaves out the `cleared` tokens."""
        sent.counted = usage.input_tokens + cleared
        sent.written = usage.output_tokens
        sent.reasoned = usage.reasoning_tokens
        theirs, ours = sent.growth(sent.counted)
        sent.since = None
        if ours < LEAST_TOKENS or not LEAST_RATIO * ours <= theirs <= MOST_RATIO * ours:
            return
        model = sent.conversation[2]
        own = self._conversations.get(sent.conversation) or _Growth()
        self._conversations.put(sent.conversation, own.plus(theirs, ours))
        usual = self._models.get(model) or _Growth()
        self._models.put(model, usual.plus(theirs, ours))

    def ratio(self, conversation: Conversation, whole: float) -> float:
        """Return the provider's tokens for one of ours; `whole` is the ratio of the counts of a whole request."""
        usual = self._models.get(conversation[2])
        expected = usual.ratio if usual is not None and usual.ours >= USUAL_TOKENS else whole
        own = self._conversations.get(conversation) or _Growth()
        return (own.theirs + expected * USUAL_TOKENS) / (own.ours + USUAL_TOKENS)

    def forget(self, scope: str, session: str | None) -> None:
        """Forget one session, or all in a scope."""
        for cache in (self._requests, self._conversations):
            cache.forget_matching(lambda key: key[0] == scope and session in (None, key[1]))


@dataclass(frozen=True, slots=True)
class _Growth:
    """The tokens that were added to prompts, by both counts."""

    theirs: float = 0.0
    ours: float = 0.0

    @property
    def ratio(self) -> float:
        return self.theirs / self.ours

    def plus(self, theirs: int, ours: int) -> "_Growth":
        kept = 0.5 if self.ours > KNOWN_TOKENS else 1.0
        return _Growth(kept * self.theirs + theirs, kept * self.ours + ours)


def _continues(weighed: Composition, before: CountedRequest) -> bool:
    """Return whether a request begins with all of an earlier one, by its size."""
    messages = weighed.messages
    return len(messages) > before.messages and messages[before.messages].before == before.tokens


def _compare(sent: CountedRequest, request: Request, weighed: Composition, before: CountedRequest) -> None:
    """Weigh the new messages, if both sides count all of them."""
    added = request.messages[before.messages :]
    weights = weighed.messages[before.messages :]
    results = [one for one in added if one.role != "assistant"]
    sent.has_thinking = any(_has(one, _THINKING) for one in added if one.role == "assistant")
    # At a new turn of the user, providers may drop the thinking of earlier ones.
    is_same_turn = not sent.has_thinking or any(_has(one, {"tool_result"}) for one in results)
    if is_same_turn and not any(_has(one, _UNREAD) for one in results):
        sent.grown = sum(one.tokens for one in weights if one.role != "assistant")
        sent.answered = sum(one.tokens for one in weights if one.role == "assistant")


def _has(message: Message, kinds: Collection[Kind]) -> bool:
    return any(part.kind in kinds for part in message.parts)
