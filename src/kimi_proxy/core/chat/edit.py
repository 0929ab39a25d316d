"""A request with something changed: each function returns a new one, in which all other bytes stand as they stood."""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from msgspec import Raw

from kimi_proxy.core import json
from kimi_proxy.core.chat.page import Role, Wire, array_of, is_array, is_string, object_of, splice
from kimi_proxy.core.chat.request import PREVIOUS_RESPONSE, Request
from kimi_proxy.core.json import JsonObject, JsonValue

Place: TypeAlias = tuple[int, int]  # which message, which of its parts
Edit: TypeAlias = tuple[int, int, bytes]


def with_texts(request: Request, texts: Mapping[Place, str]) -> Request:
    """Other texts in these places; each must be a part whose text is a string."""
    edits: list[Edit] = []
    for place, text in texts.items():
        part = request.part(*place)
        if not part.is_string:
            raise ValueError(f"a {part.kind} has no text to replace")
        if part.text != text:
            edits.append((part.start, part.end, json.encode(text)))
    return _edited(request, edits)


def with_message(request: Request, role: Role, text: str) -> Request:
    """One more message at the end."""
    return with_items(request, [request.dialect.new_message(role, text)])


def with_items(request: Request, items: Sequence[JsonValue]) -> Request:
    """More at the end of the conversation, in the form that the API has for it."""
    name = request.dialect.CONVERSATION
    before = request.page.members.get(name)
    if before is not None and not is_array(before):  # OpenAI's `input` may be a text: it becomes the first message
        (said,) = request.messages
        start, end = request.page.span(before)
        first = request.dialect.new_message("user", said.parts[0].text)
        return _edited(request, [(start, end, json.encode([first, *items]))])
    return _edited(request, [_appended(request, name, items)])


def with_summary(request: Request, removed: Collection[int], at: int, item: JsonValue) -> Request:
    """Without the messages `removed`, which all stand before the message `at`, and with an item before that one."""
    messages = request.messages
    edits: list[Edit] = [(messages[each].start, messages[each + 1].start, b"") for each in removed]
    start = messages[at].start
    return _edited(request, [*edits, (start, start, json.encode(item) + b",")])


def with_tool(request: Request, name: str, description: str, schema: JsonObject) -> Request:
    """One more tool at the end, so that the others keep their place in the provider's cache."""
    return _edited(request, [_appended(request, "tools", [request.dialect.new_tool(name, description, schema)])])


def with_model(request: Request, model: str) -> Request:
    if request.model == model:
        return request
    start, end = request.page.span(request.page.members["model"])
    return _edited(request, [(start, end, json.encode(model))])


def with_previous_response(request: Request, id: str) -> Request:
    """Gone on from another answer than the client named."""
    return _edited(request, [_member(request, PREVIOUS_RESPONSE, id)])


def asking_usage(request: Request) -> Request:
    """With `stream_options.include_usage`, unless the client said something about it."""
    if request.wire is not Wire.CHAT or not request.is_stream:
        return request
    options = request.page.members.get("stream_options")
    if options is None:
        return _edited(request, [_member(request, "stream_options", {"include_usage": True})])
    members = object_of(options)
    if "include_usage" in members or not bytes(options).startswith(b"{"):
        return request
    end = request.page.span(options)[1] - 1
    return _edited(request, [(end, end, (b"," if members else b"") + b'"include_usage":true')])


def _appended(request: Request, name: str, items: Sequence[JsonValue]) -> Edit:
    raw = request.page.members.get(name)
    if raw is None or not is_array(raw):
        return _member(request, name, items)
    end = request.page.span(raw)[1] - 1
    return end, end, (b"," if array_of(raw) else b"") + json.encode(items)[1:-1]


def _member(request: Request, name: str, value: JsonValue) -> Edit:
    """A member at the end of the body; a value that was there under the same name gives way."""
    before: Raw | None = request.page.members.get(name)
    if before is not None:
        return (*request.page.span(before), json.encode(value))
    end = request.page.end
    return end, end, b"," + json.encode(name) + b":" + json.encode(value)


def _edited(request: Request, edits: list[Edit]) -> Request:
    return Request(request.wire, splice(request.body, edits)) if edits else request


BETWEEN = "\n\n"

_APART = {Wire.MESSAGES: "system", Wire.RESPONSES: "instructions"}


def with_system(request: Request, text: str) -> Request:
    """Told by the system, behind what it says already; the same request where there is no place for it."""
    name = _APART.get(request.wire)
    if name is None:
        return _first_message(request, text)
    said = request.page.members.get(name)
    if said is None or bytes(said) == b"null":
        return _with_member(request, name, said, text)
    return _added(request, said, text)


def with_reminder(request: Request, text: str) -> Request | None:
    """Told last of all, in the form that the API has for it; None where nothing can follow any more.

    Nothing comes between a call and its results, and an answer that the model is to go on with stays last.
    """
    last = request.messages[-1] if request.messages else None
    if last is None or last.role not in ("user", "tool", "system") or _has_open_calls(request):
        return None
    if request.wire is Wire.RESPONSES:
        return with_message(request, "system", text)
    if last.role != "user":  # of all roles, this one is taken after the results of tools by most providers
        return with_message(request, "user", text)
    return _to_last_message(request, text)


def _first_message(request: Request, text: str) -> Request:
    first = request.messages[0] if request.messages else None
    if first is None:
        return request
    if first.role == "system" and (said := _content(request, 0)) is not None:
        return _added(request, said, text)
    message = json.encode(request.dialect.new_message("system", text))
    return _spliced(request, first.start, first.start, message + b",")


def _to_last_message(request: Request, text: str) -> Request | None:
    said = _content(request, len(request.messages) - 1)
    if said is None:
        return None
    if request.wire is Wire.MESSAGES and is_string(said):
        # A block of its own: what the provider's cache knows of the message ends where it ended before.
        start, end = request.page.span(said)
        blocks = b'[{"type":"text","text":' + request.body[start:end] + b"}," + json.encode(_block(text)) + b"]"
        return _spliced(request, start, end, blocks)
    return _added(request, said, text)


def _added(request: Request, said: Raw, text: str) -> Request:
    """Behind the words of a string, or as the last block of several."""
    end = request.page.span(said)[1] - 1
    if is_string(said):
        words = BETWEEN + text if len(bytes(said)) > 2 else text
        return _spliced(request, end, end, json.encode(words)[1:-1])
    if is_array(said):
        comma = b"," if array_of(said) else b""
        return _spliced(request, end, end, comma + json.encode(_block(text)))
    return request


def _content(request: Request, at: int) -> Raw | None:
    """What a message says, if it is a string or blocks."""
    messages = array_of(request.page.members.get(request.dialect.CONVERSATION))
    said = object_of(messages[at]).get("content")
    return said if said is not None and (is_string(said) or is_array(said)) else None


def _has_open_calls(request: Request) -> bool:
    """Whether a call of the model still waits for its result."""
    waiting: set[str] = set()
    for part in (part for message in request.messages for part in message.parts if part.call_id):
        if part.kind == "tool_call":
            waiting.add(part.call_id)
        else:
            waiting.discard(part.call_id)
    return bool(waiting)


def _with_member(request: Request, name: str, before: Raw | None, text: str) -> Request:
    value = json.encode(text)
    if before is not None:
        return _spliced(request, *request.page.span(before), value)
    end = request.page.end
    return _spliced(request, end, end, b"," + json.encode(name) + b":" + value)


def _block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _spliced(request: Request, start: int, end: int, new: bytes) -> Request:
    return Request(request.wire, splice(request.body, [(start, end, new)]))
