"""Conversations of agents with their tools, told in the forms that clients send them in."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.json import JsonValue


@dataclass(frozen=True, slots=True)
class User:
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str = "bash"
    arguments: dict[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assistant:
    text: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    id: str
    text: str
    failed: bool = False


Item = User | Assistant | Result

TOOLS = ("bash", "read_file")
SYSTEM = "You are a careful engineer."


def request(wire: Wire, items: Sequence[Item], tools: Iterable[str] = TOOLS, **more: JsonValue) -> Request:
    return parse(body(wire, items, tools, **more), wire)


def body(wire: Wire, items: Sequence[Item], tools: Iterable[str] = TOOLS, **more: JsonValue) -> bytes:
    """As an SDK writes it: the members that grow at the end, so that what comes first stays the same."""
    offered = [_tool(wire, name) for name in tools]
    head: dict[str, JsonValue] = {"model": "kimi-k2", **more, **({"tools": offered} if offered else {})}
    match wire:
        case Wire.CHAT:
            said = [{"role": "system", "content": SYSTEM}, *map(_chat, items)]
            return json.dumps({**head, "messages": said}).encode()
        case Wire.MESSAGES:
            return json.dumps({**head, "max_tokens": 100, "system": SYSTEM, "messages": _messages(items)}).encode()
        case Wire.RESPONSES:
            flat = [one for item in items for one in _responses(item)]
            return json.dumps({**head, "instructions": SYSTEM, "input": flat}).encode()
        case Wire.GEMINI:
            system = {"parts": [{"text": SYSTEM}]}
            return json.dumps({**head, "systemInstruction": system, "contents": _contents(items)}).encode()


def texts(request: Request) -> list[str]:
    """What the model reads, one text after the other."""
    return [part.text for message in request.messages for part in message.parts]


def results(request: Request) -> dict[str, str]:
    """What each call was answered."""
    parts = (part for message in request.messages for part in message.parts)
    return {part.call_id: part.text for part in parts if part.kind == "tool_result"}


def tool(wire: Wire, name: str, properties: dict[str, JsonValue]) -> JsonValue:
    schema: dict[str, JsonValue] = {"type": "object", "properties": properties}
    match wire:
        case Wire.CHAT:
            return {"type": "function", "function": {"name": name, "parameters": schema}}
        case Wire.MESSAGES:
            return {"name": name, "input_schema": schema}
        case Wire.RESPONSES:
            return {"type": "function", "name": name, "parameters": schema}
        case Wire.GEMINI:
            return {"functionDeclarations": [{"name": name, "parametersJsonSchema": schema}]}


def _tool(wire: Wire, name: str) -> JsonValue:
    return tool(wire, name, {"command": {"type": "string"}})


def _chat(item: Item) -> JsonValue:
    match item:
        case User():
            return {"role": "user", "content": item.text}
        case Result():
            return {"role": "tool", "tool_call_id": item.id, "content": item.text}
        case Assistant():
            calls: list[JsonValue] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
                for c in item.calls
            ]
            return {"role": "assistant", "content": item.text, **({"tool_calls": calls} if calls else {})}


def _messages(items: Sequence[Item]) -> list[JsonValue]:
    """Results that follow each other are blocks of one message of the user."""
    found: list[JsonValue] = []
    for is_result, group in groupby(items, key=lambda item: isinstance(item, Result)):
        if is_result:
            found.append({"role": "user", "content": [_block(item) for item in group]})
        else:
            found += [{"role": _role(item), "content": _content(item)} for item in group]
    return found


def _role(item: Item) -> str:
    return "assistant" if isinstance(item, Assistant) else "user"


def _content(item: Item) -> JsonValue:
    if isinstance(item, User):
        return item.text
    assert isinstance(item, Assistant)
    said: list[JsonValue] = [{"type": "text", "text": item.text}] if item.text else []
    return said + [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in item.calls]


def _block(item: Item) -> JsonValue:
    assert isinstance(item, Result)
    block: dict[str, JsonValue] = {"type": "tool_result", "tool_use_id": item.id, "content": item.text}
    return {**block, **({"is_error": True} if item.failed else {})}


def _contents(items: Sequence[Item]) -> list[JsonValue]:
    """Results that follow each other are parts of one content."""
    names, found = {call.id: call.name for item in items if isinstance(item, Assistant) for call in item.calls}, []
    for is_result, group in groupby(items, key=lambda item: isinstance(item, Result)):
        if is_result:
            found.append({"role": "user", "parts": [_response_part(item, names) for item in group]})
        else:
            found += [{"role": "user" if isinstance(item, User) else "model", "parts": _said(item)} for item in group]
    return found


def _response_part(item: Item, names: dict[str, str]) -> JsonValue:
    assert isinstance(item, Result)
    answer = {"error" if item.failed else "output": item.text}
    return {"functionResponse": {"id": item.id, "name": names.get(item.id, "bash"), "response": answer}}


def _said(item: Item) -> list[JsonValue]:
    text: list[JsonValue] = []
    if isinstance(item, User) or (isinstance(item, Assistant) and item.text):
        text = [{"text": item.text}]
    calls = item.calls if isinstance(item, Assistant) else ()
    return text + [{"functionCall": {"id": c.id, "name": c.name, "args": c.arguments}} for c in calls]


def _responses(item: Item) -> list[JsonValue]:
    match item:
        case User():
            return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": item.text}]}]
        case Result():
            return [{"type": "function_call_output", "call_id": item.id, "output": item.text}]
        case Assistant():
            text: JsonValue = [{"type": "output_text", "text": item.text}]
            said: list[JsonValue] = [{"type": "message", "role": "assistant", "content": text}] if item.text else []
            return said + [
                {"type": "function_call", "call_id": c.id, "name": c.name, "arguments": json.dumps(c.arguments)}
                for c in item.calls
            ]
