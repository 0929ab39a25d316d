"""JSON-RPC 2.0: messages read without trust, answers written, and listeners for what happens on the way."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from typing import TypeAlias, TypeGuard

from kimi_proxy.core import json
from kimi_proxy.core.caller import ANONYMOUS, Caller
from kimi_proxy.core.errors import InvalidRequest, KimiProxyError, ParseError, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject, JsonValue

RpcId: TypeAlias = "str | int | float | None"

MAX_BATCH = 100  # messages that one POST may hold, at each of our endpoints


@dataclass(frozen=True, slots=True)
class RpcCall:
    """A request, or, without an id, a notification."""

    method: str
    params: JsonObject
    id: RpcId
    notification: bool


def read(message: JsonValue) -> RpcCall | None:
    """Return the call that `message` makes, None if it is a response; raise InvalidRequest if it is neither."""
    if not isinstance(message, dict):
        raise InvalidRequest("a JSON-RPC request is an object with jsonrpc, method and params")
    if message.get("jsonrpc") != "2.0":
        raise InvalidRequest('jsonrpc must be "2.0"')
    method = message.get("method")
    if "method" not in message and ("result" in message or "error" in message):
        return None
    if not isinstance(method, str):
        raise InvalidRequest("method must be a string")
    call_id = message.get("id")
    if call_id is not None and not _is_id(call_id):
        raise InvalidRequest("id must be a string or a number")
    params = message.get("params")
    if params is not None and not isinstance(params, dict):
        raise InvalidRequest("params must be an object")
    return RpcCall(method, dict(params or {}), call_id, "id" not in message)


def id_of(message: JsonValue) -> RpcId:
    """Return the id to answer a message with that could not be read as a call."""
    found = message.get("id") if isinstance(message, dict) else None
    return found if _is_id(found) else None


def _is_id(value: JsonValue) -> TypeGuard[str | int | float]:
    """Return whether it is a text or a number; 1e400 is read as no number that could be written again."""
    return isinstance(value, str | int | float) and not isinstance(value, bool) and value not in (inf, -inf)


def success(call_id: RpcId, result: JsonObject) -> JsonObject:
    return {"jsonrpc": "2.0", "id": call_id, "result": result}


def failure(call_id: RpcId, code: int, message: str, data: JsonObject | None = None) -> JsonObject:
    error: JsonObject = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": call_id, "error": error}


def failure_of(call_id: RpcId, error: KimiProxyError, who: Caller = ANONYMOUS) -> JsonObject:
    """Return an error as a response, in words for this person.

    Recovery errors use their code as the message, as the contract requires; the advice is in the data.
    """
    domain = error.rpc_code in (-32004, -32005)
    message = error.code if domain else error.explain(who)
    data: JsonObject = {**error.data(), "message": error.explain(who)} if domain else error.data()
    return failure(call_id, error.rpc_code, message, data)


async def answer_all(
    batch: Sequence[JsonValue], answer: Callable[[JsonValue], Awaitable[JsonObject | None]]
) -> list[JsonValue]:
    """Return the responses to a batch, one after the other. Raise InvalidRequest if it holds none, or too many."""
    if not 0 < len(batch) <= MAX_BATCH:
        raise InvalidRequest(f"a batch must contain 1 to {MAX_BATCH} messages")
    answers = [await answer(message) for message in batch]
    return [given for given in answers if given is not None]


def messages(raw: bytes, server: str) -> Iterator[JsonObject]:
    """Yield the messages that a server sent, one or a batch; raise UpstreamUnreadable if they are none.

    A result of megabytes stays unread.
    """
    try:
        value = json.decode_members(raw)
    except ParseError as e:
        raise UpstreamUnreadable(f"the response of {server} is not JSON: {e}") from e
    for message in value if isinstance(value, list) else [value]:
        if not isinstance(message, dict):
            raise UpstreamUnreadable(f"the response of {server} is JSON but not JSON-RPC")
        yield message


def is_response(message: JsonObject) -> bool:
    return "method" not in message and ("result" in message or "error" in message)


def answers(message: JsonObject, call_id: JsonValue) -> bool:
    """Return whether `message` is the response to the request of that id.

    Some servers turn the number 1 into "1", and an error may say that it could not read the id.
    """
    given = message.get("id")
    return is_response(message) and (str(given) == str(call_id) or (given is None and "error" in message))


def with_id(message: JsonObject, call_id: JsonValue) -> JsonObject:
    """Return `message` under another id, in its old place."""
    return {**message, "id": call_id}


# Notices that a server sends about a request while it works on it. The endpoint calls `listen` in the request's own
# context, and the client of the server finds the listener there.

Listener = Callable[[JsonObject], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def listen(on_notice: Listener) -> None:
    _listener.set(on_notice)


def listener() -> Listener | None:
    return _listener.get()


# Whether an answer was delivered. The endpoint calls `collect` before it answers a request, in the request's own
# context, and `report` when the answer was sent or could not be; without it an answer counts as sent when it is made.

DeliveryListener = Callable[[bool], None]

_listeners: ContextVar[list[DeliveryListener] | None] = ContextVar("listeners", default=None)


def collect() -> list[DeliveryListener]:
    listeners: list[DeliveryListener] = []
    _listeners.set(listeners)
    return listeners


def when_sent(listener: DeliveryListener) -> None:
    listeners = _listeners.get()
    if listeners is None:
        listener(True)
    else:
        listeners.append(listener)


def report(listeners: list[DeliveryListener], sent: bool) -> None:
    """Call each listener, once however often this is called."""
    while listeners:
        listeners.pop(0)(sent)
