"""Anthropic's messages on Bedrock and Vertex: the model is in the path instead of the body.

Inside the proxy such a request has the format of Anthropic's own API: `open_body` adds the model, and `close_body`
removes it again for a provider of such a cloud. A request that stays within one cloud keeps every byte.
"""

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from kimi_proxy.core import json
from kimi_proxy.core.chat import read
from kimi_proxy.core.chat.members import open_body, without_members
from kimi_proxy.core.chat.read import JsonBody, splice
from kimi_proxy.core.errors import ParseError, UpstreamUnreadable
from kimi_proxy.core.event_stream import StreamMessage, StreamMessageParser, encode
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.sse import SseParser

BEDROCK, VERTEX = "bedrock", "vertex"  # the types of their providers
VERSIONS = {BEDROCK: "bedrock-2023-05-31", VERTEX: "vertex-2023-10-16"}
STREAM_TYPE = "application/vnd.amazon.eventstream"

_VERSION, _BETAS = "anthropic_version", "anthropic_beta"


@dataclass(frozen=True, slots=True)
class CloudRequest:
    """The path after a provider's `base_url`, and the body to send there."""

    path: str
    body: bytes


def counted_body(body: bytes, model: str) -> bytes:
    """Return the request that Bedrock should count, in Anthropic's own format. Raise ParseError if it is invalid."""
    asked = read.members(read.members(JsonBody(body).members.get("input")).get("invokeModel"))
    try:
        return open_body(base64.b64decode(read.string(asked.get("body")), validate=True), model, is_stream=False)
    except ValueError as e:
        raise ParseError("input.invokeModel.body is not base64") from e


def close_body(cloud: str, body: bytes, betas: Sequence[str], counts: bool) -> CloudRequest:
    """Return a request of Anthropic's own API as the cloud takes it; `counts` if only its tokens are wanted."""
    held = JsonBody(body)
    model = read.string(held.members.get("model"))
    is_stream = read.is_true(held.members.get("stream"))
    if cloud == VERTEX:
        if counts:
            return CloudRequest(_vertex_path("count-tokens", False), _with_version(body, cloud))
        return CloudRequest(_vertex_path(model, is_stream), without_members(_with_version(body, cloud), "model"))
    plain = _with_betas(without_members(_with_version(body, cloud), "model", "stream"), betas)
    if counts:
        wrapped: JsonObject = {"input": {"invokeModel": {"body": base64.b64encode(plain).decode()}}}
        return CloudRequest(f"/model/{quote(model, safe='')}/count-tokens", json.encode(wrapped))
    way = "invoke-with-response-stream" if is_stream else "invoke"
    return CloudRequest(f"/model/{quote(model, safe='')}/{way}", plain)


def plain_body(body: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return a cloud's body without the fields that Anthropic's own API has in headers, and those betas."""
    if b'"anthropic_' not in body:
        return body, ()
    held = JsonBody(body)
    betas = read.value(held.members.get(_BETAS)) if _BETAS in held.members else None
    named = tuple(each for each in betas if isinstance(each, str)) if isinstance(betas, list) else ()
    return without_members(body, _VERSION, _BETAS), named


def _vertex_path(model: str, is_stream: bool) -> str:
    return f"/publishers/anthropic/models/{quote(model, safe='@')}:{'streamRawPredict' if is_stream else 'rawPredict'}"


def _with_version(body: bytes, cloud: str) -> bytes:
    """Return the body with the version that this cloud wants, in place of another's."""
    held = JsonBody(body)
    wanted = VERSIONS[cloud]
    given = read.string(held.members.get(_VERSION))
    if given.startswith(cloud) or held.is_crowded:
        return body
    return splice(body, [held.set(_VERSION, wanted)])


def _with_betas(body: bytes, betas: Sequence[str]) -> bytes:
    """Return the body with the betas of the header, which Bedrock reads here alone."""
    held = JsonBody(body)
    if not betas or _BETAS in held.members or held.is_crowded:
        return body
    return splice(body, [held.set(_BETAS, list(betas))])


class BedrockEvents:
    """Bedrock's stream as Anthropic's events: feed it slices, get whole events."""

    def __init__(self) -> None:
        self._messages = StreamMessageParser()

    def feed(self, piece: bytes) -> bytes:
        return b"".join(_event(message) for message in self._messages.feed(piece))

    def end(self) -> None:
        """Raise UpstreamUnreadable if the stream ends in the middle of a message."""
        if self._messages.waiting_bytes:
            raise UpstreamUnreadable("the event stream ended in the middle of a message")


def _event(message: StreamMessage) -> bytes:
    kind = message.headers.get(":message-type", "event")
    held = read.json_object(message.payload) or {}
    if kind != "event":
        name = message.headers.get(":exception-type") or message.headers.get(":error-code") or "error"
        text = read.string(held.get("message")) or message.headers.get(":error-message", "")
        error: JsonObject = {"type": "error", "error": {"type": _error_type(name), "message": f"{name}: {text}"}}
        return _sse("error", json.encode(error))
    try:
        data = base64.b64decode(read.string(held.get("bytes")), validate=True)
    except ValueError as e:
        raise UpstreamUnreadable("a chunk of the event stream is not base64") from e
    return _sse(read.string((read.json_object(data) or {}).get("type")), data) if data else b""


def _error_type(name: str) -> str:
    if name == "throttlingException":
        return "rate_limit_error"
    return "invalid_request_error" if name == "validationException" else "api_error"


def _sse(name: str, data: bytes) -> bytes:
    return b"".join((b"event: ", name.encode(), b"\n", *(b"data: %b\n" % line for line in data.split(b"\n")), b"\n"))


class BedrockMessages:
    """Anthropic's events as Bedrock's stream: feed it slices, get whole messages."""

    def __init__(self) -> None:
        self._events = SseParser()

    def feed(self, piece: bytes) -> bytes:
        return b"".join(self._messages(piece))

    def _messages(self, piece: bytes) -> Iterator[bytes]:
        for event in self._events.feed(piece):
            if event.name == "error":
                yield _exception(event.data)
            elif event.data:
                yield _chunk(event.data)


def _chunk(data: bytes) -> bytes:
    headers = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    return encode(StreamMessage(json.encode({"bytes": base64.b64encode(data).decode()}), headers))


def _exception(data: bytes) -> bytes:
    error = read.members((read.json_object(data) or {}).get("error"))
    kind = read.string(error.get("type"))
    name = {"rate_limit_error": "throttlingException", "invalid_request_error": "validationException"}.get(
        kind, "modelStreamErrorException"
    )
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return encode(StreamMessage(json.encode({"message": read.string(error.get("message"))}), headers))


def beta_names(values: Iterable[bytes]) -> tuple[str, ...]:
    """Return the betas that `anthropic-beta` headers name."""
    names = (each.strip() for value in values for each in value.decode("latin-1").split(","))
    return tuple(dict.fromkeys(name for name in names if name))
