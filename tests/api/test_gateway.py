"""The gateway over real HTTP, in front of servers on raw sockets and in child processes."""

import asyncio
import json
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from tests.support.api.gateway import LONG, call, serve, toml
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.processes import until
from tests.support.upstream import Heard, answer, failure, handshake, http, scripted

from kimi_proxy.core.json import MAX_READ_BYTES, JsonObject, JsonValue
from kimi_proxy.core.markers import MaskMarker, read_mask
from kimi_proxy.services.store.sqlite.store import store_path

STDIO_SERVER = str(Path(__file__).parents[1] / "support" / "stdio_server.py")
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


def program(name: str = "p", *arguments: str) -> str:
    args = json.dumps(["-I", "-S", STDIO_SERVER, *arguments])
    return f'[mcp.servers.{name}]\ncommand = "{sys.executable}"\nargs = {args}\n'


async def test_a_long_answer_is_masked_and_recovered_through_the_same_server(tmp_path: Path):
    async with scripted(serve) as upstream, proxy(tmp_path, toml(upstream.port)) as world:
        shown = await world.call("s", "read")
        marker = read_mask(json.dumps(shown))
        assert marker is not None
        back = await world.call("s", "recover_text", id=marker.mask_id)

    assert len(json.dumps(shown)) < 7000
    assert back == {"content": [{"type": "text", "text": LONG}], "isError": False}


async def test_a_text_that_was_pruned_for_the_goal_names_its_server_and_tool(tmp_path: Path):
    lines = [f"2026-01-01 12:00:00 INFO request {i} served" for i in range(3000)]
    lines[1500] = "2026-01-01 12:00:00 ERROR the database said no"
    log: JsonValue = {"content": [{"type": "text", "text": "\n".join(lines)}]}
    more = "pruning = { enabled = true, max_prune_ratio = 0.99, min_keep_lines = 5, timeout_ms = 60000 }"
    says = handshake(lambda heard: answer(heard, log))
    async with scripted(says) as upstream, proxy(tmp_path, toml(upstream.port, more=more)) as world:
        await world.call("s", "read", path="server.log", goal="why does the database fail")
        listed = (await world.http.get("/api/mask")).json()["masks"]
        cuts = (await world.http.get("/api/cuts")).json()["cuts"]

    assert {(each["id"][:4], each["server"], each["tool"]) for each in listed} == {("prn_", "s", "read")}
    assert {(cut["via"], cut["kind"], cut["server"]) for cut in cuts} == {("gateway", "prune", "s")}


async def test_a_content_hash_reads_the_text_and_the_list_shows_how_it_begins(tmp_path: Path):
    async with scripted(serve) as upstream, proxy(tmp_path, toml(upstream.port)) as world:
        await world.call("s", "read")
        found = await world.http.get(f"/api/mask/{sha256(LONG.encode()).hexdigest()}")
        other = await world.http.get(f"/api/mask/{sha256(b'other').hexdigest()}")
        listed = (await world.http.get("/api/mask")).json()["masks"]
    with closing(sqlite3.connect(store_path(tmp_path))) as connection:
        rows = connection.execute("SELECT preview, content_hash FROM masked_content").fetchall()

    assert (found.status_code, found.json()["text"]) == (200, LONG)
    assert (other.status_code, other.json()["error"]["code"]) == (404, "prune_id_not_found")
    assert [(each["server"], each["tool"], each["preview"]) for each in listed] == [("s", "read", LONG[:200])]
    assert rows == [(LONG[:200], sha256(LONG.encode()).hexdigest())]


async def test_an_unchanged_answer_keeps_its_fields_their_order_and_its_id(tmp_path: Path):
    body = '{"result":{"z":1,"a":{"é":[1.5,null]}},"x-extra":{"b":2},"id":"A","jsonrpc":"2.0"}'
    async with scripted(lambda _: http(body.encode())) as upstream, proxy(tmp_path, toml(upstream.port)) as world:
        response = await world.rpc("s", {**call(), "id": "A"})

    assert response.text == body
    assert response.headers["content-type"] == "application/json"


async def test_a_long_answer_of_many_members_passes_byte_for_byte(tmp_path: Path):
    rows = ", ".join(f'{{"n": {n}, "é": [1.50]}}' for n in range(400_000))
    body = f'{{"jsonrpc":"2.0","id":1,"result":{{"rows": [{rows}]}}}}'.encode()
    assert len(body) > MAX_READ_BYTES
    async with scripted(lambda _: http(body)) as upstream, proxy(tmp_path, toml(upstream.port)) as world:
        response = await world.rpc("s", call())

    assert response.content == body
    assert response.headers["content-length"] == str(len(body))
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, -32700),
        (b"{", 400, -32700),
        (b'{"jsonrpc":"2.0"}', 400, -32600),
        (b'"text"', 400, -32600),
        (b"[]", 400, -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"x"}', 400, -32600),
        (b"[" * 500 + b"]" * 500, 400, -32700),
    ],
)
async def test_what_is_no_request_is_a_400(body: bytes, status: int, code: int, tmp_path: Path):
    async with proxy(tmp_path, "") as world:
        response = await world.http.post(
            "/api/mcp-gateway/fast-filesystem/rpc", content=body, headers={"content-type": "application/json"}
        )

    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("tool", "status", "code"),
    [
        ("hang_up", 502, -32002),
        ("html", 502, -32003),
        ("wrong_id", 502, -32003),
        ("status", 502, -32603),
        ("unknown", 200, -32001),
    ],
)
@pytest.mark.parametrize("door", ["rpc", "mcp"])
async def test_every_failure_of_a_server_has_its_code_and_status(
    tool: str, status: int, code: int, door: str, tmp_path: Path
):
    async with scripted(serve) as upstream, proxy(tmp_path, toml(upstream.port)) as world:
        response = await world.rpc("s", call(tool), door)
        after = await world.rpc("s", call("echo", n=1), door)

    assert (response.status_code, response.json()["error"]["code"], response.json()["id"]) == (status, code, 1)
    assert after.json()["result"] == {"n": 1}


async def test_a_server_that_is_down_is_a_502_and_one_that_is_slow_a_504(tmp_path: Path):
    async def silence(_: Heard) -> bytes:
        await asyncio.sleep(600)
        return b""

    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        down = toml(reserved.getsockname()[1], "down")
    async with scripted(silence) as upstream:
        settings = down + toml(upstream.port, "slow", more="timeout_s = 0.3")
        async with proxy(tmp_path, settings) as world:
            refused, late = await world.rpc("down", call()), await world.rpc("slow", call())

    assert (refused.status_code, refused.json()["error"]["code"]) == (502, -32002)
    assert (late.status_code, late.json()["error"]["code"]) == (504, -32002)
    assert "slow did not answer within 0.3 s" in late.json()["error"]["message"]


@pytest.mark.parametrize("message", [call(), [call()]])
async def test_a_server_that_nobody_knows_is_a_404(message: JsonValue, tmp_path: Path):
    async with proxy(tmp_path, "") as world:
        response = await world.rpc("nobody", message)

    assert (response.status_code, response.json()["error"]["code"]) == (404, -32001)
    assert "fast-filesystem" in response.json()["error"]["message"]


async def test_notifications_are_accepted_with_202_and_no_body(tmp_path: Path):
    note: JsonObject = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    async with scripted(serve) as upstream, proxy(tmp_path, toml(upstream.port)) as world:
        for message in (note, [note, note], {"jsonrpc": "2.0", "id": 1, "result": {}}):
            for door in ("rpc", "mcp"):
                response = await world.rpc("s", message, door)
                assert (response.status_code, response.content) == (202, b"")


async def test_a_batch_is_answered_with_a_batch(tmp_path: Path):
    async with scripted(serve) as upstream, proxy(tmp_path, toml(upstream.port)) as world:
        response = await world.rpc("s", [call("echo", n=1), {**call("echo", n=2), "id": "x"}, call("html")])

    assert response.status_code == 200
    assert [(r["id"], r.get("result") or r["error"]["code"]) for r in response.json()] == [
        (1, {"n": 1}),
        ("x", {"n": 2}),
        (1, -32003),
    ]


async def test_events_and_deep_answers_pass(tmp_path: Path):
    async with scripted(serve) as upstream, proxy(tmp_path, toml(upstream.port)) as world:
        streamed = await world.call("s", "stream")
        deep = await world.rpc("s", call("deep"))

    assert read_mask(json.dumps(streamed)) is not None
    assert deep.content == b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 10_000 + b"]" * 10_000 + b"}"


@pytest.mark.parametrize("alter", [str, str.lower, lambda marker: marker.replace("[", "［ ")])
async def test_a_marker_is_not_written_back(tmp_path: Path, alter: Callable[[str], str]):
    marker = alter(str(MaskMarker("msk_0123456789abcdef", 23_000, 2000, 2000)))
    async with scripted(serve) as upstream, proxy(tmp_path, toml(upstream.port)) as world:
        response = await world.rpc("s", call("write", path="a", content=f"head{marker}tail"))

    assert (response.status_code, response.json()["error"]["code"]) == (200, -32602)
    assert "recover_text with id 'msk_0123456789abcdef'" in response.json()["error"]["message"]
    assert upstream.heard == []


async def test_get_is_not_allowed_and_other_pages_are_kept_out(tmp_path: Path):
    async with proxy(tmp_path, "") as world:
        for door in ("rpc", "mcp"):
            assert (await world.http.get(f"/api/mcp-gateway/json-query/{door}")).status_code == 405
        foreign = {"origin": "https://evil.example"}
        for method, path in (
            ("POST", "/api/mcp-gateway/json-query/mcp"),
            ("GET", "/api/mask/msk_0123456789abcdef"),
            ("GET", "/health"),
        ):
            assert (await world.http.request(method, path, headers=foreign)).status_code == 403


async def test_health_names_the_proxy(tmp_path: Path):
    async with proxy(tmp_path, "") as world:
        health = (await world.http.get("/health")).json()

    assert (health["status"], health["server"]) == ("healthy", "kimi-proxy")


async def test_with_a_token_only_health_is_open(tmp_path: Path):
    async with proxy(tmp_path, "", KIMI_PROXY_TOKEN="t0ken") as world:
        assert (await world.http.get("/health")).status_code == 200
        assert (await world.rpc("json-query", call())).status_code == 401
        assert (await world.http.get("/api/mask/x")).status_code == 401
        world.http.headers["authorization"] = "Bearer t0ken"
        assert (await world.http.get("/api/mask/x")).status_code == 404


class TestMasks:
    async def masked(self, world: Proxy) -> str:
        marker = read_mask(json.dumps(await world.call("s", "read")))
        assert marker is not None
        return marker.mask_id

    async def test_the_original_is_read_whole_or_in_part(self, tmp_path: Path):
        lines = LONG.split("\n")
        async with scripted(serve) as upstream, proxy(tmp_path, toml(upstream.port)) as world:
            url = f"/api/mask/{await self.masked(world)}"
            parts = {
                query: (await world.http.get(url + query)).json()
                for query in ("", "?lines=2-3", "?lines=3000-", "?lines=1", "?chars=5-9", "?chars=5", "?chars=7-")
            }

        assert parts[""] == {
            "id": url.rpartition("/")[2],
            "original_chars": len(LONG),
            "numbering": "lines",
            "text": LONG,
        }
        assert {query: part["text"] for query, part in parts.items() if query} == {
            "?lines=2-3": "\n".join(lines[1:3]),
            "?lines=3000-": "\n".join(lines[2999:]),
            "?lines=1": lines[0],
            "?chars=5-9": LONG[5:9],
            "?chars=5": LONG[5],
            "?chars=7-": LONG[7:],
        }

    @pytest.mark.parametrize(
        ("query", "status", "code"),
        [
            ("?lines=0-3", 400, "invalid_range"),
            ("?lines=9-3", 400, "invalid_range"),
            ("?lines=99999", 400, "invalid_range"),
            ("?lines=a", 400, "invalid_params"),
            ("?chars=-5", 400, "invalid_params"),
            ("?lines=1&chars=2", 400, "invalid_range"),
        ],
    )
    async def test_a_part_that_means_nothing_is_a_400(self, query: str, status: int, code: str, tmp_path: Path):
        async with scripted(serve) as upstream, proxy(tmp_path, toml(upstream.port)) as world:
            response = await world.http.get(f"/api/mask/{await self.masked(world)}{query}")

        assert (response.status_code, response.json()["error"]["code"]) == (status, code)

    @pytest.mark.parametrize("mask_id", ["msk_0000000000000000", "x", "%2e%2e", "msk_0000000000000000%00"])
    async def test_an_id_that_was_never_given_out_is_a_404(self, mask_id: str, tmp_path: Path):
        async with proxy(tmp_path, "") as world:
            assert (await world.http.get(f"/api/mask/{mask_id}")).status_code == 404


class TestMcpDoor:
    async def test_a_client_of_the_handshake_era_finds_a_server(self, tmp_path: Path):
        async with proxy(tmp_path, program()) as world:
            params: JsonValue = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c"}}
            hello = await world.rpc("p", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, "mcp")
            ready = await world.rpc("p", {"jsonrpc": "2.0", "method": "notifications/initialized"}, "mcp")
            tools = await world.rpc("p", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, "mcp")

        assert hello.json()["result"]["protocolVersion"] == "2025-06-18"
        assert hello.json()["result"]["serverInfo"]["name"] == "script"
        assert ready.status_code == 202
        assert [tool["name"] for tool in tools.json()["result"]["tools"]] == ["echo", "recover_text"]

    @pytest.mark.parametrize("door", ["rpc", "mcp"])
    async def test_progress_comes_ahead_of_the_answer(self, door: str, tmp_path: Path):
        asked = call("progress", who="me")
        asked["params"]["_meta"] = {"progressToken": "mine"}  # type: ignore[index,call-overload]
        plain, eager = {"accept": "application/json"}, {"accept": "application/json, text/event-stream"}
        async with proxy(tmp_path, program()) as world:
            url = f"/api/mcp-gateway/p/{door}"
            streamed = await world.http.post(url, json=asked, headers=eager)
            answered = await world.http.post(url, json=asked, headers=plain)
            silent = await world.http.post(url, json={**asked, "method": "tools/list"}, headers=eager)

        events = [json.loads(line.removeprefix("data: ")) for line in streamed.text.split("\n") if "data: " in line]
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert [notice["params"] for notice in events[:-1]] == [
            {"progressToken": "mine", "progress": step, "message": "me"} for step in range(3)
        ]
        assert (events[-1]["id"], "result" in events[-1]) == (1, True)
        assert [got.headers["content-type"] for got in (answered, silent)] == ["application/json"] * 2

    async def test_a_listener_that_leaves_takes_its_question_back(self, tmp_path: Path):
        log = tmp_path / "log"
        asked = call("progress", steps=10_000)
        asked["params"]["_meta"] = {"progressToken": 1}  # type: ignore[index,call-overload]
        headers = {"accept": "text/event-stream"}
        async with proxy(tmp_path, program("p", "", str(log))) as world:
            async with world.http.stream("POST", "/api/mcp-gateway/p/mcp", json=asked, headers=headers) as stream:
                async for line in stream.aiter_lines():
                    if line:
                        break
            await until(lambda: "notifications/cancelled" in log.read_text())

    async def enveloped(self, world: Proxy, method: str, headers: dict[str, str] | None = None, **params: JsonValue):
        meta: JsonValue = {VERSION: "2026-07-28", CAPABILITIES: {}}
        message: JsonValue = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        told = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
        return await world.http.post("/api/mcp-gateway/p/mcp", json=message, headers={**told, **(headers or {})})

    async def test_a_client_of_the_stateless_era_finds_one_too(self, tmp_path: Path):
        async with proxy(tmp_path, program()) as world:
            found = await self.enveloped(world, "server/discover")
            tools = await self.enveloped(world, "tools/list")
            called = await self.enveloped(world, "tools/call", {"mcp-name": "echo"}, name="echo", arguments={"a": 1})
            unknown = await self.enveloped(world, "no/such")

        assert found.json()["result"]["supportedVersions"] == ["2026-07-28"]
        assert tools.json()["result"]["resultType"] == "complete"
        assert called.json()["result"]["content"] == [{"type": "text", "text": '{"a": 1}'}]
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, -32601)

    @pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "resources/subscribe"])
    async def test_what_the_stateless_era_removed_is_a_404_there(self, method: str, tmp_path: Path):
        async with proxy(tmp_path, program()) as world:
            response = await self.enveloped(world, method)

        assert (response.status_code, response.json()["error"]["code"]) == (404, -32601)

    async def test_a_server_that_misses_a_capability_of_the_client_gets_its_400(self, tmp_path: Path):
        async with (
            scripted(lambda heard: failure(heard, -32021)) as upstream,
            proxy(tmp_path, toml(upstream.port, "p")) as world,
        ):
            told = await self.enveloped(world, "tools/call", {"mcp-name": "x"}, name="x", arguments={})

        assert (told.status_code, told.json()["error"]["code"]) == (400, -32021)

    async def test_an_envelope_that_contradicts_its_headers_is_refused(self, tmp_path: Path):
        async with proxy(tmp_path, program()) as world:
            other = await self.enveloped(world, "tools/call", {"mcp-name": "other"}, name="echo", arguments={})
            version = await self.enveloped(world, "tools/list", {"mcp-protocol-version": "2025-11-25"})

        assert (other.status_code, other.json()["error"]["code"]) == (400, -32020)
        assert (version.status_code, version.json()["error"]["code"]) == (400, -32020)


async def test_a_program_killed_in_the_middle_of_a_call_is_a_clear_error_and_the_next_call_works(tmp_path: Path):
    async with proxy(tmp_path, program()) as world:
        pid = await world.call("p", "pid")
        begun = tmp_path / "begun"
        waiting = asyncio.create_task(world.rpc("p", call("slow", seconds=600, begun=str(begun))))
        await until(begun.exists)
        os.kill(int(str(pid)), signal.SIGKILL)
        response = await waiting
        after = await world.call("p", "pid")

    assert (response.status_code, response.json()["error"]["code"]) == (502, -32002)
    assert "p ended with status -9" in response.json()["error"]["message"]
    assert after != pid


async def test_eighty_calls_of_four_clients_with_one_id_over_one_program(tmp_path: Path):
    async with proxy(tmp_path, program()) as world:

        async def client(number: int) -> list[JsonValue]:
            return list(
                await asyncio.gather(*(world.call("p", "slow", seconds=0.02, n=number * 20 + i) for i in range(20)))
            )

        got = await asyncio.gather(*(client(number) for number in range(4)))

    assert [result["n"] for answers in got for result in answers] == list(range(80))  # type: ignore[index,call-overload]


async def test_eighty_calls_with_one_id_over_one_session(tmp_path: Path):
    async with scripted(handshake(serve)) as upstream, proxy(tmp_path, toml(upstream.port, path="mcp")) as world:
        got = await asyncio.gather(*(world.call("s", "echo", n=n) for n in range(80)))

    assert [result["n"] for result in got] == list(range(80))  # type: ignore[index,call-overload]
    sent = [heard.message["id"] for heard in upstream.heard if heard.asked == "tools/call"]
    assert len(set(map(str, sent))) == 80


async def test_nothing_of_a_client_reaches_a_server_but_its_message(tmp_path: Path):
    secret = {"authorization": "Bearer client-secret", "cookie": "a=b", "x-api-key": "k", "x-forwarded-for": "1"}
    async with scripted(serve) as upstream, proxy(tmp_path, toml(upstream.port)) as world:
        world.http.headers.update(secret)
        await world.rpc("s", call("echo"))

    assert not set(secret) & set(upstream.heard[0].headers)
