"""The contents of a context window: the parts of a request in tokens, their positions, and buried instructions."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias, TypedDict

from msgspec import Raw

from kimi_proxy.core.chat import Part, Request, Role, read
from kimi_proxy.core.chat.edit import with_reminder
from kimi_proxy.core.chat.read import PARAGRAPH
from kimi_proxy.core.errors import Reason
from kimi_proxy.features.chat.memory import MemoryFound, TextWeight, by_kind, is_memory_tool, segments, weigh_memory
from kimi_proxy.features.chat.pipeline import Draft, Note

MESSAGE_TOKENS = 4  # what separates a message from the next
IMAGE_TOKENS = 1_600  # of the usual size; its bytes say nothing about it
BLOB_TOKENS = 1_000  # at most, of anything else that is no text: a document, a sound
# A seal is as long as the thinking in it. Measured on 364 answers of Claude Opus 4.6 to 4.8 in public sessions, against
# their output counts: correlation .99, the sum 0.6 % off.
SEAL_CHARS = 200
SEALED_CHARS_PER_TOKEN = 5.5
SLICES = 20
BURIED_SHARE = 0.5  # of the context window: a model pays little attention to text further from the end

# The heading of repeated instructions, and the code reported by the stage that repeats them.
HEADING = "[The instructions from the beginning of this conversation still apply. kimi-proxy repeats them:]"
EVENT = "instructions_reinjected"
TOO_LONG: Reason = "instructions_too_long"
NO_PLACE: Reason = "no_place_for_instructions"
SPOILS_CACHE: Reason = "spoils_prompt_cache"

Ingredient: TypeAlias = Literal["system", "memory", "tools", "chat"]
Weigh: TypeAlias = Callable[[str], TextWeight]


class CompositionBody(TypedDict):
    """Tokens by kind."""

    system: int
    memory: int
    tools: int
    chat: int


class AttentionSinkBody(TypedDict):
    is_sunk: bool
    system_tokens: int
    buried_tokens: int
    distance: int | None
    threshold: float
    reinjected: bool


class NotedLayout(TypedDict):
    distribution: Sequence[CompositionBody]
    attention_sink: AttentionSinkBody


class MemoryKindBody(TypedDict):
    kind: str
    segments: int
    tokens: int
    preview: str


class MemoryContextBody(TypedDict):
    memory_tokens: int
    memory_ratio: float
    kinds: list[MemoryKindBody]


_OF_TOOLS = frozenset({"tool_call", "tool_result"})
_WORDLESS = frozenset({"image", "other"})


@dataclass(frozen=True, slots=True)
class MessageWeight:
    """The tokens of a message, and how many the model reads before it."""

    index: int  # -1 is text that the API keeps apart: `system`, `instructions`
    role: Role
    tokens: int  # all of it, with what separates it from the next
    memory_tokens: int
    tools_tokens: int  # calls and results, without the memory in them
    before: int
    lead_tokens: int = 0  # its words before the first memory segment

    @property
    def kind(self) -> Ingredient:
        """Return what most of it is, without the memory in it."""
        if self.role == "system":
            return "system"
        return "tools" if self.tools_tokens > self.chat_tokens else "chat"

    @property
    def chat_tokens(self) -> int:
        return self.tokens - self.memory_tokens - self.tools_tokens


@dataclass(frozen=True)
class Composition:
    """Four counts that add up to `total`; tools are their descriptions, calls and results."""

    definitions: int  # the descriptions of the tools
    apart: MessageWeight  # the system's words that are no message
    messages: tuple[MessageWeight, ...]
    found: tuple[MemoryFound, ...]  # the memory in all of them, by kind

    @cached_property
    def total(self) -> int:
        return self.system + self.memory + self.tools + self.chat

    @cached_property
    def memory(self) -> int:
        return sum(one.memory_tokens for one in self.everything)

    @cached_property
    def tools(self) -> int:
        return self.definitions + sum(one.tools_tokens for one in self.everything)

    @cached_property
    def system(self) -> int:
        return sum(one.chat_tokens for one in self.everything if one.role == "system")

    @cached_property
    def chat(self) -> int:
        return sum(one.chat_tokens for one in self.everything if one.role != "system")

    @cached_property
    def everything(self) -> tuple[MessageWeight, ...]:
        """Return all weights in the order in which the model reads; the descriptions of tools come before them."""
        return (self.apart, *self.messages)

    def to_json(self) -> CompositionBody:
        return {"system": self.system, "memory": self.memory, "tools": self.tools, "chat": self.chat}

    def after(self, one: MessageWeight) -> int:
        """Return how many tokens follow on a message."""
        return self.total - one.before - one.tokens

    def is_buried(self, one: MessageWeight, window: int | None, share: float = BURIED_SHARE) -> bool:
        """Return whether these are instructions followed by more than a share of the context window."""
        return window is not None and one.role == "system" and one.chat_tokens > 0 and self.after(one) > window * share


def composition(request: Request, weigh: Weigh) -> Composition:
    """Count texts, tool calls, tool results and tool definitions; everything else has a flat rate."""
    definitions = _count_tools(request, weigh)
    found: list[MemoryFound] = []
    memory_calls: set[str] = set()
    apart = _weigh_message(-1, "system", request.apart, definitions, weigh, found, memory_calls)
    messages: list[MessageWeight] = []
    before = definitions + apart.tokens
    for index, message in enumerate(request.messages):
        if index < request.read_from:  # text that the provider compacted is no longer in the window
            messages.append(MessageWeight(index, message.role, 0, 0, 0, before))
            continue
        messages.append(_weigh_message(index, message.role, message.parts, before, weigh, found, memory_calls))
        before += messages[-1].tokens
    return Composition(definitions, apart, tuple(messages), by_kind(found))


def composition_with_tools(made: Composition, request: Request, weigh: Weigh) -> Composition:
    """Return the composition of a request whose messages are those of `made`, and whose tools may be others."""
    definitions = _count_tools(request, weigh)
    more = definitions - made.definitions
    shifted = []
    for one in made.everything:
        counts = (one.tokens, one.memory_tokens, one.tools_tokens, one.before + more, one.lead_tokens)
        shifted.append(MessageWeight(one.index, one.role, *counts))
    return Composition(definitions, shifted[0], tuple(shifted[1:]), made.found)


def _count_tools(request: Request, weigh: Weigh) -> int:
    tools = (each for listed in request.format.tool_lists(request.json) for each in _sent_definitions(listed))
    return sum(weigh(bytes(each).decode("utf-8", "replace")).tokens for each in tools)


def _sent_definitions(listed: Raw) -> Sequence[Raw]:
    """Return a list of tools, or those in it that are not deferred: the others are no part of the prompt."""
    return [raw for raw in read.array(listed) if not read.is_deferred(raw)] if read.is_deferring(listed) else [listed]


def scaled_to(made: Composition, total: int) -> Composition:
    """Return the same proportions of another total: a provider counts by its own tokenizer."""
    if not made.total or total == made.total:
        return made
    scale = total / made.total
    scaled = []
    for one in (made.apart, *made.messages):
        counts = (one.tokens, one.memory_tokens, one.tools_tokens, one.before, one.lead_tokens)
        scaled.append(MessageWeight(one.index, one.role, *(round(number * scale) for number in counts)))
    return Composition(round(made.definitions * scale), scaled[0], tuple(scaled[1:]), made.found)


def _weigh_message(
    index: int,
    role: Role,
    parts: Iterable[Part],
    before: int,
    weigh: Weigh,
    found: list[MemoryFound],
    memory_calls: set[str],
) -> MessageWeight:
    """Return the weight of one message. Add the memory in it to `found`, its calls of memory to `memory_calls`."""
    total = 0 if index < 0 else MESSAGE_TOKENS
    memory = 0
    tools = 0
    lead = 0
    for part in parts:
        own = _weigh_part(part, weigh)
        if part.kind == "tool_call":
            # Some clients number their calls anew: only the newest call of an id counts.
            memory_calls.discard(part.call_id)
            if is_memory_tool(part.name):
                memory_calls.add(part.call_id)
        elif part.kind == "tool_result" and part.call_id in memory_calls and not part.failed:
            own = weigh_memory(part.text, own)
        # A part without text has the id of a call if it is a tool's answer.
        is_tools = part.kind in _OF_TOOLS or bool(part.call_id)
        if not memory and not is_tools:
            lead += own.lead if own.memory else own.tokens
        total += own.tokens
        memory += own.memory
        tools += own.tokens - own.memory if is_tools else 0
        found += own.found
    return MessageWeight(index, role, total, memory, tools, before, lead if memory else 0)


def _weigh_part(part: Part, weigh: Weigh) -> TextWeight:
    if part.kind in _WORDLESS:
        return TextWeight(_flat(part))
    if not part.sealed:
        return weigh(part.text)
    sealed = max(0, round((part.sealed - SEAL_CHARS) / SEALED_CHARS_PER_TOKEN))
    # The text beside it, if any, is a summary: the model reads what is sealed.
    return TextWeight(max(sealed, weigh(part.text).tokens if part.is_string else 0))


def _flat(part: Part) -> int:
    return IMAGE_TOKENS if part.kind == "image" else min(BLOB_TOKENS, (part.end - part.start) // 4)


def tokens_of(request: Request, count: Callable[[str], int]) -> int:
    return composition(request, lambda text: TextWeight(count(text))).total


def is_certainly_below(request: Request, tokens: float) -> bool:
    """Return True if that is known without a count: a token has a byte at least, but an image more than its address."""
    return len(request.body) < tokens and b"image" not in request.body


def is_same(one: Request, other: Request) -> bool:
    """Return whether two requests have the same size because the model reads the same text."""
    return one is other or (_is_same(one, other, "tools") and has_same_messages(one, other))


def has_same_messages(one: Request, other: Request) -> bool:
    """Return whether two requests differ in their tools at most, of what the model reads."""
    return all(_is_same(one, other, name) for name in (one.format.conversation, one.format.system_member))


def _is_same(one: Request, other: Request, name: str) -> bool:
    return bytes(one.members.get(name) or b"") == bytes(other.members.get(name) or b"")


@dataclass(frozen=True, slots=True)
class Sink:
    """The tokens of the system prompt, and those that are buried: more than a share of the window follows on them."""

    system_tokens: int
    buried_tokens: int
    distance: int | None  # tokens after the last of it; None if there is none

    @property
    def is_sunk(self) -> bool:
        """Return whether most of the instructions are buried."""
        return self.buried_tokens * 2 > self.system_tokens


def sink(made: Composition, window: int | None, share: float = BURIED_SHARE) -> Sink:
    """Return the buried tokens; none if the window's size is unknown."""
    spoken = [one for one in made.everything if one.role == "system" and one.chat_tokens]
    buried = sum(one.chat_tokens for one in spoken if made.is_buried(one, window, share))
    return Sink(sum(one.chat_tokens for one in spoken), buried, min(map(made.after, spoken), default=None))


def distribution(made: Composition) -> tuple[CompositionBody, ...]:
    """Return the composition of the prompt in equal slices, from the first token to the last."""
    total = made.total
    bounds = [total * each // SLICES for each in range(SLICES + 1)]
    slices: tuple[CompositionBody, ...] = tuple(
        {"system": 0, "memory": 0, "tools": 0, "chat": 0} for _ in range(SLICES)
    )
    at = current = 0
    for kind, tokens in _runs(made):
        end = at + tokens
        while at < end:
            while bounds[current + 1] <= at:
                current += 1
            step = min(end, bounds[current + 1])
            slices[current][kind] += step - at
            at = step
    return slices


def _runs(made: Composition) -> Iterator[tuple[Ingredient, int]]:
    """Return ingredients in their order: the words before a message's memory, then that, its tools and other words."""
    yield "tools", made.definitions
    for one in made.everything:
        words: Ingredient = "system" if one.role == "system" else "chat"
        lead = min(one.lead_tokens, one.chat_tokens)
        yield from ((words, lead), ("memory", one.memory_tokens), ("tools", one.tools_tokens))
        yield words, one.chat_tokens - lead


@dataclass(frozen=True, slots=True)
class Layout:
    found: tuple[MemoryFound, ...]  # the memory in it, by kind
    slices: tuple[CompositionBody, ...]
    sink: Sink
    is_reminded: bool  # its instructions were repeated at the end

    @property
    def is_sunk(self) -> bool:
        return self.sink.is_sunk and not self.is_reminded

    def to_json(self) -> NotedLayout:
        return {
            "distribution": self.slices,
            "attention_sink": {
                "is_sunk": self.is_sunk,
                "system_tokens": self.sink.system_tokens,
                "buried_tokens": self.sink.buried_tokens,
                "distance": self.sink.distance,
                "threshold": BURIED_SHARE,
                "reinjected": self.is_reminded,
            },
        }


@dataclass(frozen=True, slots=True)
class Context:
    """The stored part of a composition: four token counts, and for the newest request of a session its layout."""

    system: int
    memory: int
    tools: int
    chat: int
    layout: Layout | None = None  # None if it is read from disk

    @property
    def memory_ratio(self) -> float:
        total = self.system + self.memory + self.tools + self.chat
        return round(self.memory / total, 4) if total else 0.0

    def without_layout(self) -> "Context":
        return Context(self.system, self.memory, self.tools, self.chat)

    def to_json(self) -> CompositionBody:
        return {"system": self.system, "memory": self.memory, "tools": self.tools, "chat": self.chat}

    def memory_to_json(self) -> MemoryContextBody:
        """Return the memory in a request, with a preview of each kind."""
        found = self.layout.found if self.layout else ()
        kinds: list[MemoryKindBody] = [
            {"kind": one.kind, "segments": one.count, "tokens": one.tokens, "preview": one.preview} for one in found
        ]
        return {"memory_tokens": self.memory, "memory_ratio": self.memory_ratio, "kinds": kinds}


def context_of(made: Composition, window: int | None, is_reminded: bool) -> Context:
    layout = Layout(made.found, distribution(made), sink(made, window), is_reminded)
    return Context(made.system, made.memory, made.tools, made.chat, layout)


@dataclass(frozen=True, slots=True)
class Reminder:
    text: str
    tokens: int
    sink: Sink


def instructions(request: Request) -> str:
    """Return the system prompt without memory, which is no instruction; a copy would be counted as more of it."""
    texts = (_without_memory(part.text).strip() for part in request.system if part.kind == "text")
    return PARAGRAPH.join(text for text in texts if text)


def is_reminded(request: Request) -> bool:
    """Return whether another proxy before us has already repeated the instructions."""
    return any(HEADING in part.text for message in request.messages[-1:] for part in message.parts)


class ReinjectedFields(TypedDict):
    """The fields of an `instructions_reinjected`."""

    tokens: int
    buried_tokens: int
    distance: int | None


def with_repeated_instructions(draft: Draft, reminder: Reminder) -> Draft:
    """Add the reminder at the end: the next request comes without it, and the prompt cache knows all that is before."""
    request = with_reminder(draft.request, reminder.text)
    if request is None:
        return replace(draft, reasons=(*draft.reasons, NO_PLACE))
    sink = reminder.sink
    fields: ReinjectedFields = {
        "tokens": reminder.tokens,
        "buried_tokens": sink.buried_tokens,
        "distance": sink.distance,
    }
    return replace(draft, request=request, notes=(*draft.notes, Note(EVENT, fields)))


def _without_memory(text: str) -> str:
    kept = []
    at = 0
    for segment in segments(text):
        kept.append(text[at : segment.start])
        at = segment.end
    return "".join((*kept, text[at:]))
