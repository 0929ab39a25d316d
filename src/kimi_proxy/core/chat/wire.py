"""The three APIs that clients speak."""

from enum import Enum


class Wire(Enum):
    CHAT = "chat"  # OpenAI, POST /v1/chat/completions
    MESSAGES = "messages"  # Anthropic, POST /v1/messages
    RESPONSES = "responses"  # OpenAI, POST /v1/responses
