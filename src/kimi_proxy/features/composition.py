"""What a request is made of, in tokens, before its provider has counted: system, memory, tools and chat, and where."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from kimi_proxy.core.chat import Message, Part, Request, Role
from kimi_proxy.features.memory import Found, Portion, together

MESSAGE_TOKENS = 4  # what separates a message from the next
IMAGE_TOKENS = 1_600  # of the usual size; its bytes say nothing about it
BLOB_TOKENS = 1_000  # at most, of anything else that is no text: a document, a sound

Ingredient: TypeAlias = Literal["system", "memory", "tools", "chat"]

_OF_TOOLS = frozenset({"tool_call", "tool_result"})
_WORDLESS = frozenset({"image", "other"})


@dataclass(frozen=True, slots=True)
class Weighed:
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
    apart: Weighed  # the system's words that are no message
    messages: tuple[Weighed, ...]
    found: tuple[Found, ...]  # the memory in all of them, by kind

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
    def everything(self) -> tuple[Weighed, ...]:
        """In the order in which it is read, but for the descriptions of the tools, which come first."""
        return (self.apart, *self.messages)


def composition(request: Request, portion: Callable[[str], Portion]) -> Composition:
    """Texts, tool calls, results, the descriptions of tools, and a flat rate for what is no text."""
    inside = {(part.start, part.end) for message in request.messages for part in message.parts}
    alone = [part for part in request.system if (part.start, part.end) not in inside]
    tools = request.page.members.get("tools")
    definitions = 0 if tools is None else portion(bytes(tools).decode("utf-8", "replace")).tokens
    found: list[Found] = []
    apart = _weighed(-1, "system", alone, 0, definitions, portion, found)
    messages = _in_a_row(request.messages, definitions + apart.tokens, portion, found)
    return Composition(definitions, apart, messages, together(found))


def tokens_of(request: Request, count: Callable[[str], int]) -> int:
    return composition(request, lambda text: Portion(count(text))).total


def is_certainly_below(request: Request, tokens: float) -> bool:
    """Known without a count: a token has one byte at least. A picture may weigh more than the address it is behind."""
    return len(request.body) < tokens and b"image" not in request.body


def is_same(one: Request, other: Request) -> bool:
    """Whether two requests weigh the same because they say the same."""
    if one is other:
        return True
    names = (one.dialect.CONVERSATION, "system", "instructions", "tools")
    return all(_raw(one, name) == _raw(other, name) for name in names)


def _in_a_row(
    messages: Iterable[Message], before: int, portion: Callable[[str], Portion], found: list[Found]
) -> tuple[Weighed, ...]:
    row: list[Weighed] = []
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
    portion: Callable[[str], Portion],
    found: list[Found],
) -> Weighed:
    total, memory, tools = separating, 0, 0
    for part in parts:
        own = Portion(_flat(part)) if part.kind in _WORDLESS else portion(part.text)
        total += own.tokens
        memory += own.memory
        # What is no text has the id of a call if a tool answered with it.
        tools += own.tokens - own.memory if part.kind in _OF_TOOLS or part.call_id else 0
        found += own.found
    return Weighed(index, role, total, memory, tools, before)


def _flat(part: Part) -> int:
    return IMAGE_TOKENS if part.kind == "image" else min(BLOB_TOKENS, (part.end - part.start) // 4)


def _raw(request: Request, name: str) -> bytes:
    raw = request.page.members.get(name)
    return b"" if raw is None else bytes(raw)
