"""What differs between the three APIs; each has a module that says it."""

from collections.abc import Mapping
from typing import Protocol

from kimi_proxy.core.chat import anthropic_messages, openai_chat, openai_responses
from kimi_proxy.core.chat.message import Message, Part, Role
from kimi_proxy.core.chat.page import Object, Page
from kimi_proxy.core.chat.wire import Wire
from kimi_proxy.core.types import JsonObject


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
