"""Gemini's API as Code Assist has it, for a login with Google: requests and answers are wrapped in an envelope.

Inside of the proxy such a request is one of Gemini's own API: `open_request` keeps the envelope as a member of it, and
`close_request` puts it back. What was not changed between the two leaves in the same bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kimi_proxy.core import json
from kimi_proxy.core.chat import read
from kimi_proxy.core.chat.members import ENVELOPED, without_members
from kimi_proxy.core.chat.read import JsonBody, splice
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.sse import SseParser

_ENVELOPE = "kimiProxyEnvelope"
_OURS = ("model", "stream", _ENVELOPE)  # members that a request has inside of the proxy alone
_NULL = b"null"
_MODELS = "models/"  # stands before a name where tokens are counted


@dataclass(frozen=True, slots=True)
class WrappedRequest:
    """The path after a provider's `base_url`, the query, and the body to send there."""

    path: str
    query: str
    body: bytes


def open_request(body: bytes, is_stream: bool) -> bytes:
    """Return the request in an envelope as one of Gemini's own API.

    Raise ParseError if the body is no JSON object, InvalidParams if it holds no request that can be read.
    """
    held = JsonBody(body)
    request = held.members.get("request")
    if held.is_crowded or request is None or not read.members(request):
        raise InvalidParams("request", "send an object, of no more values than can be read")
    start, end = held.span(request)
    inner = body[start:end]
    model = read.string(held.members.get("model")) or read.string(read.members(request).get("model"))
    ours = [(_ENVELOPE, splice(body, [(start, end, _NULL)])), ("model", json.encode(model.removeprefix(_MODELS)))]
    ours += [("stream", b"true")] if is_stream else []
    return _with_members(without_members(inner, "model"), ours)


def close_request(body: bytes, *, counts: bool) -> WrappedRequest:
    """Return a request of Gemini's own API in its envelope, or in a new one; `counts` if only tokens are wanted."""
    held = JsonBody(body)
    model = json.encode(read.string(held.members.get("model")))
    is_stream = read.is_true(held.members.get("stream"))
    inner = without_members(body, *_OURS)
    envelope = _envelope(held)
    if counts:
        counted = json.encode(_MODELS + read.string(held.members.get("model")))
        wrapped = _fill(envelope, _with_members(inner, [("model", counted)], at_start=True), None)
        return WrappedRequest(f"{ENVELOPED}:countTokens", "", wrapped)
    verb, query = ("streamGenerateContent", "alt=sse") if is_stream else ("generateContent", "")
    return WrappedRequest(f"{ENVELOPED}:{verb}", query, _fill(envelope, inner, model))


def plain_request(body: bytes) -> bytes:
    """Return a request for a provider that takes it without an envelope."""
    return without_members(body, _ENVELOPE) if _ENVELOPE.encode() in body else body


def open_answer(data: bytes) -> bytes:
    """Return an answer, or one event of it, as Gemini's own API has it; an error stays as it is."""
    members = read.json_object(data)
    response = None if members is None else members.get("response")
    if members is None or response is None or not read.members(response):
        return data
    held = JsonBody(data)
    start, end = held.span(held.members["response"])
    return _with_members(data[start:end], [(_ENVELOPE, splice(data, [(start, end, _NULL)]))])


def close_answer(data: bytes) -> bytes:
    """Return an answer, or one event of it, in its envelope, or in a new one; an error stays as it is."""
    members = read.json_object(data)
    if members is None or "error" in members:
        return data
    return _fill(_envelope(JsonBody(data)), without_members(data, _ENVELOPE), None)


class AnswerEvents:
    """Opens or closes the events of a stream: feed it slices, get whole events."""

    def __init__(self, *, closes: bool) -> None:
        self._rewrite = close_answer if closes else open_answer
        self._events = SseParser()

    def feed(self, piece: bytes) -> bytes:
        return b"".join(self._rewritten(piece))

    def _rewritten(self, piece: bytes) -> Iterator[bytes]:
        for event in self._events.feed(piece):
            if event.data:
                lines = self._rewrite(event.data).split(b"\n")
                yield b"%b\r\n" % b"".join(b"data: %b\r\n" % line for line in lines)


def _envelope(held: JsonBody) -> bytes:
    """Return the envelope that a body of ours holds; without one, an empty one for what it is."""
    found = held.members.get(_ENVELOPE)
    if found is not None:
        start, end = held.span(found)
        return held.body[start:end]
    return b'{"request":null}' if "contents" in held.members else b'{"response":null}'


def _fill(envelope: bytes, inner: bytes, model: bytes | None) -> bytes:
    """Return an envelope with what it holds, and with the model that is asked."""
    held = JsonBody(envelope)
    place = held.members.get("request") or held.members.get("response")
    edits = [] if place is None else [(*held.span(place), inner)]
    if model is not None and (named := held.members.get("model")) is not None:
        edits.append((*held.span(named), model))
    filled = splice(envelope, edits)
    return filled if model is None or "model" in held.members else _with_members(filled, [("model", model)], True)


def _with_members(body: bytes, members: list[tuple[str, bytes]], at_start: bool = False) -> bytes:
    added = b",".join(b"%b:%b" % (json.encode(name), value) for name, value in members)
    comma = b"," if JsonBody(body).members else b""
    if at_start:
        at = body.index(b"{") + 1
        return body[:at] + added + comma + body[at:]
    at = body.rindex(b"}")
    return body[:at] + comma + added + body[at:]
