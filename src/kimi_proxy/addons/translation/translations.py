"""Requests of one API for providers that speak another: chat completions, as nearly all do, or Anthropic's messages."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from kimi_proxy.addons.translation.anthropic_to_chat import MessagesTranslation
from kimi_proxy.addons.translation.chat_to_anthropic import ChatTranslation
from kimi_proxy.addons.translation.responses_to_chat import ResponsesTranslation
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.completions import ChatDialect, Translation

Translate: TypeAlias = Callable[[JsonObject, ChatDialect], Translation]

TRANSLATIONS: Mapping[Wire, Translate] = {
    Wire.CHAT: ChatTranslation,
    Wire.MESSAGES: MessagesTranslation,
    Wire.RESPONSES: ResponsesTranslation,
}
