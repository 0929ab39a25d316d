"""`/mcp`: both eras of the protocol, told apart request by request."""

import base64
import threading

import pytest
from tests.support.api import wire, world

from kimi_proxy.core import json
from kimi_proxy.core.json import JsonObject, JsonValue

MODERN = "2026-07-28"
META: JsonObject = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
OURS = {"io.modelcontextprotocol/serverInfo": {"name": "mcp-pruner", "version": "0.1.0"}}


def old(port: int, method: str, params: JsonObject | None = None) -> wire.Heard:
    headers = (("MCP-Protocol-Version", "2025-11-25"), ("Accept", "application/json, text/event-stream"))
    return wire.post(port, "/mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}, headers)


def headers_for(method: str, name: str | None = None) -> tuple[tuple[str, str], ...]:
    named = (("Mcp-Name", name),) if name is not None else ()
    return (("MCP-Protocol-Version", MODERN), ("Mcp-Method", method), *named)


def new(
    port: int,
    method: str,
    params: JsonObject | None = None,
    headers: tuple[tuple[str, str], ...] | None = None,
    meta: JsonValue = META,
) -> wire.Heard:
    given = dict(params or {})
    name = given.get("name", given.get("uri"))
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**given, "_meta": meta}}
    chosen = headers_for(method, name if isinstance(name, str) else None) if headers is None else headers
    return wire.post(port, "/mcp", message, chosen)


def result(heard: wire.Heard) -> JsonObject:
    match heard.json:
        case {"jsonrpc": "2.0", "id": 1, "result": dict(found)}:
            assert heard.status == 200
            return found
        case other:
            raise AssertionError(other)


# What the model reads when its call was wrong, in both eras


@pytest.mark.parametrize("era", [old, new])
@pytest.mark.parametrize(
    ("tool", "arguments", "code", "advice"),
    [
        ("prune_text", {}, "invalid_params", "call the tool again"),
        ("prune_text", {"text": "a", "ratio": 3}, "invalid_params", "'ratio'"),
        ("prune_text", {"text": "a", "extra": 3}, "invalid_params", "'extra'"),
        ("recover_text", {"prune_id": "prn_0"}, "prune_id_not_found", "copy the whole id from a marker"),
        ("recover_range", {"prune_id": "prn_expired"}, "prune_id_not_found", "has expired"),
        ("recover_text", {"prune_id": "prn_short"}, "invalid_range", "12 lines"),
        ("recover_text", {"prune_id": "prn_sick"}, "recovery_unavailable", "try again"),
    ],
)
def test_a_failed_call_tells_the_model_what_to_do(
    port: int, era: type[old], tool: str, arguments: JsonObject, code: str, advice: str
):
    found = result(era(port, "tools/call", {"name": tool, "arguments": arguments}))

    assert found["isError"] is True
    assert "structuredContent" not in found
    match found["content"]:
        case [{"type": "text", "text": str(text)}]:
            assert text.startswith(f"{code}: ")
            assert advice in text
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize(("era", "status"), [(old, 200), (new, 400)])
@pytest.mark.parametrize("params", [{"name": "nothing"}, {}, {"name": "health", "arguments": [1]}])
def test_an_unknown_tool_or_a_malformed_call_is_an_error_of_the_protocol(
    port: int, era: type[old], status: int, params: JsonObject
):
    heard = era(port, "tools/call", params)

    assert (heard.status, heard.error_code) == (status, -32602)


@pytest.mark.parametrize(("era", "status"), [(old, 200), (new, 500)])
def test_a_fault_of_ours_is_an_internal_error(port: int, era: type[old], status: int):
    heard = era(port, "tools/call", {"name": "broken", "arguments": {}})

    assert (heard.status, heard.error_code) == (status, -32603)
    assert b"secret" not in heard.body


@pytest.mark.parametrize(("era", "status"), [(old, 200), (new, 404)])
@pytest.mark.parametrize("method", ["nothing", "prune_text", "health", "resources/subscribe", "subscriptions/listen"])
def test_tools_are_no_methods_here(port: int, era: type[old], status: int, method: str):
    heard = era(port, method)

    assert (heard.status, heard.error_code) == (status, -32601)


@pytest.mark.parametrize("era", [old, new])
@pytest.mark.parametrize(
    ("method", "params"), [("resources/read", {"uri": "file:///x"}), ("prompts/get", {"name": "x"})]
)
def test_there_are_no_resources_and_no_prompts(port: int, era: type[old], method: str, params: JsonObject):
    match era(port, method, params).json:
        case {"error": {"code": -32602, "data": dict(data)}}:
            assert params.items() <= data.items()
        case other:
            raise AssertionError(other)


# 2024-11-05 to 2025-11-25


def test_the_old_era_calls_a_tool(port: int):
    assert result(old(port, "tools/call", {"name": "prune_text", "arguments": {"text": "a"}})) == {
        "content": [{"type": "text", "text": '{"pruned_text":"a","chars":1}'}],
        "structuredContent": {"pruned_text": "a", "chars": 1},
        "isError": False,
    }


def test_the_old_era_needs_no_headers_and_no_session(port: int):
    heard = wire.post(port, "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, (("Mcp-Session-Id", "stale"),))

    assert (heard.status, result(heard)) == (200, {})
    assert "mcp-session-id" not in heard.headers


@pytest.mark.parametrize("raw", [b"{", b"", b"[]", b'{"jsonrpc":"2.0","id":1}', b'{"method":"ping","id":1}'])
def test_an_unreadable_message_is_a_bad_request(port: int, raw: bytes):
    heard = wire.ask(port, "POST", "/mcp", raw)

    assert heard.status == 400
    assert heard.error_code in (-32700, -32600)


# 2026-07-28


def test_discovery_introduces_the_server(port: int):
    assert result(new(port, "server/discover")) == {
        "supportedVersions": [MODERN],
        "capabilities": {"tools": {"listChanged": False}, "resources": {}, "prompts": {}},
        "instructions": "Prune, then recover.",
        "ttlMs": 300_000,
        "cacheScope": "public",
        "resultType": "complete",
        "_meta": OURS,
    }


@pytest.mark.parametrize(
    ("method", "key"),
    [
        ("tools/list", "tools"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ],
)
def test_lists_say_how_long_they_are_fresh(port: int, method: str, key: str):
    found = result(new(port, method))

    assert isinstance(found.pop(key), list)
    assert found == {"ttlMs": 300_000, "cacheScope": "public", "resultType": "complete", "_meta": OURS}


def test_the_new_era_calls_a_tool(port: int):
    found = result(new(port, "tools/call", {"name": "prune_text", "arguments": {"text": "a"}}))

    assert found["structuredContent"] == {"pruned_text": "a", "chars": 1}
    assert (found["resultType"], found["_meta"]) == ("complete", OURS)
    assert "ttlMs" not in found


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "resources/unsubscribe"])
def test_what_the_new_era_removed_is_not_found(port: int, method: str):
    heard = new(port, method)

    assert (heard.status, heard.error_code) == (404, -32601)


@pytest.mark.parametrize(
    "meta",
    [
        None,
        [],
        {},
        {"io.modelcontextprotocol/protocolVersion": MODERN},
        {"io.modelcontextprotocol/clientCapabilities": {}},
    ],
)
@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
def test_an_incomplete_envelope_is_refused(port: int, method: str, meta: JsonValue):
    heard = new(port, method, meta=meta)

    assert (heard.status, heard.error_code) == (400, -32602)
    assert b"_meta.io.modelcontextprotocol/" in heard.body


@pytest.mark.parametrize("version", ["2099-01-01", "v999.0.0", "2025-11-25", ""])
def test_another_version_is_told_which_ones_are_served(port: int, version: str):
    meta = {**META, "io.modelcontextprotocol/protocolVersion": version}
    headers = (("MCP-Protocol-Version", version), ("Mcp-Method", "server/discover"))
    heard = new(port, "server/discover", headers=headers, meta=meta)

    match heard.json:
        case {"error": {"code": -32022, "data": dict(data)}}:
            assert (heard.status, data["supported"], data["requested"]) == (400, [MODERN], version)
        case other:
            raise AssertionError(other)


def test_a_version_must_be_a_string(port: int):
    meta = {**META, "io.modelcontextprotocol/protocolVersion": 20260728}

    assert new(port, "tools/list", meta=meta).error_code == -32602


def test_a_header_of_an_unknown_version_is_a_bad_request(port: int):
    message: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}

    assert wire.post(port, "/mcp", message, (("MCP-Protocol-Version", "1.0.0"),)).status == 400


VERSION, METHOD, NAME = headers_for("tools/call", "health")


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (METHOD, NAME),
        (VERSION, NAME),
        (VERSION, METHOD),
        (VERSION, METHOD, ("Mcp-Name", "prune_text")),
        (VERSION, METHOD, ("Mcp-Name", "Health")),
        (VERSION, METHOD, ("Mcp-Name", "=?base64?aGVhbHRo")),
        (VERSION, METHOD, ("Mcp-Name", "=?base64?aGVhbHR?=")),
        (VERSION, METHOD, ("Mcp-Name", "=?base64?/w==?=")),
        (VERSION, METHOD, ("Mcp-Name", "=?base64?aGVhbHRi?=")),
        (VERSION, ("Mcp-Method", "tools/list"), NAME),
        (VERSION, ("Mcp-Method", "Tools/Call"), NAME),
        (("MCP-Protocol-Version", "2025-11-25"), METHOD, NAME),
        (VERSION, VERSION, METHOD, NAME),
        (VERSION, METHOD, METHOD, NAME),
        (VERSION, METHOD, NAME, ("Mcp-Name", "health")),
    ],
)
def test_headers_that_contradict_the_body_are_refused(port: int, headers: tuple[tuple[str, str], ...]):
    heard = new(port, "tools/call", {"name": "health", "arguments": {}}, headers)

    assert (heard.status, heard.error_code) == (400, -32020)


@pytest.mark.parametrize("name", ["health", "  health  ", f"=?base64?{base64.b64encode(b'health').decode()}?="])
def test_a_name_may_come_encoded_or_with_spaces_around(port: int, name: str):
    assert new(port, "tools/call", {"name": "health"}, (VERSION, METHOD, ("mcp-NAME", name))).status == 200


def test_headers_are_read_in_any_case(port: int):
    headers = (("MCP-PROTOCOL-VERSION", MODERN), ("MCP-METHOD", "tools/list"))

    assert new(port, "tools/list", headers=headers).status == 200


def test_an_initialize_with_the_header_of_a_failed_probe_still_begins_the_old_era(port: int):
    message: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    heard = wire.post(port, "/mcp", message, (("MCP-Protocol-Version", MODERN),))

    assert result(heard)["protocolVersion"] == "2025-11-25"


def test_a_notification_of_the_new_era_is_accepted(port: int):
    message: JsonObject = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}

    assert wire.post(port, "/mcp", message, headers_for("notifications/cancelled")).status == 202


def test_one_server_speaks_both_eras_at_once(port: int):
    for _ in range(3):
        assert result(new(port, "server/discover"))["supportedVersions"] == [MODERN]
        assert result(old(port, "initialize", {"protocolVersion": "2025-06-18"}))["protocolVersion"] == "2025-06-18"


# Clients that hang up


def test_in_the_new_era_a_lost_connection_takes_the_call_back():
    signals = world.Signals()
    with world.listening(world.app(signals=signals)) as port:
        body = json.encode(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "_meta": META}}
        )
        with wire.connect(port) as line:
            line.sendall(wire.request(port, "POST", "/mcp", body, headers=headers_for("tools/call", "slow")))
            assert signals.begun.wait(60)
        assert signals.cancelled.wait(60)
        assert wire.ask(port, "GET", "/health").status == 200


@pytest.mark.parametrize("path", ["/rpc", "/mcp"])
def test_in_the_old_era_a_lost_connection_changes_nothing(path: str):
    signals = world.Signals()
    with world.listening(world.app(signals=signals)) as port:
        with wire.connect(port) as line:
            body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}'
            line.sendall(wire.request(port, "POST", path, body))
            assert signals.begun.wait(60)
        assert wire.ask(port, "GET", "/health").status == 200
        assert not signals.cancelled.wait(0.1)
        signals.go_on.set()
        assert wire.ask(port, "GET", "/health").status == 200


def test_slow_calls_do_not_hold_up_others():
    signals = world.Signals()
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}'
    with world.listening(world.app(signals=signals)) as port:
        heard = list[wire.Heard]()
        waiting = [
            threading.Thread(target=lambda: heard.append(wire.ask(port, "POST", "/rpc", body))) for _ in range(8)
        ]
        for thread in waiting:
            thread.start()
        assert signals.begun.wait(60)
        assert wire.ask(port, "GET", "/health").status == 200
        signals.go_on.set()
        for thread in waiting:
            thread.join(60)

    assert [answer.status for answer in heard] == [200] * 8
