"""What a tool was asked: found in the call that its output answers."""

import re
from collections.abc import Iterable, Iterator, Mapping

from kimi_proxy.core import jsontext
from kimi_proxy.core.chat import Message
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.types import JsonValue
from kimi_proxy.features.sanitizer.output import Origin

MAX_ARGUMENT_BYTES = 16 * 1024  # a longer one is a file to be written

_PATHS = ("file_path", "path", "filePath", "filename", "file", "target_file", "absolute_path", "notebook_path", "uri")
_COMMANDS = ("command", "cmd", "script", "input", "code")
# `recover_text` itself, or under the name that a client gives to the tools of a server: mcp__pruner__recover_text.
_RECOVERING = re.compile(r"recover_(?:text|range)\b|recover_(?:text|range)$")


def origins(message: Message) -> Iterator[tuple[str, Origin]]:
    """The calls of a message: their ids, and what was asked."""
    for part in message.parts:
        if part.kind == "tool_call" and part.call_id:
            arguments = part.text if part.end - part.start <= MAX_ARGUMENT_BYTES else ""
            yield part.call_id, _origin(part.name, arguments)


def recovers(tool: str) -> bool:
    """Whether a tool of this name gives originals back."""
    return _RECOVERING.search(tool) is not None


def _origin(tool: str, arguments: str) -> Origin:
    try:
        asked = jsontext.decode(arguments.encode("utf-8", "replace"))
    except ParseError:
        return Origin(tool, command=arguments)
    if not isinstance(asked, Mapping):
        return Origin(tool, command=arguments)
    return Origin(tool, _first(asked, _PATHS), _first(asked, _COMMANDS))


def _first(asked: Mapping[str, JsonValue], names: Iterable[str]) -> str:
    for name in names:
        value = asked.get(name)
        if isinstance(value, str):
            return _sound(value)
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return _sound(" ".join(map(str, value)))
    return ""


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
