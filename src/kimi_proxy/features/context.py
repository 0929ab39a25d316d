"""What is noted of a request's context: its four ingredients, and for the newest of a session how they lie."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

from kimi_proxy.core.chat import Message, Part, Request, Role
from kimi_proxy.core.chat.body import PARAGRAPH
from kimi_proxy.core.chat.edit import with_reminder
from kimi_proxy.core.errors import Reason
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.memory import MemoryFound, TextWeight, segments, together
from kimi_proxy.features.pipeline import Draft, Note

MESSAGE_TOKENS = 4  # what separates a message from the next
IMAGE_TOKENS = 1_600  # of the usual size; its bytes say nothing about it
BLOB_TOKENS = 1_000  # at most, of anything else that is no text: a document, a sound

Ingredient: TypeAlias = Literal["system", "memory", "tools", "chat"]

_OF_TOOLS = frozenset({"tool_call", "tool_result"})
_WORDLESS = frozenset({"image", "other"})


@dataclass(frozen=True, slots=True)
class MessageWeight:
    """A message, and how many tokens the model reads before it."""

    index: int  # -1 is what the API puts apart: `system`, `instructions`
    role: Role
    tokens: int  # all of it, with what separates it from the next
    memory_tokens: int
    tools_tokens: int  # calls and results, without the memory in them
    before: int

    @property
    def kind(self) -> Ingredient:
        """What it is above all; a message is memory only if nothing else is in it to speak of."""
        if self.role == "system":
            return "system"
        return "tools" if self.tools_tokens > self.chat_tokens else "chat"

    @property
    def chat_tokens(self) -> int:
        """Its words, or the system's."""
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
        """In the order in which it is read, but for the descriptions of the tools, which come first."""
        return (self.apart, *self.messages)


def composition(request: Request, portion: Callable[[str], TextWeight]) -> Composition:
    """Texts, tool calls, results, the descriptions of tools, and a flat rate for what is no text."""
    inside = {(part.start, part.end) for message in request.messages for part in message.parts}
    alone = [part for part in request.system if (part.start, part.end) not in inside]
    tools = request.members.get("tools")
    definitions = 0 if tools is None else portion(bytes(tools).decode("utf-8", "replace")).tokens
    found: list[MemoryFound] = []
    apart = _weighed(-1, "system", alone, 0, definitions, portion, found)
    messages = _in_a_row(request.messages, definitions + apart.tokens, portion, found)
    return Composition(definitions, apart, messages, together(found))


def tokens_of(request: Request, count: Callable[[str], int]) -> int:
    return composition(request, lambda text: TextWeight(count(text))).total


def is_certainly_below(request: Request, tokens: float) -> bool:
    """Known without a count: a token has one byte at least. A picture may weigh more than the address it is behind."""
    return len(request.body) < tokens and b"image" not in request.body


def is_same(one: Request, other: Request) -> bool:
    """Whether two requests weigh the same because they say the same."""
    if one is other:
        return True
    names = (one.format.conversation, one.format.system_member, "tools")
    return all(_raw(one, name) == _raw(other, name) for name in names)


def _in_a_row(
    messages: Iterable[Message], before: int, portion: Callable[[str], TextWeight], found: list[MemoryFound]
) -> tuple[MessageWeight, ...]:
    row: list[MessageWeight] = []
    for index, message in enumerate(messages):
        row.append(_weighed(index, message.role, message.parts, MESSAGE_TOKENS, before, portion, found))
        before += row[-1].tokens
    return tuple(row)


def _weighed(
    index: int,
    role: Role,
    parts: Iterable[Part],
    separating: int,
    before: int,
    portion: Callable[[str], TextWeight],
    found: list[MemoryFound],
) -> MessageWeight:
    total, memory, tools = separating, 0, 0
    for part in parts:
        own = TextWeight(_flat(part)) if part.kind in _WORDLESS else portion(part.text)
        total += own.tokens
        memory += own.memory
        # What is no text has the id of a call if a tool answered with it.
        tools += own.tokens - own.memory if part.kind in _OF_TOOLS or part.call_id else 0
        found += own.found
    return MessageWeight(index, role, total, memory, tools, before)


def _flat(part: Part) -> int:
    return IMAGE_TOKENS if part.kind == "image" else min(BLOB_TOKENS, (part.end - part.start) // 4)


def _raw(request: Request, name: str) -> bytes:
    raw = request.members.get(name)
    return b"" if raw is None else bytes(raw)


SLICES = 20
BURIED_SHARE = 0.5  # of the window: what lies further from the end is hardly heeded

Slice = dict[Ingredient, int]


@dataclass(frozen=True, slots=True)
class Sink:
    """The system's words, and those of them that are buried: more of the window than a given share follows on them."""

    system_tokens: int
    buried_tokens: int
    distance: int | None  # tokens after the last of these words; None if there are none

    @property
    def is_sunk(self) -> bool:
        """Whether the greater part of the instructions is buried."""
        return self.buried_tokens * 2 > self.system_tokens


def sink(made: Composition, window: int | None, share: float = BURIED_SHARE) -> Sink:
    """Nothing is buried in a window of unknown size."""
    spoken = [one for one in made.everything if one.role == "system" and one.chat_tokens]
    after = [made.total - one.before - one.tokens for one in spoken]
    limit = float("inf") if window is None else window * share
    buried = sum(one.chat_tokens for one, distance in zip(spoken, after, strict=True) if distance > limit)
    return Sink(sum(one.chat_tokens for one in spoken), buried, min(after, default=None))


def distribution(made: Composition) -> tuple[Slice, ...]:
    """What the model reads in equal slices, from the first token to the last."""
    total = made.total
    bounds = [total * each // SLICES for each in range(SLICES + 1)]
    slices: tuple[Slice, ...] = tuple({"system": 0, "memory": 0, "tools": 0, "chat": 0} for _ in range(SLICES))
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
    yield "tools", made.definitions
    for one in made.everything:
        yield from _inside(one)


def _inside(one: MessageWeight) -> Sequence[tuple[Ingredient, int]]:
    """How the parts of a message lie in it does not show at this scale."""
    words: Ingredient = "system" if one.role == "system" else "chat"
    return ("memory", one.memory_tokens), ("tools", one.tools_tokens), (words, one.chat_tokens)


@dataclass(frozen=True, slots=True)
class Layout:
    found: tuple[MemoryFound, ...]  # the memory in it, by kind
    slices: tuple[Slice, ...]
    sink: Sink
    is_reminded: bool  # its instructions were repeated at the end


@dataclass(frozen=True, slots=True)
class Context:
    """In tokens; together they are what was estimated."""

    system: int
    memory: int
    tools: int
    chat: int
    layout: Layout | None = None  # None for what is read from the disk

    @property
    def memory_ratio(self) -> float:
        total = self.system + self.memory + self.tools + self.chat
        return round(self.memory / total, 4) if total else 0.0

    @property
    def is_sunk(self) -> bool:
        layout = self.layout
        return layout is not None and layout.sink.is_sunk and not layout.is_reminded


def context_of(made: Composition, window: int | None, is_reminded: bool) -> Context:
    layout = Layout(made.found, distribution(made), sink(made, window), is_reminded)
    return Context(made.system, made.memory, made.tools, made.chat, layout)


def memory_told(context: Context) -> JsonObject:
    """The memory of a session's newest request, in a few lines."""
    found = context.layout.found if context.layout else ()
    kinds: list[JsonValue] = [
        {"kind": one.kind, "segments": one.count, "tokens": one.tokens, "preview": one.preview} for one in found
    ]
    return {"memory_tokens": context.memory, "memory_ratio": context.memory_ratio, "kinds": kinds}


def layout_told(layout: Layout) -> JsonObject:
    found = layout.sink
    slices: list[JsonValue] = [dict(each.items()) for each in layout.slices]
    return {
        "distribution": slices,
        "attention_sink": {
            "is_sunk": found.is_sunk and not layout.is_reminded,
            "system_tokens": found.system_tokens,
            "buried_tokens": found.buried_tokens,
            "distance": found.distance,
            "threshold": BURIED_SHARE,
            "reinjected": layout.is_reminded,
        },
    }


HEADING = "[The instructions from the beginning of this conversation still apply. kimi-proxy repeats them:]"

EVENT = "instructions_reinjected"
TOO_LONG: Reason = "instructions_too_long"
NO_PLACE: Reason = "no_place_for_instructions"


@dataclass(frozen=True, slots=True)
class Reminder:
    text: str
    tokens: int
    sink: Sink


def instructions(request: Request) -> str:
    """What the system says, without memory: that is no instruction, and a copy of it would be counted as more of it."""
    texts = (_without_memory(part.text).strip() for part in request.system if part.kind == "text")
    return PARAGRAPH.join(text for text in texts if text)


def is_reminded(request: Request) -> bool:
    """Whether somebody before us has repeated the instructions."""
    return any(HEADING in part.text for message in request.messages[-1:] for part in message.parts)


def reinjected(draft: Draft, reminder: Reminder) -> Draft:
    """Only ever at the end: the next request comes without it, and all before it is what the provider's cache knows."""
    request = with_reminder(draft.request, reminder.text)
    if request is None:
        return replace(draft, reasons=(*draft.reasons, NO_PLACE))
    sink = reminder.sink
    told = {"tokens": reminder.tokens, "buried_tokens": sink.buried_tokens, "distance": sink.distance}
    return replace(draft, request=request, notes=(*draft.notes, Note(EVENT, told)))


def _without_memory(text: str) -> str:
    kept, at = [], 0
    for segment in segments(text):
        kept.append(text[at : segment.start])
        at = segment.end
    return "".join((*kept, text[at:]))
