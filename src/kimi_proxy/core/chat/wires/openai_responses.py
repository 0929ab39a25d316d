"""OpenAI's responses: `instructions` apart, `input` as one text or as items, calls and their outputs among them."""

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

CONVERSATION = "input"

_TEXTS = frozenset({"input_text", "output_text", "text", "refusal"})


def messages(page: Page) -> tuple[Message, ...]:
    items = page.members.get(CONVERSATION)
    if items is not None and is_string(items):
        return (Message("user", (part(page, "text", items),), *page.span(items)),)
    return tuple(_item(page, raw) for raw in array_of(items))


def system(page: Page, messages: tuple[Message, ...]) -> tuple[Part, ...]:
    instructions = page.members.get("instructions")
    first = () if instructions is None or not is_string(instructions) else (part(page, "text", instructions),)
    return first + tuple(found for message in messages if message.role == "system" for found in message.parts)


def tool_name(tool: Object) -> str:
    return string_of(tool.get("name"))


def new_message(role: Role, text: str) -> JsonObject:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def new_tool(name: str, description: str, schema: JsonObject) -> JsonObject:
    return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": False}


def _item(page: Page, raw: Raw) -> Message:
    fields = object_of(raw)
    role, parts = _read(page, raw, fields)
    return Message(role, tuple(parts), *page.span(raw))


def _read(page: Page, raw: Raw, fields: Object) -> tuple[Role, Iterator[Part]]:
    kind, call_id = string_of(fields.get("type")), string_of(fields.get("call_id"))
    if kind in ("message", "") and "role" in fields:
        return role_of(string_of(fields.get("role"))), _content(page, fields.get("content"))
    if kind == "reasoning":
        return "assistant", iter((part(page, "thinking", raw),))
    if kind.endswith("_call_output"):
        return "tool", _output(page, raw, fields, call_id)
    if kind.endswith("_call"):
        return "assistant", iter((_call(page, raw, fields, call_id),))
    return "other", iter((part(page, "other", raw),))


def _content(page: Page, content: Raw | None) -> Iterator[Part]:
    if content is None:
        return
    if is_string(content):
        yield part(page, "text", content)
    for raw in array_of(content) if is_array(content) else ():
        block = object_of(raw)
        kind, text = string_of(block.get("type")), block.get("text") or block.get("refusal")
        if kind in _TEXTS and text is not None:
            yield part(page, "text", text)
        else:
            yield part(page, "image" if kind == "input_image" else "other", raw)


def _call(page: Page, raw: Raw, fields: Object, call_id: str) -> Part:
    arguments = fields.get("arguments") or fields.get("input") or fields.get("action")
    name = string_of(fields.get("name")) or string_of(fields.get("type"))
    return part(page, "tool_call", raw if arguments is None else arguments, call_id, name)


def _output(page: Page, raw: Raw, fields: Object, call_id: str) -> Iterator[Part]:
    output = fields.get("output")
    blocks = array_of(output)
    if output is None or (is_array(output) and not blocks):  # it says nothing, and answers its call
        yield part(page, "other", raw, call_id)
    elif is_array(output):
        for block in blocks:
            members = object_of(block)
            text = members.get("text")
            kind = string_of(members.get("type"))
            if kind in _TEXTS and text is not None:
                yield part(page, "tool_result", text, call_id)
            else:
                yield part(page, "image" if kind == "input_image" else "other", block, call_id)
    else:
        yield part(page, "tool_result", output, call_id)
