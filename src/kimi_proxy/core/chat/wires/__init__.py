"""The wire formats that clients speak: a module each, and this table. Nothing else asks which one a request has."""

import re
from collections.abc import Container
from enum import Enum

from kimi_proxy.core.chat.wires.anthropic_messages import AnthropicMessages
from kimi_proxy.core.chat.wires.gemini import GeminiContents
from kimi_proxy.core.chat.wires.openai_chat import OpenAiChat
from kimi_proxy.core.chat.wires.openai_responses import OpenAiResponses
from kimi_proxy.core.chat.wires.protocol import ROOT, WireFormat


class Wire(Enum):
    CHAT = OpenAiChat()
    MESSAGES = AnthropicMessages()
    RESPONSES = OpenAiResponses()
    GEMINI = GeminiContents()

    format: WireFormat  # the value: an attribute, because every request reads it some thirty times

    def __init__(self, wire_format: WireFormat) -> None:
        self.format = wire_format


BY_NAME = {wire.format.name: wire for wire in Wire}
# The paths where tokens are counted, and those of all requests.
COUNT_PATHS = {path: wire for wire in Wire for path in wire.format.count_paths}
_UPLOADS = tuple(path.partition("{")[0] for wire in Wire for path in wire.format.uploads)
# Paths that name a model, such as /v1beta/models/NAME:generateContent.
_WITH_MODEL = re.compile(r"(/v1(?:beta)?/models/)[^/]+(:\w+)")
_MODELS = f"{ROOT}/models"
# How the further paths of each API begin.
_BEGINNINGS = [
    (path.partition("{")[0], wire) for wire in Wire for path in (*wire.format.relayed, *wire.format.beginnings)
]
# Anthropic's API in the forms of clouds: the model is in the path.
_OF_CLOUDS = re.compile(
    r"/model/.+/(?:invoke(?:-with-response-stream)?|count-tokens)"
    r"|(?:/v1)?/projects/.+/publishers/anthropic/models/.+:(?:streamR|r)awPredict"
)
BY_PATH = {path: wire for wire in Wire for path in wire.format.paths} | COUNT_PATHS


def wire_of_path(path: str, headers: Container[str] = ()) -> Wire | None:
    """Return the wire format of requests to a path of ours; None if it is no path of an API.

    Where several APIs have the path, the client's headers say which of them is meant.
    """
    if path in BY_PATH:
        return BY_PATH[path]
    found = _WITH_MODEL.fullmatch(path)
    if found and (wire := BY_PATH.get(f"{found[1]}{{model}}{found[2]}")):
        return wire
    if _OF_CLOUDS.fullmatch(path):
        return Wire.MESSAGES
    if path.startswith((*_UPLOADS, _MODELS)):
        return wire_of_client(headers)
    return next((wire for begin, wire in _BEGINNINGS if path.startswith(begin)), None)


def takes_form(path: str) -> bool:
    """Return whether a body at this path of ours may be a form with files in it."""
    return path.startswith(_UPLOADS)


def wire_of_client(headers: Container[str]) -> Wire:
    """Return the wire format of a client that asks where all of them do, by the headers that it sends."""
    return next((wire for wire in Wire if wire.format.client_header in headers), Wire.CHAT)
