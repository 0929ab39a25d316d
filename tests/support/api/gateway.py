"""What the tests of gateway share with others."""

from tests.support.upstream import ACCEPTED, Heard, Pieces, answer, event, events, failure, http

from kimi_proxy.core.json import JsonObject, JsonValue

LONG = "".join(f"line {i} é\n" for i in range(3000))


def toml(port: int, name: str = "s", path: str = "rpc", more: str = "") -> str:
    return f'[mcp.servers.{name}]\nurl = "http://127.0.0.1:{port}/{path}"\n{more}\n'


def call(name: str = "read", **arguments: JsonValue) -> JsonObject:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


def text(value: str) -> JsonValue:
    return {"content": [{"type": "text", "text": value}]}


def serve(heard: Heard) -> Pieces:
    """A server of two tools and a few faults."""
    match heard.message:
        case {"method": "tools/list"}:
            return answer(heard, {"tools": [{"name": "read"}, {"name": "write"}]})
        case {"method": "tools/call", "params": {"name": "read"}}:
            return answer(heard, text(LONG))
        case {"method": "tools/call", "params": {"name": "echo", "arguments": arguments}}:
            return answer(heard, arguments)
        case {"method": "tools/call", "params": {"name": "hang_up"}}:
            return b""
        case {"method": "tools/call", "params": {"name": "html"}}:
            return http(b"<html>", kind="text/html")
        case {"method": "tools/call", "params": {"name": "status"}}:
            return http(b"no", "500 Internal Server Error", "text/plain")
        case {"method": "tools/call", "params": {"name": "wrong_id"}}:
            return http(b'{"jsonrpc":"2.0","id":7,"result":{}}')
        case {"method": "tools/call", "params": {"name": "stream"}}:
            return events(event({"jsonrpc": "2.0", "id": heard.message["id"], "result": text(LONG)}))
        case {"method": "tools/call", "params": {"name": "deep"}}:
            return http(b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 10_000 + b"]" * 10_000 + b"}")
        case {"method": "tools/call"}:
            return failure(heard, -32001, "the server's own")
    return ACCEPTED
