"""OpenAI's responses over a WebSocket: requests as frames, of which later ones hold only what is new."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec import Raw

from kimi_proxy.core import json
from kimi_proxy.core.chat import read
from kimi_proxy.core.chat.read import JsonBody, RawObject
from kimi_proxy.core.chat.wires import Wire
from kimi_proxy.core.errors import InvalidParams, PreviousResponseNotFound, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject

_CREATE = "response.create"
_NOT_POSTED = ("type", "generate", "background")
_FAILED = "response.failed"
_ENDS = frozenset({"response.completed", "response.incomplete", _FAILED})
_NOTED = (b"response.output_item.done", *(kind.encode() for kind in sorted(_ENDS)))
_METADATA = ("x-codex-", "x-models-etag", "openai-model")  # headers of an answer that Codex reads
# What Codex says in a header of each request that it POSTs, it puts into `client_metadata` of a frame.
_METADATA_HEADER = re.compile(r"(?:x-codex-(?!ws-)|x-openai-)[a-z0-9-]{1,60}|traceparent|tracestate", re.ASCII)
_RENAMED = "ws_request_header_"  # how the names of the others begin there
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{1,8192}")


@dataclass(frozen=True, slots=True)
class FrameHistory:
    """The items up to the end of a connection's last answer, as JSON without brackets, and that answer's id."""

    response_id: str = ""
    items: bytes = b""


NO_HISTORY = FrameHistory()


@dataclass(frozen=True, slots=True)
class CreateFrame:
    """A request as it is POSTed, the headers that came in it, and the items of its whole conversation."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    items: bytes
    model: str
    is_warmup: bool  # it wants no answer: the next request goes on from it


def read_frame(frame: bytes, before: FrameHistory) -> CreateFrame | None:
    """Return the request in a frame; one that goes on from the last answer is completed to the whole conversation.

    None if it holds more values than can be read: such a request can only be POSTed. Raise ParseError or InvalidParams
    for a frame that is no request, PreviousResponseNotFound if it goes on from an answer that is not known: the client
    then sends everything.
    """
    held = JsonBody(frame)
    if held.is_crowded:
        return None
    members = {name: frame[slice(*held.span(raw))] for name, raw in held.members.items()}
    _check(held)
    items = _items(held)
    previous = read.string(held.members.get("previous_response_id"))
    if previous and previous == before.response_id:
        items = b",".join(filter(None, (before.items, items)))
        members.pop("previous_response_id")
    elif previous and not Wire.RESPONSES.format.is_answer_stored(held):
        raise PreviousResponseNotFound(previous)
    members |= {"input": b"[%b]" % items, "stream": b"true"}
    return CreateFrame(
        _object(members),
        tuple(_headers(held.members.get("client_metadata"))),
        items,
        read.string(held.members.get("model")),
        bytes(held.members.get("generate", b"")) == b"false",
    )


def _check(held: JsonBody) -> None:
    """Raise InvalidParams for what is not served."""
    if read.string(held.members.get("type")) != _CREATE:
        raise InvalidParams("type", f"send {_CREATE}: other events are not served")
    if held.has("stream_id"):
        raise InvalidParams("stream_id", "one conversation is served on a connection: open one for each")


def _items(held: JsonBody) -> bytes:
    """Return the items of `input`, without brackets; a text is a message of the user."""
    given = held.members.get("input")
    if given is None:
        return b""
    if read.is_string(given):
        return json.encode(Wire.RESPONSES.format.new_message("user", held.part("text", given).text))
    if not read.is_array(given):
        raise InvalidParams("input", "send a text or a list of items")
    start, end = held.span(given)
    return held.body[start + 1 : end - 1].strip()


def _object(members: dict[str, bytes]) -> bytes:
    pairs = (json.encode(name) + b":" + value for name, value in members.items() if name not in _NOT_POSTED)
    return b"{%b}" % b",".join(pairs)


def _headers(metadata: Raw | None) -> Iterator[tuple[bytes, bytes]]:
    for key, raw in read.members(metadata).items():
        name, value = key.removeprefix(_RENAMED), read.string(raw)
        name = name.replace("_", "-") if name != key else name
        if _METADATA_HEADER.fullmatch(name) and _HEADER_VALUE.fullmatch(value):
            yield name.encode(), value.encode()


class AnswerItems:
    """Is fed the events of an answer; `history` returns what the next frame may go on from."""

    is_over = False

    def __init__(self, items: bytes) -> None:
        self._before = items
        self._done: dict[int, bytes] = {}
        self._response: RawObject = {}

    def feed(self, data: bytes) -> None:
        if not any(kind in data for kind in _NOTED) or (event := read.json_object(data)) is None:
            return
        index, kind = read.as_index(read.value(event.get("output_index"))), read.string(event.get("type"))
        if kind == "response.output_item.done" and index is not None and "item" in event:
            self._done[index] = bytes(event["item"])
        elif kind in _ENDS:
            self.is_over = True
            self._response = read.members(event.get("response")) if kind != _FAILED else {}

    def history(self) -> FrameHistory:
        """Return the whole conversation; NO_HISTORY if the answer failed."""
        response_id = read.string(self._response.get("id"))
        if not response_id:
            return NO_HISTORY
        items = {**dict(enumerate(map(bytes, read.array(self._response.get("output"))))), **self._done}
        said = (items[index] for index in sorted(items))
        return FrameHistory(response_id, b",".join(filter(None, (self._before, *said))))


# Frames of ours


def warmup_frames(response_id: str, model: str, now: int) -> list[bytes]:
    """Return the events that answer a request which wants no answer."""
    response: JsonObject = {"id": response_id, "object": "response", "created_at": now, "model": model, "output": []}
    usage: JsonObject = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    states = (("response.created", "in_progress", None), ("response.completed", "completed", usage))
    return [
        json.encode(
            {"type": kind, "sequence_number": number, "response": {**response, "status": status, "usage": counted}}
        )
        for number, (kind, status, counted) in enumerate(states)
    ]


def metadata_frames(headers: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the events in which Codex reads what an answer over HTTP has in its headers."""
    named = {name: value for name, value in headers.items() if name.startswith(_METADATA)}
    if not named:
        return
    for kind in ("response.metadata", "codex.response.metadata"):
        yield json.encode({"type": kind, "headers": named})
    limits = {which: _limit(named, f"x-codex-{which}-") for which in ("primary", "secondary")}
    if any(limits.values()):
        yield json.encode({"type": "codex.rate_limits", "rate_limits": limits})


def _limit(headers: Mapping[str, str], prefix: str) -> JsonObject | None:
    """Return one of the two limits of a plan that an answer may name."""
    try:
        limit: JsonObject = {"used_percent": float(headers[f"{prefix}used-percent"])}
        numbers = {name: headers.get(f"{prefix}{name.replace('_', '-')}") for name in ("window_minutes", "reset_at")}
        return limit | {name: int(given) for name, given in numbers.items() if given is not None}
    except (KeyError, ValueError):
        return None


def error_frame(status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a provider's error as a frame: its status and headers are in it, for which HTTP has places."""
    error = read.value((read.json_object(body) or {}).get("error"))
    named = {name: value for name, value in headers.items() if not name.startswith("content-")}
    if status == 200:
        return refusal_frame(502, UpstreamUnreadable.code, "the provider sent no stream of events", named)
    if not isinstance(error, Mapping):
        return refusal_frame(status, "upstream_error", body[:1000].decode("utf-8", "replace"), named)
    return json.encode({"type": "error", "status": status, "error": error, "headers": named})


def refusal_frame(status: int, code: str, message: str, headers: Mapping[str, str]) -> bytes:
    """Return an error of ours as a frame."""
    error = Wire.RESPONSES.format.error_body(status, code, message)
    return json.encode({"type": "error", "status": status, **error, "headers": headers})
