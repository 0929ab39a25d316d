"""Edits of a request: each function returns a new one, in which all other bytes stay unchanged."""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from kimi_proxy.core import json
from kimi_proxy.core.chat import read
from kimi_proxy.core.chat.read import Edit, splice
from kimi_proxy.core.chat.request import Request
from kimi_proxy.core.chat.wires.calls import wrap_call
from kimi_proxy.core.json import JsonObject

Place: TypeAlias = tuple[int, int]  # which message, which of its parts


def with_texts(request: Request, texts: Mapping[Place, str]) -> Request:
    """Replace the texts in these places; raise ValueError if one is no part whose text is a string."""
    return _apply_edits(request, _replace_texts(request, texts))


def _replace_texts(request: Request, texts: Mapping[Place, str]) -> list[Edit]:
    edits: list[Edit] = []
    for place, text in texts.items():
        part = request.part(*place)
        if not part.is_string:
            raise ValueError(f"a {part.kind} has no text to replace")
        if part.text != text:
            start = request.messages[place[0]].start
            edits.append((start + part.start, start + part.end, json.encode(text)))
    return edits


def with_items(request: Request, items: Sequence[JsonObject]) -> Request:
    """Add to the end of the conversation, in the form that the API has for it."""
    return _apply_edits(request, [request.format.add_items(request.json, items)])


def with_summary(request: Request, removed: Collection[int], at: int, item: JsonObject) -> Request:
    """Remove the messages `removed`, all of them before the message `at`, and insert an item before that one."""
    messages = request.messages
    edits: list[Edit] = [(messages[each].start, messages[each + 1].start, b"") for each in removed]
    start = messages[at].start
    return _apply_edits(request, [*edits, (start, start, json.encode(item) + b",")])


def with_tool(request: Request, name: str, description: str, schema: JsonObject) -> Request:
    """Add a tool where the client has its own, in the form that the API has for it."""
    tool = request.format.new_tool(name, description, schema)
    return _apply_edits(request, [request.format.add_tool(request.json, tool)])


def with_deferred_tools(
    request: Request, removed: Collection[str], added: Sequence[JsonObject], wrapper: str, texts: Mapping[Place, str]
) -> Request:
    """Leave out tools, add others, turn calls of those left out into calls of `wrapper`, and replace `texts`."""
    body = request.json
    form = request.format
    named = ((place, read.string(place.name)) for place in form.calls(body))
    wrapped = [each for place, name in named if name in removed for each in wrap_call(body, place, name, wrapper)]
    return _apply_edits(request, [*form.replace_tools(body, removed, added), *wrapped, *_replace_texts(request, texts)])


def with_native_search(
    request: Request, names: Collection[str], search: JsonObject, inserted: Mapping[int, Sequence[JsonObject]]
) -> Request:
    """Let the provider load tools when the model finds them; `inserted` has messages by the one that they precede."""
    edits = request.format.defer_tools(request.json, names, search)
    for at, items in inserted.items():
        start = request.messages[at].start
        edits.append((start, start, b"".join(json.encode(item) + b"," for item in items)))
    return _apply_edits(request, edits)


def with_cache_marks(request: Request, places: Sequence[int | None], ttl: str = "") -> Request:
    """Mark the ends of these messages, or of everything before the messages, for the provider's prompt cache."""
    found = (request.format.add_cache_mark(request.json, place, ttl) for place in places)
    return _apply_edits(request, [edit for edit in found if edit is not None])


def with_model(request: Request, model: str) -> Request:
    return request if request.model == model else _apply_edits(request, [request.json.set("model", model)])


def with_previous_response(request: Request, id: str) -> Request:
    """Continue from another answer than the client named."""
    return _apply_edits(request, [request.json.set(request.format.previous_response, id)])


def with_usage(request: Request) -> Request:
    """Ask for the usage at the end of a stream, unless the client decided on it."""
    edit = request.format.ask_usage(request.json) if request.is_stream else None
    return request if edit is None else _apply_edits(request, [edit])


def with_thinking_cleared(request: Request, keep_turns: int) -> Request:
    """Ask the provider to drop the thinking of all but the newest turns; unchanged if it cannot."""
    edit = request.format.clear_thinking(request.json, keep_turns)
    return request if edit is None else _apply_edits(request, [edit])


def with_system(request: Request, text: str) -> Request:
    """Append to the system prompt; unchanged if there is no place for it."""
    return _apply_edits(request, request.format.add_system(request.json, request.messages, text))


def with_system_part(request: Request, index: int, text: str) -> Request:
    """Replace one of the texts of the system prompt."""
    parts = [(0, part) for part in request.apart]
    parts += ((message.start, part) for message in request.instructions for part in message.parts)
    start, part = parts[index]
    edits = [] if part.text == text else [(start + part.start, start + part.end, json.encode(text))]
    return _apply_edits(request, edits)


def with_reminder(request: Request, text: str) -> Request | None:
    """Append to the conversation, in the API's form for that; None if nothing may follow.

    Nothing is inserted between a call and its results, and an answer that the model is to continue stays last.
    """
    last = request.messages[-1] if request.messages else None
    if last is None or last.role not in ("user", "tool", "system") or _has_open_calls(request):
        return None
    edits = request.format.add_reminder(request.json, request.messages, text)
    return _apply_edits(request, edits) if edits else None


def _has_open_calls(request: Request) -> bool:
    """Return whether a call of the model still waits for its result."""
    waiting: set[str] = set()
    for part in (part for message in request.messages for part in message.parts if part.call_id):
        if part.kind == "tool_call":
            waiting.add(part.call_id)
        else:
            waiting.discard(part.call_id)
    return bool(waiting)


def _apply_edits(request: Request, edits: Sequence[Edit]) -> Request:
    return Request(request.wire, splice(request.body, edits), request.remembered) if edits else request
