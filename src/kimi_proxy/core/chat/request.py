"""A client's request: the bytes that came, and what can be read in them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from kimi_proxy.core.chat.page import Message, Object, Page, Part, Role, Wire, array_of, object_of, string_of
from kimi_proxy.core.chat.wires import anthropic_messages, openai_chat, openai_responses
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.json import JsonObject


class Dialect(Protocol):
    CONVERSATION: str  # the member that holds the messages

    def messages(self, page: Page) -> tuple[Message, ...]: ...
    def system(self, page: Page, messages: tuple[Message, ...]) -> tuple[Part, ...]: ...
    def tool_name(self, tool: Object) -> str: ...
    def new_message(self, role: Role, text: str) -> JsonObject: ...
    def new_tool(self, name: str, description: str, schema: JsonObject) -> JsonObject: ...


DIALECTS: Mapping[Wire, Dialect] = {
    Wire.CHAT: openai_chat,
    Wire.MESSAGES: anthropic_messages,
    Wire.RESPONSES: openai_responses,
}


PREVIOUS_RESPONSE = "previous_response_id"


@dataclass(frozen=True)
class Request:
    """Read as far as it is asked for; what nobody changes leaves as it came (`core/chat/edit.py` changes)."""

    wire: Wire
    body: bytes

    @cached_property
    def page(self) -> Page:
        return Page(self.body)

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.wire]

    @cached_property
    def model(self) -> str:
        return string_of(self.page.members.get("model"))

    @cached_property
    def is_stream(self) -> bool:
        raw = self.page.members.get("stream")
        return raw is not None and bytes(raw) == b"true"

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        return self.dialect.messages(self.page)

    @cached_property
    def system(self) -> tuple[Part, ...]:
        """What the client tells the model before the conversation, wherever the API puts it."""
        return self.dialect.system(self.page, self.messages)

    @cached_property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(self.dialect.tool_name(object_of(raw)) for raw in array_of(self.page.members.get("tools")))

    @property
    def is_noted(self) -> bool:
        """Whether the provider adds what is asked and answered to a conversation that it keeps."""
        return self.wire is Wire.RESPONSES and self._has("conversation")

    @property
    def is_continued(self) -> bool:
        """Whether the provider keeps what came before: only the end of it passes here."""
        return self.is_noted or (self.wire is Wire.RESPONSES and self._has(PREVIOUS_RESPONSE))

    def part(self, message: int, part: int) -> Part:
        return self.messages[message].parts[part]

    def _has(self, name: str) -> bool:
        raw = self.page.members.get(name)
        return raw is not None and bytes(raw) != b"null"


def parse(body: bytes, wire: Wire) -> Request:
    """ParseError if the body is no JSON object, InvalidParams if it names no model; the rest the provider may judge."""
    request = Request(wire, body)
    if not request.model:
        raise InvalidParams("model", "name the model as a string")
    return request


def encode(request: Request) -> bytes:
    """The caller's own bytes if nothing was changed."""
    return request.body
