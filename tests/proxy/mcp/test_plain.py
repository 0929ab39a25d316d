"""A server that takes JSON-RPC by POST."""

import asyncio
import gzip
import json
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.upstream import (
    ACCEPTED,
    Heard,
    Pieces,
    Script,
    Upstream,
    answer,
    chain,
    event,
    events,
    failure,
    http,
    scripted,
)

from kimi_proxy.core.errors import (
    KimiProxyError,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnreachable,
    UpstreamUnreadable,
)
from kimi_proxy.core.json import JsonObject, JsonValue, encode
from kimi_proxy.core.mcp import add_envelope
from kimi_proxy.proxy.mcp.http import PlainHttp

CALL: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read"}}
PATIENCE_S = 60.0


@asynccontextmanager
async def client_of(script: Script) -> AsyncIterator[tuple[PlainHttp, Upstream]]:
    async with scripted(script) as upstream:
        client = PlainHttp("files", upstream.url)
        try:
            yield client, upstream
        finally:
            await client.close()


async def ask(script: Script, message: JsonObject = CALL, timeout_s: float = PATIENCE_S) -> JsonObject | None:
    async with client_of(script) as (client, _):
        return await client.forward(message, timeout_s)


async def test_the_request_arrives_as_it_was_sent_and_its_answer_comes_back():
    message: JsonObject = {"z": 1, "jsonrpc": "2.0", "method": "x/y", "id": "é", "params": {"b": None, "a": [1.5]}}
    async with client_of(lambda heard: answer(heard, {"b": 1, "a": 2})) as (client, upstream):
        got = await client.forward(message, PATIENCE_S)

    assert json.dumps(upstream.heard[0].message) == json.dumps(message)
    assert json.dumps(got) == json.dumps({"jsonrpc": "2.0", "id": "é", "result": {"b": 1, "a": 2}})


async def test_no_header_of_ours_tells_a_secret():
    async with client_of(lambda heard: answer(heard, {})) as (client, upstream):
        await client.forward(CALL, PATIENCE_S)

    assert set(upstream.heard[0].headers) == {
        "host",
        "accept",
        "accept-encoding",
        "user-agent",
        "content-type",
        "content-length",
    }


async def test_an_error_of_the_server_passes_through_under_any_status():
    for status in ("200 OK", "400 Bad Request", "404 Not Found", "500 Internal Server Error"):
        got = await ask(lambda heard, status=status: failure(heard, -32601, "unknown method", status))

        assert got == {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "unknown method"}}


async def test_an_error_that_could_not_read_our_id_gets_it_back():
    body = b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse"},"id":null}'

    assert await ask(lambda _: http(body)) == {
        "jsonrpc": "2.0",
        "error": {"code": -32700, "message": "parse"},
        "id": 1,
    }


async def test_an_id_that_became_a_string_is_still_ours():
    got = await ask(lambda _: http(b'{"jsonrpc":"2.0","id":"1","result":{}}'))

    assert got == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_the_answer_is_found_in_a_batch():
    body = b'[{"jsonrpc":"2.0","method":"notifications/progress"},{"jsonrpc":"2.0","id":1,"result":7}]'

    assert await ask(lambda _: http(body)) == {"jsonrpc": "2.0", "id": 1, "result": 7}


@pytest.mark.parametrize(
    "reply",
    [
        ACCEPTED,
        http(b"", "204 No Content"),
        http(b'{"jsonrpc":"2.0","id":null,"result":{}}'),
        http(b"", "404 Not Found"),
    ],
)
async def test_a_notification_gets_nothing_whatever_the_server_says(reply: bytes):
    assert await ask(lambda _: reply, {"jsonrpc": "2.0", "method": "notifications/x"}) is None


async def test_events_in_place_of_json_are_read_to_the_answer():
    result: JsonValue = {"jsonrpc": "2.0", "id": 1, "result": {"text": "é\u2028"}}
    blocks = (
        b": hello\n\n",
        b"id: 1\ndata:\n\n",
        event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}),
        event(result, "event: message"),
    )

    assert await ask(lambda _: events(*blocks)) == result


async def test_a_compressed_answer_is_understood():
    body = gzip.compress(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    got = await ask(lambda _: http(body, "200 OK", "application/json", "Content-Encoding: gzip"))

    assert got == {"jsonrpc": "2.0", "id": 1, "result": {}}


BOMB = gzip.compress(b"0" * (33 * 1024**2), 1)


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (BOMB, "gzip"),
        (gzip.compress(BOMB), "gzip, gzip"),
        (gzip.compress(gzip.compress(BOMB)), "gzip, gzip, gzip"),
        (BOMB, "gzip\r\nContent-Encoding: gzip"),
        (b"\x1b\x00", "br"),
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_small_answer_that_becomes_a_large_one_is_refused(body: bytes, encoding: str, kind: str):
    tracemalloc.start()
    try:
        with pytest.raises(UpstreamUnreadable, match="decompressed"):
            await ask(lambda _: http(body, "200 OK", kind, f"Content-Encoding: {encoding}"))
        assert tracemalloc.get_traced_memory()[1] < 80 * 1024**2
    finally:
        tracemalloc.stop()


async def test_fifty_megabytes_pass():
    text = "0123456789" * 5_000_000
    got = await ask(lambda heard: answer(heard, {"content": [{"type": "text", "text": text}]}), timeout_s=60)

    assert got == {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}]}}


async def test_ten_thousand_levels_pass_unread():
    body = b'{"jsonrpc":"2.0","id":1,"result":' + b'{"a":[' * 5000 + b"]}" * 5000 + b"}"

    assert encode(await ask(lambda _: http(body))) == body


async def test_many_requests_at_once_each_get_their_own_answer():
    async with client_of(lambda heard: answer(heard, heard.message["params"])) as (client, _):
        got = await asyncio.gather(*(client.forward({**CALL, "params": {"n": n}}, PATIENCE_S) for n in range(80)))

    assert [g and g["result"] for g in got] == [{"n": n} for n in range(80)]


async def test_a_server_that_is_down_is_unreachable():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = PlainHttp("files", f"http://127.0.0.1:{taken.getsockname()[1]}/rpc")
        with pytest.raises(UpstreamUnreachable, match="files cannot be reached: start it"):
            await client.forward(CALL, PATIENCE_S)
        await client.close()


async def test_a_server_that_says_nothing_times_out():
    async def silence(_: Heard) -> bytes:
        await asyncio.sleep(600)
        return b""

    with pytest.raises(UpstreamTimeout, match=r"files did not answer within 0\.2 s"):
        await ask(silence, timeout_s=0.2)


async def test_a_server_that_stalls_in_the_middle_times_out():
    async def stall(_: Heard) -> list[bytes]:
        return [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"]

    with pytest.raises(UpstreamTimeout):
        await ask(stall, timeout_s=0.3)


@pytest.mark.parametrize(
    ("reply", "error", "problem"),
    [
        (b"", UpstreamUnreachable, "broke before it responded"),
        (b"not http at all\r\n\r\n", UpstreamUnreachable, "broke before it responded"),
        (http(b"<html>hello</html>", kind="text/html"), UpstreamUnreadable, "is not JSON"),
        (http(b'{"jsonrpc":"2.0","id":1,"result":'), UpstreamUnreadable, "is not JSON"),
        (http(b""), UpstreamUnreadable, "is not JSON"),
        (http(b'"hello"'), UpstreamUnreadable, "not JSON-RPC"),
        (http(b"[1]"), UpstreamUnreadable, "not JSON-RPC"),
        (http(b"[]"), UpstreamUnreadable, "to another request"),
        (http(b'{"jsonrpc":"2.0","id":2,"result":{}}'), UpstreamUnreadable, "to another request"),
        (http(b'{"jsonrpc":"2.0","method":"ping","id":1}'), UpstreamUnreadable, "to another request"),
        (http(b'{"ok":true}'), UpstreamUnreadable, "to another request"),
        (ACCEPTED, UpstreamUnreadable, "is not JSON"),
        (http(b"xx", "200 OK", "application/json", "Content-Encoding: gzip"), UpstreamUnreadable, "decompressed"),
        (http(b"no", "500 Internal Server Error", "text/plain"), UpstreamError, "answered HTTP 500"),
        (http(b'{"detail":"no"}', "401 Unauthorized"), UpstreamError, "answered HTTP 401"),
        (http(b"", "302 Found", "text/plain", "Location: http://127.0.0.1:1/"), UpstreamError, "answered HTTP 302"),
        (http(b'{"jsonrpc":"2.0","id":2,"error":{}}', "404 Not Found"), UpstreamError, "answered HTTP 404"),
    ],
)
async def test_every_other_answer_is_an_error_that_says_why(reply: bytes, error: type[KimiProxyError], problem: str):
    with pytest.raises(error, match=problem) as caught:
        await ask(lambda _: reply)

    assert type(caught.value).rpc_code == error.rpc_code


@pytest.mark.parametrize(
    "blocks",
    [
        (),
        (b": nothing\n\n",),
        (event({"jsonrpc": "2.0", "id": 99, "result": {}}),),
        (b"data: {not json\n\n",),
        ("id: \u00e9\nretry: 1\ndata:\n\n".encode(),),
    ],
)
async def test_a_stream_without_the_answer_is_unreadable(blocks: tuple[bytes, ...]):
    with pytest.raises(UpstreamUnreadable):
        await ask(lambda _: events(*blocks))


async def test_an_answer_that_is_nested_without_end_is_refused_at_once():
    """Half a million levels held the event loop for 2 s."""
    deep = b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 500_000 + b"]" * 500_000 + b"}"
    began = time.process_time()
    with pytest.raises(UpstreamUnreadable):
        await ask(lambda _: http(deep))
    assert time.process_time() - began < 1


async def test_after_every_fault_the_next_call_works():
    faults: list[Script] = [
        lambda _: b"",
        lambda _: http(b"<html>"),
        lambda _: http(b"", "503 Service Unavailable"),
        lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{",
        lambda heard: answer(heard, "fine"),
    ]
    async with client_of(chain(*faults)) as (client, _):
        for _ in faults[:-1]:
            with pytest.raises(UpstreamError):
                await client.forward(CALL, 0.5)

        assert await client.forward(CALL, PATIENCE_S) == {"jsonrpc": "2.0", "id": 1, "result": "fine"}


async def test_an_endless_answer_is_given_up():
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 300000000\r\n\r\n"

    def endless(_: Heard) -> list[bytes]:
        return [head, *([b"[" * 1_000_000] * 300)]

    with pytest.raises(UpstreamUnreadable, match="exceeds 134217728 bytes"):
        await ask(endless, timeout_s=60)


async def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    assert await ask(lambda heard: answer(heard, {})) == {"jsonrpc": "2.0", "id": 1, "result": {}}


def knows_tools_alone(heard: Heard) -> Pieces:
    match heard.message:
        case {"method": "tools/list"}:
            return answer(heard, {"tools": [{"name": "read"}]})
        case {"id": _}:
            return failure(heard, -32601, "Method not found")
    return http(b"what is that?", "400 Bad Request")


async def test_what_clients_of_either_protocol_begin_with_is_answered_for_a_server_that_knows_only_its_tools():
    def asking(method: str, **params: JsonValue) -> JsonObject:
        return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}

    async with client_of(knows_tools_alone) as (client, _):
        begun = await client.forward(asking("initialize", protocolVersion="2025-11-25", capabilities={}), PATIENCE_S)
        noted = await client.forward({"jsonrpc": "2.0", "method": "notifications/initialized"}, PATIENCE_S)
        alive = await client.forward(asking("ping"), PATIENCE_S)
        found = await client.forward(add_envelope(asking("server/discover")), PATIENCE_S)
        listed = await client.forward(asking("tools/list"), PATIENCE_S)
        other = await client.forward(asking("resources/list"), PATIENCE_S)

    assert begun is not None and begun["id"] == 7
    assert begun["result"] == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "files", "version": "0"},
    }
    assert (noted, alive) == (None, {"jsonrpc": "2.0", "id": 7, "result": {}})
    assert found is not None and "result" in found
    assert listed is not None and listed["result"] == {"tools": [{"name": "read"}]}
    assert other is not None and "error" in other
