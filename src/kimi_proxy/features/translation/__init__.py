"""Requests of one API for providers that speak another: chat completions, which nearly all of them do."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.translation.anthropic_to_chat import MessagesTranslation
from kimi_proxy.features.translation.chat import ChatDialect, Translation
from kimi_proxy.features.translation.responses_to_chat import ResponsesTranslation

Translate: TypeAlias = Callable[[JsonObject, ChatDialect], Translation]

TRANSLATIONS: Mapping[Wire, Translate] = {
    Wire.MESSAGES: MessagesTranslation,
    Wire.RESPONSES: ResponsesTranslation,
}
