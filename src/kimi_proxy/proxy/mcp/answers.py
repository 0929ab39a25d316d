"""Which of the messages that a server sent is the answer to a request, and what to say to the others."""

from collections.abc import Iterator

from kimi_proxy.core import deepjson, jsonrpc
from kimi_proxy.core.errors import ParseError, UpstreamUnreadable
from kimi_proxy.core.jsonrpc import RpcId
from kimi_proxy.core.types import JsonObject, JsonValue

# A result of 50 MB is slow, a result of this size is a mistake.
MAX_ANSWER_BYTES = 128 * 1024**2


def messages(raw: bytes, server: str) -> Iterator[JsonObject]:
    """The JSON-RPC messages in `raw`, one or a batch."""
    try:
        value = deepjson.decode(raw)
    except ParseError as e:
        raise UpstreamUnreadable(f"{server} did not answer in JSON: {e}") from e
    for message in value if isinstance(value, list) else [value]:
        if not isinstance(message, dict):
            raise UpstreamUnreadable(f"{server} answered JSON that is not JSON-RPC")
        yield message


def is_response(message: JsonObject) -> bool:
    return "method" not in message and ("result" in message or "error" in message)


def answers(message: JsonObject, call_id: RpcId) -> bool:
    """Whether `message` is the response to the request of that id.

    Some servers turn the number 1 into "1", and an error may say that it could not read the id.
    """
    given = message.get("id")
    return is_response(message) and (str(given) == str(call_id) or (given is None and "error" in message))


def with_id(message: JsonObject, call_id: JsonValue) -> JsonObject:
    """`message` under another id, in its old place."""
    return {**message, "id": call_id}


def reply_to_server(message: JsonObject) -> JsonObject | None:
    """What we say to a server's own request: we are alive, and can do nothing else for it."""
    if "method" not in message or "id" not in message:
        return None
    call_id = jsonrpc.id_of(message)
    if message["method"] == "ping":
        return jsonrpc.success(call_id, {})
    return jsonrpc.failure(call_id, -32601, "kimi-proxy does not offer this to servers")
