"""Anthropic's messages: a `system` apart, content in blocks, tool results inside of what the user says."""

from collections.abc import Iterator

from msgspec import Raw

from kimi_proxy.core.chat.page import (
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


def messages(page: Page) -> tuple[Message, ...]:
    return tuple(_message(page, raw) for raw in array_of(page.members.get(CONVERSATION)))


def system(page: Page, messages: tuple[Message, ...]) -> tuple[Part, ...]:
    return tuple(_content(page, page.members.get("system")))


def tool_name(tool: Object) -> str:
    return string_of(tool.get("name"))


def new_message(role: Role, text: str) -> JsonObject:
    """There are no system messages here: what the system says late, it says by the user's mouth."""
    return {"role": "user" if role == "system" else role, "content": text}


def new_tool(name: str, description: str, schema: JsonObject) -> JsonObject:
    return {"name": name, "description": description, "input_schema": schema}


def _message(page: Page, raw: Raw) -> Message:
    fields = object_of(raw)
    role = role_of(string_of(fields.get("role")))
    return Message(role, tuple(_content(page, fields.get("content"))), *page.span(raw))


def _content(page: Page, content: Raw | None) -> Iterator[Part]:
    if content is None:
        return
    if is_string(content):
        yield part(page, "text", content)
    for block in array_of(content) if is_array(content) else ():
        yield from _block(page, block)


def _block(page: Page, raw: Raw) -> Iterator[Part]:
    block = object_of(raw)
    match string_of(block.get("type")), block:
        case "text", {"text": text}:
            yield part(page, "text", text)
        case "tool_use", {"input": arguments}:
            yield part(page, "tool_call", arguments, string_of(block.get("id")), string_of(block.get("name")))
        case "tool_result", _:
            yield from _result(page, raw, block)
        case "thinking", {"thinking": thought}:
            yield part(page, "thinking", thought)
        case "image", _:
            yield part(page, "image", raw)
        case _:
            yield part(page, "other", raw)


def _result(page: Page, raw: Raw, result: Object) -> Iterator[Part]:
    content, call_id, failed = result.get("content"), string_of(result.get("tool_use_id")), result.get("is_error")
    if content is not None and is_string(content):
        yield part(page, "tool_result", content, call_id, failed=_is_true(failed))
        return
    blocks = array_of(content)
    if not blocks:  # it says nothing, and answers its call
        yield part(page, "other", raw, call_id)
    for each in blocks:
        block = object_of(each)
        match string_of(block.get("type")), block:
            case "text", {"text": text}:
                yield part(page, "tool_result", text, call_id, failed=_is_true(failed))
            case kind, _:
                yield part(page, "image" if kind == "image" else "other", each, call_id)


def _is_true(raw: Raw | None) -> bool:
    return raw is not None and bytes(raw) == b"true"
