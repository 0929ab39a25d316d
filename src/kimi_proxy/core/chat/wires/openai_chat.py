"""OpenAI's chat completions: `messages` with a role each, tool calls beside their text, tool results as messages."""

from collections.abc import Iterator

from msgspec import Raw

from kimi_proxy.core.chat.page import (
    Kind,
    Message,
    Object,
    Page,
    Part,
    Role,
    array_of,
    is_array,
    is_string,
    object_of,
    part,
    role_of,
    string_of,
)
from kimi_proxy.core.json import JsonObject

CONVERSATION = "messages"

_KINDS: dict[str, Kind] = {"text": "text", "refusal": "text", "image_url": "image"}


def messages(page: Page) -> tuple[Message, ...]:
    return tuple(_message(page, raw) for raw in array_of(page.members.get(CONVERSATION)))


def system(page: Page, messages: tuple[Message, ...]) -> tuple[Part, ...]:
    return tuple(found for message in messages if message.role == "system" for found in message.parts)


def tool_name(tool: Object) -> str:
    return string_of(object_of(tool.get("function")).get("name")) or string_of(tool.get("name"))


def new_message(role: Role, text: str) -> JsonObject:
    return {"role": role, "content": text}


def new_tool(name: str, description: str, schema: JsonObject) -> JsonObject:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _message(page: Page, raw: Raw) -> Message:
    fields = object_of(raw)
    role = role_of(string_of(fields.get("role")))
    parts = (*_content(page, fields, role), *_calls(page, fields))
    if role == "tool" and not parts:  # it says nothing, and answers its call
        parts = (part(page, "other", raw, string_of(fields.get("tool_call_id"))),)
    return Message(role, parts, *page.span(raw))


def _content(page: Page, fields: Object, role: Role) -> Iterator[Part]:
    content = fields.get("content")
    call_id = string_of(fields.get("tool_call_id"))
    words: Kind = "tool_result" if role == "tool" else "text"
    if content is None:
        return
    if is_string(content):
        yield part(page, words, content, call_id)
    for block in array_of(content) if is_array(content) else ():
        members = object_of(block)
        kind = _KINDS.get(string_of(members.get("type")), "other")
        text = members.get("text") or members.get("refusal")
        if kind == "text" and text is not None:
            yield part(page, words, text, call_id)
        else:
            yield part(page, "image" if kind == "image" else "other", block, call_id)


def _calls(page: Page, fields: Object) -> Iterator[Part]:
    if (thought := fields.get("reasoning_content")) is not None and is_string(thought):
        yield part(page, "thinking", thought)
    for raw in array_of(fields.get("tool_calls")):
        call = object_of(raw)
        function = object_of(call.get("function") or call.get("custom"))
        arguments = function.get("arguments") or function.get("input")
        call_id, name = string_of(call.get("id")), string_of(function.get("name"))
        yield part(page, "tool_call", raw if arguments is None else arguments, call_id, name)
