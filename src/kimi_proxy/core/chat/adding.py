"""More words at the end of what the system says, or at the end of all; every other byte stands as it stood."""

from msgspec import Raw

from kimi_proxy.core import jsontext
from kimi_proxy.core.chat import edit
from kimi_proxy.core.chat.page import array_of, is_array, is_string, object_of, splice
from kimi_proxy.core.chat.request import Request
from kimi_proxy.core.chat.wire import Wire
from kimi_proxy.core.types import JsonObject

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
        return edit.with_message(request, "system", text)
    if last.role != "user":  # of all roles, this one is taken after the results of tools by most providers
        return edit.with_message(request, "user", text)
    return _to_last_message(request, text)


def _first_message(request: Request, text: str) -> Request:
    first = request.messages[0] if request.messages else None
    if first is None:
        return request
    if first.role == "system" and (said := _content(request, 0)) is not None:
        return _added(request, said, text)
    message = jsontext.encode(request.dialect.new_message("system", text))
    return _spliced(request, first.start, first.start, message + b",")


def _to_last_message(request: Request, text: str) -> Request | None:
    said = _content(request, len(request.messages) - 1)
    if said is None:
        return None
    if request.wire is Wire.MESSAGES and is_string(said):
        # A block of its own: what the provider's cache knows of the message ends where it ended before.
        start, end = request.page.span(said)
        blocks = b'[{"type":"text","text":' + request.body[start:end] + b"}," + jsontext.encode(_block(text)) + b"]"
        return _spliced(request, start, end, blocks)
    return _added(request, said, text)


def _added(request: Request, said: Raw, text: str) -> Request:
    """Behind the words of a string, or as the last block of several."""
    end = request.page.span(said)[1] - 1
    if is_string(said):
        words = BETWEEN + text if len(bytes(said)) > 2 else text
        return _spliced(request, end, end, jsontext.encode(words)[1:-1])
    if is_array(said):
        comma = b"," if array_of(said) else b""
        return _spliced(request, end, end, comma + jsontext.encode(_block(text)))
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
    value = jsontext.encode(text)
    if before is not None:
        return _spliced(request, *request.page.span(before), value)
    end = request.page.end
    return _spliced(request, end, end, b"," + jsontext.encode(name) + b":" + value)


def _block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _spliced(request: Request, start: int, end: int, new: bytes) -> Request:
    return Request(request.wire, splice(request.body, [(start, end, new)]))
