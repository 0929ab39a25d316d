"""A message in either era of MCP."""

import json

from kimi_proxy.core import mcp
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.mcp import add_envelope, bare, is_stateless, meta_of, stamp_result

CALL: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a", "_meta": {"goal": "g"}}}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
}


def test_a_message_gets_an_envelope_and_loses_it_again():
    assert not is_stateless(CALL)
    assert is_stateless(add_envelope(CALL))
    assert meta_of(add_envelope(CALL))["goal"] == "g"
    assert bare(add_envelope(CALL)) == CALL


def test_without_params_the_envelope_is_all_there_is():
    listing: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}

    assert is_stateless(add_envelope(listing))
    assert bare(add_envelope(listing)) == {**listing, "params": {}}


def test_a_clients_own_envelope_is_kept():
    message: JsonObject = {"id": 1, "method": "tools/list", "params": {"_meta": ENVELOPE}}

    assert add_envelope(message) is message


def test_params_that_are_no_object_hold_no_envelope():
    assert meta_of({"params": [1]}) == {}
    assert meta_of({"params": {"_meta": 3}}) == {}


def test_a_result_of_the_old_era_says_what_the_new_one_asks():
    assert stamp_result("tools/list", {"tools": [], "x": 1}, {"name": "s"}) == {
        "ttlMs": 0,
        "cacheScope": "private",
        "tools": [],
        "x": 1,
        "resultType": "complete",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s"}},
    }
    assert stamp_result("tools/call", {"content": [], "_meta": {"a": 1}}, None) == {
        "content": [],
        "resultType": "complete",
        "_meta": {"a": 1},
    }


def test_a_result_of_the_new_era_is_left_alone():
    result: JsonObject = {"resultType": "input_required"}

    assert stamp_result("tools/list", result, None) is result


def test_only_the_token_of_a_request_is_replaced():
    message = {"id": 1, "method": "m", "params": {"a": 1, "_meta": {"x": 2, "progressToken": "t", "y": 3}, "b": 4}}

    assert json.dumps(mcp.with_progress_token(message, 7)) == json.dumps(message).replace('"t"', "7")
    for untouched in ({"id": 1}, {"params": {"_meta": {}}}, {"params": []}):
        assert mcp.with_progress_token(untouched, 7) is untouched
