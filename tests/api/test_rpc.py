"""`/rpc`: plain JSON-RPC as the contract has it, and an MCP endpoint for the clients that take it for one."""

import pytest
from tests.support.api import wire, world

from kimi_proxy.core import json
from kimi_proxy.core.json import JsonObject, JsonValue


def call(port: int, method: str, params: JsonValue = None, call_id: JsonValue = 1) -> JsonObject:
    message: JsonObject = {"jsonrpc": "2.0", "id": call_id, "method": method}
    heard = wire.post(port, "/rpc", message if params is None else {**message, "params": params})
    assert heard.status == 200
    assert heard.headers["content-type"] == "application/json"
    answer = heard.json
    assert isinstance(answer, dict)
    assert answer["jsonrpc"] == "2.0"
    assert answer["id"] == call_id
    return answer


def use(port: int, tool: str, arguments: JsonValue) -> JsonObject:
    return call(port, "tools/call", {"name": tool, "arguments": arguments})


# The handshake


def test_the_diagnostic_of_the_contract_has_no_capabilities_and_is_answered(port: int):
    params: JsonObject = {
        "protocolVersion": "2025-11-25",
        "clientInfo": {"name": "diag", "version": "1.0.0"},
    }

    assert call(port, "initialize", params)["result"] == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": False}, "resources": {}, "prompts": {}},
        "serverInfo": {"name": "mcp-pruner", "version": "0.1.0"},
        "instructions": "Prune, then recover.",
    }


@pytest.mark.parametrize("path", ["/rpc", "/mcp"])
@pytest.mark.parametrize(
    ("asked", "agreed"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        (7, "2025-11-25"),
        (None, "2025-11-25"),
    ],
)
def test_initialize_agrees_on_a_version(port: int, path: str, asked: JsonValue, agreed: str):
    message: JsonObject = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": asked}}

    match wire.post(port, path, message).json:
        case {"id": 0, "result": {"protocolVersion": version}}:
            assert version == agreed
        case other:
            raise AssertionError(other)


def test_initialize_needs_no_params(port: int):
    assert "result" in call(port, "initialize")


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("ping", {}),
        ("resources/list", {"resources": []}),
        ("resources/templates/list", {"resourceTemplates": []}),
        ("prompts/list", {"prompts": []}),
    ],
)
def test_the_small_methods(port: int, method: str, result: JsonObject):
    assert call(port, method, {})["result"] == result


# The tools


def test_tools_are_listed_in_the_registrys_order_without_aliases(port: int):
    match call(port, "tools/list", {})["result"]:
        case {"tools": [*tools]}:
            names = [tool["name"] for tool in tools]
            by_name = {tool["name"]: tool for tool in tools}
        case other:
            raise AssertionError(other)

    assert names == ["prune_text", "recover_text", "health", "broken", "plain", "slow"]
    assert by_name["prune_text"]["inputSchema"] == world.PRUNE_SCHEMA
    assert by_name["recover_text"]["title"] == "Recover"
    assert by_name["health"]["annotations"] == {"readOnlyHint": True}
    assert by_name["broken"]["annotations"] == {"readOnlyHint": False}


def test_a_tools_answer_is_the_same_json_as_text_and_as_structure(port: int):
    assert use(port, "prune_text", {"text": "a\nb"})["result"] == {
        "content": [{"type": "text", "text": '{"pruned_text":"a\\nb","chars":3}'}],
        "structuredContent": {"pruned_text": "a\nb", "chars": 3},
        "isError": False,
    }


def test_an_alias_is_the_same_tool(port: int):
    known = {"prune_id": "prn_known"}

    assert use(port, "recover_range", known) == use(port, "recover_text", known)


def test_a_tool_without_arguments_needs_none(port: int):
    assert call(port, "tools/call", {"name": "health"})["result"] == {
        "content": [{"type": "text", "text": json.encode(world.HEALTH).decode()}],
        "structuredContent": world.HEALTH,
        "isError": False,
    }


def test_a_tool_that_answers_in_text_has_no_structure(port: int):
    assert use(port, "plain", {})["result"] == {
        "content": [{"type": "text", "text": "only text"}],
        "isError": True,
    }


@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        ("prune_text", {"text": "é"}, {"pruned_text": "é", "chars": 1}),
        ("prune_text", {"text": "é", "_meta": {"progressToken": 1}}, {"pruned_text": "é", "chars": 1}),
        ("recover_text", {"prune_id": "prn_known"}, {"raw_text": "line one"}),
        ("recover_range", {"prune_id": "prn_known"}, {"raw_text": "line one"}),
        ("health", None, world.HEALTH),
        ("health", {}, world.HEALTH),
        ("plain", {}, {"text": "only text"}),
    ],
)
def test_a_tool_is_also_a_method_and_its_result_is_bare(port: int, method: str, params: JsonValue, result: JsonObject):
    assert call(port, method, params)["result"] == result


# Errors, always under HTTP 200


def error(answer: JsonObject) -> JsonObject:
    found = answer["error"]
    assert isinstance(found, dict)
    assert "result" not in answer
    return found


@pytest.mark.parametrize("way", ["tools/call", "direct"])
@pytest.mark.parametrize("tool", ["recover_text", "recover_range"])
@pytest.mark.parametrize(
    ("prune_id", "code", "message", "data"),
    [
        ("prn_0", -32004, "prune_id_not_found", {"prune_id": "prn_0", "reason": "unknown"}),
        ("prn_expired", -32004, "prune_id_not_found", {"prune_id": "prn_expired", "reason": "expired"}),
        ("prn_short", -32005, "invalid_range", {"max_line": 12}),
    ],
)
def test_domain_errors_carry_their_code_as_the_message(
    port: int, way: str, tool: str, prune_id: str, code: int, message: str, data: JsonObject
):
    arguments: JsonObject = {"prune_id": prune_id}
    found = error(use(port, tool, arguments) if way == "tools/call" else call(port, tool, arguments))
    advice = found["data"].pop("message")

    assert found == {"code": code, "message": message, "data": {"code": message, **data}}
    assert advice


@pytest.mark.parametrize("way", ["tools/call", "direct"])
@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "text"),
        ({"text": 3}, "text"),
        ({"text": None}, "text"),
        ({"text": "a", "ratio": 2}, "ratio"),
        ({"text": "a", "ratio": "0.5"}, "ratio"),
        ({"text": "a", "goal": "b"}, "goal"),
    ],
)
def test_a_wrong_argument_is_named(port: int, way: str, arguments: JsonObject, field: str):
    found = error(use(port, "prune_text", arguments) if way == "tools/call" else call(port, "prune_text", arguments))

    assert (found["code"], found["data"]) == (-32602, {"code": "invalid_params", "field": field})
    assert str(found["message"]).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "name"),
        ({"name": 3}, "name"),
        ({"name": "nothing"}, "name"),
        ({"name": "prune_text", "arguments": []}, "arguments"),
        ({"name": "prune_text", "arguments": "x"}, "arguments"),
    ],
)
def test_a_call_without_a_tool_of_ours_is_invalid(port: int, params: JsonObject, field: str):
    found = error(call(port, "tools/call", params))

    assert (found["code"], found["data"]["field"]) == (-32602, field)


def test_an_unknown_tool_is_answered_with_those_there_are(port: int):
    assert "prune_text, recover_text" in str(error(use(port, "nothing", {}))["message"])


@pytest.mark.parametrize(
    "method", ["nothing", "", "tools", "server/discover", "logging/setLevel", "completion/complete"]
)
def test_an_unknown_method_is_not_found(port: int, method: str):
    found = error(call(port, method, {}))

    assert (found["code"], found["data"]) == (-32601, {"code": "method_not_found"})


def test_a_fault_of_ours_tells_nothing_of_the_inside(port: int):
    found = error(use(port, "broken", {}))

    assert (found["code"], found["data"]) == (-32603, {"code": "internal_error"})
    assert "secret" not in str(found)


def test_a_sick_store_is_named(port: int):
    found = error(use(port, "recover_text", {"prune_id": "prn_sick"}))

    assert (found["code"], found["data"]) == (-32603, {"code": "recovery_unavailable"})
    assert "try again" in str(found["message"])


@pytest.mark.parametrize("raw", [b"", b"{", b"nonsense", b"\xff\xfe", b"[1,]", b'{"a":NaN}', b"{'a':1}"])
def test_what_is_not_json_is_a_parse_error(port: int, raw: bytes):
    heard = wire.ask(port, "POST", "/rpc", raw)

    match heard.json:
        case {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": str(message)}}:
            assert (heard.status, code) == (200, -32700)
            assert message
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize(
    ("message", "call_id"),
    [
        (1, None),
        ("ping", None),
        (None, None),
        (True, None),
        ([], None),
        ({}, None),
        ({"jsonrpc": "1.0", "id": 4, "method": "ping"}, 4),
        ({"id": 4, "method": "ping"}, 4),
        ({"jsonrpc": "2.0", "id": "x"}, "x"),
        ({"jsonrpc": "2.0", "id": 4, "method": 5}, 4),
        ({"jsonrpc": "2.0", "id": 4, "method": None}, 4),
        ({"jsonrpc": "2.0", "id": {}, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": [1], "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": 4, "method": "ping", "params": [1]}, 4),
        ({"jsonrpc": "2.0", "id": 4, "method": "ping", "params": "x"}, 4),
    ],
)
def test_json_that_is_no_request_is_invalid(port: int, message: JsonValue, call_id: JsonValue):
    heard = wire.post(port, "/rpc", message)

    match heard.json:
        case {"jsonrpc": "2.0", "id": found_id, "error": {"code": code}}:
            assert (heard.status, found_id, code) == (200, call_id, -32600)
        case other:
            raise AssertionError(other)


# Notifications, responses, batches, other methods of HTTP


@pytest.mark.parametrize("path", ["/rpc", "/mcp"])
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        {"jsonrpc": "2.0", "method": "no/such/thing"},
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "broken"}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no"}},
        [{"jsonrpc": "2.0", "method": "notifications/initialized"}, {"jsonrpc": "2.0", "id": 1, "result": {}}],
    ],
)
def test_what_asks_for_nothing_is_accepted_in_silence(port: int, path: str, message: JsonValue):
    heard = wire.post(port, path, message)

    assert (heard.status, heard.body) == (202, b"")


@pytest.mark.parametrize("path", ["/rpc", "/mcp"])
def test_a_batch_is_answered_in_order_without_what_asks_for_nothing(port: int, path: str):
    batch: JsonValue = [
        {"jsonrpc": "2.0", "id": "a", "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        7,
        {"jsonrpc": "2.0", "id": 2, "method": "nothing"},
    ]
    heard = wire.post(port, path, batch)

    assert heard.status == 200
    match heard.json:
        case [
            {"id": "a", "result": {}},
            {"id": None, "error": {"code": -32600}},
            {"id": 2, "error": {"code": -32601}},
        ]:
            pass
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize("size", [0, 101])
def test_a_batch_has_a_size(port: int, size: int):
    heard = wire.post(port, "/rpc", [{"jsonrpc": "2.0", "id": 1, "method": "ping"}] * size)

    assert (heard.status, heard.error_code) == (200, -32600)


@pytest.mark.parametrize("call_id", [0, -1, "", "é", 2**53 + 1, 1.5, None])
def test_the_id_comes_back_as_it_was(port: int, call_id: JsonValue):
    assert call(port, "ping", {}, call_id)["result"] == {}


@pytest.mark.parametrize("path", ["/rpc", "/mcp"])
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "OPTIONS"])
def test_other_methods_are_told_what_is_allowed(port: int, path: str, method: str):
    heard = wire.ask(port, method, path)

    assert (heard.status, heard.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ["/", "/rpc/", "/mcp/", "//rpc", "/RPC", "/health/x", "/%72pc/", "/../rpc"])
def test_an_unknown_path_is_json_too(port: int, path: str):
    heard = wire.ask(port, "POST", path, b"{}")

    assert (heard.status, heard.error_code) == (404, "not_found")
    assert "location" not in heard.headers
