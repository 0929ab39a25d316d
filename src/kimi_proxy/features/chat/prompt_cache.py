"""The cached part of a conversation: where two requests first differ, and when the cache is cold."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from kimi_proxy.core.chat import Content, Message, Part, Request, edit, read
from kimi_proxy.features.models.known import CacheRules

# Claude Code's first text is a billing line with a changing number; Anthropic excludes this text from its cache.
ATTRIBUTION = "x-anthropic-billing-header:"

BYTES_PER_TOKEN = 4  # about
DIGEST_BYTES = 8  # of a message
# Marks move from request to request, and are no part of what is matched: "The system automatically applies the cache
# breakpoint to the last cacheable block and moves it forward as conversations grow." (platform.claude.com,
# build-with-claude/prompt-caching)
_MARK = re.compile(rb'(?:,\s*)?"cache_control"\s*:\s*\{[^{}]*\}')

HIT = 0.5  # a request that read this share of the one before found it in the cache

ChangedPart = Literal["model", "tools", "system", "message"]


@dataclass(frozen=True, slots=True)
class SentPrefix:
    """The newest request of a conversation, as far as the provider's prompt cache is concerned."""

    at: float  # seconds
    cold_after_s: float  # after this pause nothing is left of it; 0: nothing was cached
    beginning: bytes = b""  # a digest of the start of a cached prefix; empty if unknown


def is_cold(before: SentPrefix | None, now: SentPrefix) -> bool:
    """Return whether the provider has to write the prefix again in any case.

    That is so after a pause longer than the cache's lifetime, when the beginning of the conversation changed (another
    model, other tools, another system prompt), and for an unknown conversation, which is new or was resumed.
    """
    if before is None or not before.cold_after_s or now.at - before.at > before.cold_after_s:
        return True
    return bool(before.beginning and now.beginning) and now.beginning != before.beginning


@dataclass(frozen=True, slots=True)
class PrefixDigests:
    """A request in the order in which a cache matches it. Cache marks and thinking are left out.

    Providers take old thinking out of a prompt by rules of their own: a client that does so too breaks no cache.
    """

    model: str
    tools: bytes
    system: bytes
    messages: bytes  # so many bytes for each

    @property
    def beginning(self) -> bytes:
        return _digest(self.model.encode("utf-8", "surrogatepass"), self.tools, self.system)


def digests(request: Request) -> PrefixDigests:
    system = (part for part in request.system if not part.text.startswith(ATTRIBUTION))
    messages = b"".join(message.content.derive(_digest_content) for message in request.messages)
    return PrefixDigests(request.model, _digest(*_tools(request)), _digest(*map(_bytes, system)), messages)


def _tools(request: Request) -> Iterator[bytes]:
    """Yield the tools at the start of a prefix: deferred ones join later, at the end of the conversation."""
    described = (tool for listed in request.format.tool_lists(request.json) for tool in read.array(listed))
    for raw in described:
        if not read.is_deferred(raw):
            yield _without_marks(bytes(raw))


def _digest_content(content: Content) -> bytes:
    return _digest(*_matched_bytes(content))


def _matched_bytes(message: Message | Content) -> Iterator[bytes | memoryview]:
    yield message.role.encode()
    for part in message.parts:
        if _is_thinking(part):
            continue
        yield f"{part.kind} {part.call_id}".encode("utf-8", "surrogatepass")
        yield _bytes(part)


def _bytes(part: Part) -> bytes | memoryview:
    """Return a part in the form that a cache matches, without a copy if nothing has to be removed."""
    raw = _raw(part)
    return _without_marks(bytes(raw)) if part.kind in ("other", "image") else raw


def _raw(part: Part) -> memoryview:
    return memoryview(part.body)[part.start : part.end]


def _without_marks(raw: bytes) -> bytes:
    return _MARK.sub(b"", raw) if b'"cache_control"' in raw else raw


def _digest(*pieces: bytes | memoryview) -> bytes:
    made = blake2b(digest_size=DIGEST_BYTES)
    for piece in pieces:
        made.update(b"%d:" % len(piece))
        made.update(piece)
    return made.digest()


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between a request and the one before it in the conversation."""

    part: ChangedPart
    message: int = 0  # its place, where a message differs
    detail: str = ""  # the change there, if known

    @property
    def cold_from(self) -> int:
        """Return the first message that the provider has to rewrite."""
        return self.message if self.part == "message" else 0


def first_difference(before: PrefixDigests, now: PrefixDigests) -> Difference | None:
    """Return where `now` first differs from `before`; None if it only continues it."""
    if before.model != now.model:
        return Difference("model", detail=f"{before.model[:80]} → {now.model[:80]}")
    if before.tools != now.tools:
        return Difference("tools")
    if before.system != now.system:
        return Difference("system")
    for at in range(0, min(len(before.messages), len(now.messages)), DIGEST_BYTES):
        if before.messages[at : at + DIGEST_BYTES] != now.messages[at : at + DIGEST_BYTES]:
            return Difference("message", at // DIGEST_BYTES)
    return None


@dataclass(frozen=True, slots=True)
class CacheMoment:
    """A conversation at the moment of a request."""

    conversation: bytes
    rules: CacheRules
    cold_from: int | None  # the first message that is no longer cached; None: the whole request is cached
    pause_s: float | None = None  # since the request before; None if there was none that we know of
    difference: Difference | None = None  # from that one
    tokens_before: int = 0  # that the provider counted in it
    adds_marks: bool = False  # the client sets no marks, and the conversation continues
    knows_beginning: bool = False  # other conversations of this client have begun in the same way lately
    is_compacted: bool = False  # the client has replaced a longer conversation by a summary

    @property
    def is_cold(self) -> bool:
        """Return whether the cache is fully cold: the provider rewrites everything, whatever we send."""
        return self.cold_from == 0

    def is_outlived_by(self, cached_tokens: int) -> bool:
        """Return whether the provider still had the request before, longer than the life that we know of."""
        has_hit = self.tokens_before >= self.rules.least_tokens and cached_tokens >= HIT * self.tokens_before
        return has_hit and (self.pause_s or 0.0) > self.rules.life_s


MissCause = Literal["expired", "model", "tools", "system", "message", "compacted", "ours", "provider"]
MISSED_SHARE = 0.1  # of the previous request: smaller differences come from the units in which providers cache
# Anthropic's own words, where the client asks for them (`diagnostics`).
_SAID: dict[str, MissCause] = {
    "model_changed": "model",
    "tools_changed": "tools",
    "system_changed": "system",
    "messages_changed": "message",
}
# How agents begin after compacting a conversation.
COMPACTED_CHARS = 4_000
COMPACTED = re.compile(r"continued from a previous conversation|summary of (?:the|our) conversation|<summary>", re.I)


def is_compacted(request: Request) -> bool:
    """Return whether a conversation begins with the summary of another one."""
    first = next((message.parts for message in request.messages if message.role == "user"), ())
    return any(COMPACTED.search(part.text, 0, COMPACTED_CHARS) for part in first if part.kind == "text")


@dataclass(frozen=True, slots=True)
class ExplainedMiss:
    """Why a request was not read from the prompt cache, and what that cost."""

    cause: MissCause
    tokens: int  # that the provider had to read again
    usd: float | None  # beyond what reading them from the cache would have cost; None without a price
    detail: str


def explain_miss(
    moment: CacheMoment, input_tokens: int, cached_tokens: int, is_ours: bool, said: str = ""
) -> ExplainedMiss | None:
    """Return why less was read from the cache than was sent before; None if it hit, or nothing was cached.

    `is_ours` means that we changed cached text, `said` is the provider's own reason.
    """
    expected = min(moment.tokens_before, input_tokens)
    missed = expected - cached_tokens
    if missed < max(moment.rules.least_tokens, MISSED_SHARE * expected):
        return None
    pause_s = moment.pause_s or 0.0
    life_s = moment.rules.life_s
    change = moment.difference
    if said in _SAID:
        cause = _SAID[said]
        detail = change.detail if change and change.part == _SAID[said] else ""
    elif moment.is_compacted:
        cause, detail = "compacted", ""
    elif pause_s > life_s:
        cause = "expired"
        detail = f"after {pause_s:.0f} s; it lives for {life_s:.0f} s"
    elif change is not None:
        cause = change.part
        detail = change.detail
    else:
        cause = "ours" if is_ours else "provider"
        detail = ""
    return ExplainedMiss(cause, missed, None, detail[:200])


_DATE = re.compile(
    r"\b\d{4}-\d\d-\d\d|\b\d{1,2}:\d\d(?::\d\d)?\b"
    r"|\b(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?\b"
)
_GIT = re.compile(r"git ?status|recent commits|modified:|untracked", re.IGNORECASE)
_AROUND = 120  # characters on either side of the first one that differs


def describe_change(before: Request, now: Request, change: Difference) -> Difference:
    """Return `change` with what changed there: which block, from which byte on, and of what kind it is."""
    if change.part == "message":
        pairs = zip(before.messages[change.message].parts, now.messages[change.message].parts, strict=False)
        found = next(((one, other) for one, other in pairs if _bytes(one) != _bytes(other)), None)
        where = f"{now.messages[change.message].role} message {change.message}"
    elif change.part == "system":
        found = next(((o, n) for o, n in zip(before.system, now.system, strict=False) if o.text != n.text), None)
        where = "system prompt"
    else:
        return change
    if found is None:
        return Difference(change.part, change.message, f"{where}: blocks came or went")
    old = found[0].text
    new = found[1].text
    at = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    kind = _kind_of_change(old, new, at)
    detail = f"{where}, {found[1].kind}, character {at}" + (f": {kind}" if kind else "")
    return Difference(change.part, change.message, detail)


def _kind_of_change(old: str, new: str, at: int) -> str:
    if len(old) == len(new) and sorted(old.split("\n")) == sorted(new.split("\n")):
        return "the same lines in another order"
    near = [text[max(0, at - _AROUND) : at + _AROUND] for text in (old, new)]
    line = [text[text.rfind("\n", 0, at) + 1 : at + _AROUND].partition("\n")[0] for text in (old, new)]
    if all(_DATE.search(text) for text in line):
        return "a date or a time"
    if all(_GIT.search(text) for text in near):
        return "a git status"
    return ""


# Models of which the provider itself keeps the thinking of the last turn only, unless the client asks for all of it:
# "earlier Opus and Sonnet models, and all Haiku models through Claude Haiku 4.5. When you pass older thinking blocks
# back, the API strips them automatically." (platform.claude.com, build-with-claude/extended-thinking)
_KEEPS_LAST_TURN = re.compile(
    r"claude-(?:3-|instant|2|haiku-4-5|(?:opus|sonnet)-4(?:-[01])?(?:$|-20)|sonnet-4-5(?:$|-20))"
)


def keeps_last_turn(model: str) -> bool:
    """Return whether the provider keeps only the last turn's thinking of this model, unless it is asked for all."""
    return _KEEPS_LAST_TURN.match(model) is not None


# "Starting with Claude Fable 5.1 … If the `system` prompt, the `tools`, or any earlier message changes, the block is no
# longer valid, and the API rejects the request or drops the block." (platform.claude.com, the same page)
_BINDS_THINKING = re.compile(r"claude-fable-5-1")


def binds_thinking(request: Request, model: str) -> bool:
    """Return whether nothing that stands before the thinking in a request may change, even where no cache has it."""
    if _BINDS_THINKING.match(model) is None:
        return False
    return any(map(_is_thinking, (part for message in request.messages for part in message.parts)))


def thinking_turns(request: Request) -> list[int]:
    """Return for each turn with thinking its first message that has some; a turn ends with the next user message."""
    turns: list[int] = []
    thinks = False
    for at, message in enumerate(request.messages):
        if message.role == "user" and not any(part.kind == "tool_result" for part in message.parts):
            thinks = False
        elif not thinks and message.role == "assistant" and any(map(_is_thinking, message.parts)):
            turns.append(at)
            thinks = True
    return turns


def _is_thinking(part: Part) -> bool:
    return part.kind == "thinking" or (part.kind == "other" and b'"redacted_thinking"' in bytes(_raw(part)[:200]))


def marked_request(request: Request, moment: CacheMoment) -> Request:
    """Return the request of a client that sets no cache marks, with our marks.

    One is at the end, for the next request to hit, and one where the previous request ended: a mark finds older entries
    only within its look-back. In a new conversation only the part that it shares with others is marked.
    """
    if len(request.body) // BYTES_PER_TOKEN < moment.rules.least_tokens:
        return request
    if not moment.adds_marks:
        return edit.with_cache_marks(request, [None]) if moment.knows_beginning else request
    last = len(request.messages) - 1
    return edit.with_cache_marks(request, sorted({last, *_before_last_answer(request)}))


def anchored_request(request: Request, rules: CacheRules) -> Request:
    """Return the request with a mark at the start of the last turn, if one of the provider's marks is unused.

    Clients change the end of the last turn with the next user message, and after long turns their own marks do not look
    back far enough to find the cached text before it.
    """
    marks = request.format.cache_marks(request.json)
    spoken = _last_answered_user(request)
    if spoken is None or not marks or len(marks) >= rules.breakpoints:
        return request
    place = request.messages[spoken]
    end = request.messages[-1].end
    following = [mark for mark in marks if place.end <= mark.start < end]
    is_marked = any(place.start <= mark.start < place.end for mark in marks)
    # Only where the client has the conversation cached; of its lives the longer must come first.
    return request if is_marked or not following else edit.with_cache_marks(request, [spoken], following[0].ttl)


def _before_last_answer(request: Request) -> list[int]:
    """Return the place of the last message before the model's newest answer."""
    said = [at for at, message in enumerate(request.messages) if message.role == "assistant"]
    before = next((at for at in reversed(said) if at and request.messages[at - 1].role != "assistant"), 0)
    return [before - 1] if before else []


def _last_answered_user(request: Request) -> int | None:
    """Return the index of the last user message that the model has answered."""
    answered = False
    for at in range(len(request.messages) - 1, -1, -1):
        message = request.messages[at]
        answered = answered or message.role == "assistant"
        if answered and message.role == "user" and all(part.kind != "tool_result" for part in message.parts):
            return at
    return None
