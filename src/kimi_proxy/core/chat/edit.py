"""A request with something changed: each function returns a new one, in which all other bytes stand as they stood."""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from msgspec import Raw

from kimi_proxy.core import jsontext
from kimi_proxy.core.chat.message import Role
from kimi_proxy.core.chat.page import array_of, is_array, object_of, splice
from kimi_proxy.core.chat.request import PREVIOUS_RESPONSE, Request
from kimi_proxy.core.chat.wire import Wire
from kimi_proxy.core.types import JsonObject, JsonValue

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
            edits.append((part.start, part.end, jsontext.encode(text)))
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
        return _edited(request, [(start, end, jsontext.encode([first, *items]))])
    return _edited(request, [_appended(request, name, items)])


def with_summary(request: Request, removed: Collection[int], at: int, item: JsonValue) -> Request:
    """Without the messages `removed`, which all stand before the message `at`, and with an item before that one."""
    messages = request.messages
    edits: list[Edit] = [(messages[each].start, messages[each + 1].start, b"") for each in removed]
    start = messages[at].start
    return _edited(request, [*edits, (start, start, jsontext.encode(item) + b",")])


def with_tool(request: Request, name: str, description: str, schema: JsonObject) -> Request:
    """One more tool at the end, so that the others keep their place in the provider's cache."""
    return _edited(request, [_appended(request, "tools", [request.dialect.new_tool(name, description, schema)])])


def with_model(request: Request, model: str) -> Request:
    if request.model == model:
        return request
    start, end = request.page.span(request.page.members["model"])
    return _edited(request, [(start, end, jsontext.encode(model))])


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
    return end, end, (b"," if array_of(raw) else b"") + jsontext.encode(items)[1:-1]


def _member(request: Request, name: str, value: JsonValue) -> Edit:
    """A member at the end of the body; a value that was there under the same name gives way."""
    before: Raw | None = request.page.members.get(name)
    if before is not None:
        return (*request.page.span(before), jsontext.encode(value))
    end = request.page.end
    return end, end, b"," + jsontext.encode(name) + b":" + jsontext.encode(value)


def _edited(request: Request, edits: list[Edit]) -> Request:
    return Request(request.wire, splice(request.body, edits)) if edits else request
