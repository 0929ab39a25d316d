"""A server that speaks MCP over StreamableHttp HTTP, in either era."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.support.upstream import (
    ACCEPTED,
    HELLO,
    Heard,
    Pieces,
    Script,
    Upstream,
    answer,
    chain,
    event,
    events,
    failure,
    handshake,
    http,
    scripted,
)

from kimi_proxy.core import jsonrpc
from kimi_proxy.core.errors import UpstreamError, UpstreamTimeout, UpstreamUnreachable, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.proxy.mcp.http import StreamableHttp

PATIENCE_S = 60.0
VERSION = "io.modelcontextprotocol/protocolVersion"
DISCOVERED: JsonObject = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "instructions": "be kind",
    "resultType": "complete",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "new", "version": "2"}},
}


def call(name: str = "read", call_id: JsonValue = 1) -> JsonObject:
    return {"jsonrpc": "2.0", "id": call_id, "method": "tools/call", "params": {"name": name}}


@asynccontextmanager
async def client_of(script: Script) -> AsyncIterator[tuple[StreamableHttp, Upstream]]:
    async with scripted(script) as upstream:
        client = StreamableHttp("files", upstream.url, PATIENCE_S)
        try:
            yield client, upstream
        finally:
            await client.close()


def echo(heard: Heard) -> bytes:
    return answer(heard, {"params": heard.message.get("params"), "id": heard.message["id"]})


def stateless(rest: Script) -> Script:
    return lambda heard: answer(heard, DISCOVERED) if heard.asked == "server/discover" else rest(heard)


class TestHandshakeEra:
    async def test_the_session_is_made_once_and_carried_by_every_request(self):
        async with client_of(handshake(echo)) as (client, upstream):
            await client.forward(call(), PATIENCE_S)
            await client.forward(call(), PATIENCE_S)

        assert upstream.asked == [
            "server/discover",
            "initialize",
            "notifications/initialized",
            "tools/call",
            "tools/call",
            "DELETE",
        ]
        for heard in upstream.heard[2:]:
            assert heard.headers["mcp-session-id"] == "s-1"
            assert heard.headers["mcp-protocol-version"] == "2025-11-25"
        assert all("text/event-stream" in h.headers["accept"] for h in upstream.heard[:-1])

    async def test_a_server_without_sessions_is_fine(self):
        async with client_of(handshake(echo, session=None)) as (client, upstream):
            await client.forward(call(), PATIENCE_S)

        assert "mcp-session-id" not in upstream.heard[3].headers
        assert "DELETE" not in upstream.asked

    async def test_many_first_calls_share_one_session(self):
        async with client_of(handshake(echo)) as (client, upstream):
            await asyncio.gather(*(client.forward(call(), PATIENCE_S) for _ in range(20)))

        assert upstream.asked.count("initialize") == 1

    async def test_ids_are_ours_on_the_wire_and_the_clients_again_in_the_answer(self):
        async with client_of(handshake(echo)) as (client, _):
            got = await asyncio.gather(*(client.forward(call(str(n), "same"), PATIENCE_S) for n in range(40)))

        assert {g["id"] for g in got if g} == {"same"}
        assert [g["result"]["params"]["name"] for g in got if g] == [str(n) for n in range(40)]  # type: ignore[index,call-overload]
        assert len({g["result"]["id"] for g in got if g}) == 40  # type: ignore[index,call-overload]

    @pytest.mark.parametrize(
        "lost",
        [
            http(b"Session not found", "404 Not Found", "text/plain"),
            http(b'{"jsonrpc":"2.0","error":{"code":-32001,"message":"gone"}}', "404 Not Found"),
            http(b'{"error":{"message":"Bad Request: No valid session ID"}}', "400 Bad Request"),
        ],
    )
    async def test_a_lost_session_is_made_anew_once(self, lost: bytes):
        sessions = iter(["s-1", "s-2"])

        def restarted(heard: Heard) -> Pieces:
            return lost if heard.headers["mcp-session-id"] == "s-1" else echo(heard)

        def server(heard: Heard) -> Pieces | object:
            return handshake(restarted, next(sessions) if heard.asked == "initialize" else "-")(heard)

        async with client_of(server) as (client, upstream):  # type: ignore[arg-type]
            got = await client.forward(call(), PATIENCE_S)

        assert got is not None
        assert got["id"] == 1
        assert upstream.asked.count("initialize") == 2

    async def test_a_session_that_is_lost_again_and_again_is_an_error(self):
        gone = http(b"Session not found", "404 Not Found", "text/plain")
        async with client_of(handshake(lambda _: gone)) as (client, upstream):
            with pytest.raises(UpstreamError, match="files answered HTTP 404"):
                await client.forward(call(), PATIENCE_S)

        assert upstream.asked.count("tools/call") == 2

    async def test_an_error_about_the_call_does_not_cost_the_session(self):
        async with client_of(handshake(lambda h: failure(h, -32602, "bad session name", "400 Bad Request"))) as (
            client,
            upstream,
        ):
            got = await client.forward(call(), PATIENCE_S)

        assert got is not None
        assert got["error"] == {"code": -32602, "message": "bad session name"}
        assert upstream.asked.count("initialize") == 1

    async def test_a_clients_own_hello_is_answered_from_memory(self):
        hello: JsonObject = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "x"}}
        async with client_of(handshake(echo)) as (client, upstream):
            got = await client.forward(hello, PATIENCE_S)
            nothing = await client.forward({"jsonrpc": "2.0", "method": "notifications/initialized"}, PATIENCE_S)

        assert got == {"jsonrpc": "2.0", "id": 0, "result": HELLO}
        assert nothing is None
        assert upstream.asked.count("initialize") == 1

    async def test_a_client_of_the_stateless_era_is_not_promised_what_it_could_not_hear(self):
        able = {"tools": {"listChanged": True}, "resources": {"subscribe": True, "listChanged": True}, "logging": {}}
        hello: JsonObject = {**HELLO, "capabilities": able}
        script = chain(lambda _: http(b"", "400 Bad Request"), lambda h: answer(h, hello), lambda _: ACCEPTED)
        async with client_of(script) as (client, _):
            got = await client.forward({"jsonrpc": "2.0", "id": 1, "method": "server/discover"}, PATIENCE_S)

        assert got is not None
        assert got["result"]["capabilities"] == {"tools": {}, "resources": {}}  # type: ignore[index,call-overload]

    async def test_a_notification_is_passed_on(self):
        async with client_of(handshake(lambda _: ACCEPTED)) as (client, upstream):
            assert await client.forward({"jsonrpc": "2.0", "method": "notifications/roots"}, PATIENCE_S) is None

        assert "notifications/roots" in upstream.asked

    async def test_a_server_that_refuses_the_handshake_says_why(self):
        async with client_of(lambda heard: failure(heard, -32603, "not today")) as (client, _):
            with pytest.raises(UpstreamError, match="refused to start a session: not today"):
                await client.forward(call(), PATIENCE_S)

    async def test_a_server_that_is_closed_to_us_says_so(self):
        async with client_of(lambda _: http(b"token please", "401 Unauthorized", "text/plain")) as (client, _):
            with pytest.raises(UpstreamError, match="files answered HTTP 401"):
                await client.forward(call(), PATIENCE_S)

    async def test_after_a_failed_handshake_the_next_call_tries_again(self):
        script = chain(lambda _: http(b"", "503 Service Unavailable"), lambda _: b"", handshake(echo))
        async with client_of(script) as (client, _):
            with pytest.raises(UpstreamUnreachable):
                await client.forward(call(), PATIENCE_S)

            assert await client.forward(call(), PATIENCE_S) is not None


def final(heard: Heard, result: JsonValue = "done") -> JsonValue:
    return {"jsonrpc": "2.0", "id": heard.message["id"], "result": result}


class TestEvents:
    async def ask(self, script: Callable[[Heard], Pieces], timeout_s: float = PATIENCE_S) -> JsonValue:
        async with client_of(handshake(script)) as (client, upstream):
            self.upstream = upstream
            got = await client.forward(call(), timeout_s)
        assert got is not None
        return got["result"]

    async def test_the_answer_follows_a_priming_event_and_notifications(self):
        progress: JsonValue = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}

        got = await self.ask(
            lambda h: events(b"id: 1\ndata:\n\n", event(progress), event(progress), event(final(h), "id: 2"))
        )

        assert got == "done"

    async def test_an_event_of_many_megabytes_passes(self):
        assert await self.ask(lambda h: events(event(final(h, "x" * 20_000_000)))) == "x" * 20_000_000

    async def test_an_event_cut_into_single_bytes_passes(self):
        assert await self.ask(lambda h: events(*(bytes([b]) for b in event(final(h, "é\u2028"))))) == "é\u2028"

    async def test_the_servers_questions_are_answered_on_the_side(self):
        questions: list[JsonValue] = [
            {"jsonrpc": "2.0", "id": 7, "method": "ping"},
            {"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage", "params": {}},
            {"jsonrpc": "2.0", "id": "e", "method": "elicitation/create", "params": {}},
        ]

        def script(heard: Heard) -> Pieces:
            if heard.asked == "response":
                return ACCEPTED
            return events(*(event(q) for q in questions), event(final(heard)))

        assert await self.ask(script) == "done"
        replies = [h.message for h in self.upstream.heard if h.asked == "response"]
        assert [(r["id"], "result" in r) for r in replies] == [(7, True), ("s", False), ("e", False)]
        assert replies[1]["error"]["code"] == -32601  # type: ignore[index,call-overload]

    async def test_a_stream_that_closes_early_is_taken_up_where_it_ended(self):
        asked: list[Heard] = []

        def script(heard: Heard) -> Pieces:
            if heard.method == "GET":
                return events(event(final(asked[0], heard.headers["last-event-id"])))
            asked.append(heard)
            return events(b"id: e-1\nretry: 10\ndata:\n\n")

        assert await self.ask(script) == "e-1"

    async def test_a_stream_that_closes_early_for_good_is_unreadable(self):
        def script(heard: Heard) -> Pieces:
            if heard.method == "GET":
                return http(b"", "405 Method Not Allowed")
            return events(b"id: e-1\nretry: 10\ndata:\n\n")

        with pytest.raises(UpstreamUnreadable, match="without a response"):
            await self.ask(script)

    async def test_a_stream_that_never_says_anything_times_out(self):
        async def endless(heard: Heard) -> list[bytes]:
            return events(b": still here\n\n")[:-1]

        with pytest.raises(UpstreamTimeout):
            await self.ask(endless, 0.3)  # type: ignore[arg-type]


class TestStatelessEra:
    async def test_every_request_carries_the_envelope_in_body_and_headers(self):
        async with client_of(stateless(echo)) as (client, upstream):
            await client.forward(call("outil é"), PATIENCE_S)
            await client.forward({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, PATIENCE_S)

        assert upstream.asked == ["server/discover", "tools/list", "tools/call", "tools/list"]
        for heard in upstream.heard:
            meta = heard.message["params"]["_meta"]  # type: ignore[index,call-overload]
            assert meta[VERSION] == heard.headers["mcp-protocol-version"] == "2026-07-28"
            assert heard.headers["mcp-method"] == heard.asked
            assert "mcp-session-id" not in heard.headers
        assert upstream.heard[2].headers["mcp-name"] == "=?base64?b3V0aWwgw6k=?="
        assert "mcp-name" not in upstream.heard[3].headers

    async def test_arguments_that_the_tool_marks_are_repeated_in_headers(self):
        schema = {"properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "other": {"type": "string"}}}
        broken = {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
        tools: JsonValue = [{"name": "read", "inputSchema": schema}, {"name": "bad", "inputSchema": broken}]

        def server(heard: Heard) -> Pieces:
            return answer(heard, {"tools": tools} if heard.asked == "tools/list" else {})

        message = {**call(), "params": {"name": "read", "arguments": {"region": "à côté", "other": "x"}}}
        async with client_of(stateless(server)) as (client, upstream):
            await client.forward(message, PATIENCE_S)
            await client.forward(message, PATIENCE_S)
            listed = await client.forward({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, PATIENCE_S)

        assert upstream.asked == ["server/discover", "tools/list", "tools/call", "tools/call", "tools/list"]
        assert [h.headers.get("mcp-param-region") for h in upstream.heard[2:4]] == ["=?base64?w6AgY8O0dMOp?="] * 2
        assert listed is not None
        assert [t["name"] for t in listed["result"]["tools"]] == ["read"]  # type: ignore[index,call-overload]

    async def test_a_clients_own_envelope_passes_as_it_is(self):
        meta = {VERSION: "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        message = {**call(), "params": {"name": "read", "_meta": meta}}
        async with client_of(stateless(echo)) as (client, upstream):
            await client.forward(message, PATIENCE_S)

        assert upstream.heard[-1].message["params"] == message["params"]

    async def test_a_client_of_the_other_era_gets_a_hello_made_from_the_discovery(self):
        hello: JsonObject = {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
        async with client_of(stateless(echo)) as (client, _):
            got = await client.forward(hello, PATIENCE_S)
            pinged = await client.forward({"id": 1, "method": "ping"}, PATIENCE_S)

        assert got is not None
        assert got["result"] == {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "instructions": "be kind",
            "serverInfo": {"name": "new", "version": "2"},
        }
        assert pinged == {"jsonrpc": "2.0", "id": 1, "result": {}}

    async def test_a_discovery_is_passed_on_as_it_was_made(self):
        async with client_of(stateless(echo)) as (client, upstream):
            got = await client.forward({"id": 0, "method": "server/discover"}, PATIENCE_S)

        assert json.dumps(got) == json.dumps({"jsonrpc": "2.0", "id": 0, "result": DISCOVERED})
        assert upstream.asked == ["server/discover"]

    async def test_a_version_that_is_refused_and_offered_at_once_is_asked_for_again(self):
        offer = {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}}
        refusal = http(json.dumps({"jsonrpc": "2.0", "id": 0, "error": offer}).encode(), "400 Bad Request")
        async with client_of(chain(lambda _: refusal, stateless(echo))) as (client, upstream):
            await client.forward(call(), PATIENCE_S)

        assert upstream.asked == ["server/discover", "server/discover", "tools/list", "tools/call"]

    async def test_a_result_of_a_stateless_server_is_not_touched(self):
        async with client_of(stateless(lambda h: answer(h, {"resultType": "input_required"}))) as (client, _):
            got = await client.forward(call(), PATIENCE_S)

        assert got == {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "input_required"}}


async def test_what_comes_before_the_answer_is_told_to_whoever_waits():
    progress: JsonObject = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 5}}

    def stream(heard: Heard) -> Pieces:
        result = {"jsonrpc": "2.0", "id": heard.message["id"], "result": {}}
        return events(event(progress), event(result))

    told: list[JsonObject] = []
    async with client_of(handshake(stream)) as (client, _):
        await client.forward(call(), PATIENCE_S)
        jsonrpc.listen(told.append)
        answered = await client.forward(call(), PATIENCE_S)

    assert told == [progress]
    assert answered == {"jsonrpc": "2.0", "id": 1, "result": {}}
