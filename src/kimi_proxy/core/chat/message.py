"""What a conversation is made of, whichever API it came by."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from msgspec import Raw

from kimi_proxy.core.chat.page import Page, text_of

Role: TypeAlias = Literal["system", "user", "assistant", "tool", "other"]
Kind: TypeAlias = Literal["text", "tool_call", "tool_result", "thinking", "image", "other"]

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_WORDLESS = frozenset({"image", "other"})


@dataclass(frozen=True)
class Part:
    """A piece of a message, and where its text stands in the body."""

    kind: Kind
    start: int
    end: int
    body: bytes = field(repr=False, compare=False)
    call_id: str = ""  # of the tool call that this is, or that it answers
    name: str = ""  # of the tool that is called
    failed: bool = False  # a tool said so of its own result

    @cached_property
    def text(self) -> str:
        """What the model reads; arguments that are an object are told as JSON."""
        raw = self.body[self.start : self.end]
        if self.kind in _WORDLESS:
            return ""
        return text_of(raw) if self.is_string else raw.decode()

    @property
    def is_string(self) -> bool:
        """Whether the text can be replaced by another."""
        return self.kind not in _WORDLESS and self.body[self.start : self.start + 1] == b'"'


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    parts: tuple[Part, ...]
    start: int
    end: int


def role_of(name: str) -> Role:
    return _ROLES.get(name, "other")


def part(page: Page, kind: Kind, raw: Raw, call_id: str = "", name: str = "", failed: bool = False) -> Part:
    start, end = page.span(raw)
    return Part(kind, start, end, page.body, call_id, name, failed)
