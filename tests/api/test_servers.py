"""The MCP servers behind the gateway, over HTTP."""

import json
import sys
from pathlib import Path

import pytest
from tests.support.api.proxy_world import proxy

SCRIPT = str(Path(__file__).parents[1] / "support" / "stdio_server.py")


def server(name: str, mode: str = "") -> str:
    args = json.dumps(["-I", "-S", SCRIPT, mode])
    return f"[mcp.servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n"


TOML = "[mcp]\nready_timeout_s = 60\n" + server("good") + server("bad", "crash")


@pytest.mark.parametrize("path", ["/api/mcp/servers", "/api/memory/servers"])
async def test_every_server_of_the_settings_is_told(path: str, tmp_path: Path):
    async with proxy(tmp_path, TOML) as world:
        told = (await world.http.get(path)).json()["servers"]

    assert {status["name"]: status["state"] for status in told} == {
        "sequential-thinking": "off",
        "fast-filesystem": "off",
        "json-query": "off",
        "pruner": "ready",
        "shrimp-task-manager": "off",
        "task-master": "off",
        "good": "idle",
        "bad": "idle",
    }


async def test_servers_are_started_stopped_and_started_again(tmp_path: Path):
    async with proxy(tmp_path, TOML) as world:
        up = (await world.http.post("/api/mcp/servers/up", json={"names": ["good"]})).json()["servers"]
        down = (await world.http.post("/api/mcp/servers/down")).json()["servers"]
        again = (await world.http.post("/api/mcp/servers/restart", json={"names": ["good"]})).json()["servers"]

    assert [(status["name"], status["state"]) for status in up] == [("good", "ready")]
    assert [(status["name"], status["state"]) for status in down] == [("good", "stopped"), ("bad", "stopped")]
    assert again[0]["state"] == "ready"
    assert again[0]["pid"] != up[0]["pid"]


async def test_one_that_fails_comes_with_the_end_of_its_log(tmp_path: Path):
    async with proxy(tmp_path, TOML) as world:
        (bad,) = (await world.http.post("/api/mcp/servers/up", json={"names": ["bad"]})).json()["servers"]
        log = (await world.http.get("/api/mcp/servers/bad/logs?lines=1")).json()

    assert "cannot find my configuration" in bad["log"]
    assert log == {
        "name": "bad",
        "log": "[bad ended with status 7 after saying: cannot find my configuration]\n",
    }


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "problem"),
    [
        ("POST", "/up", {"names": ["nobody"]}, 404, "unknown_server", "no MCP server is named 'nobody'"),
        (
            "POST",
            "/up",
            {"names": ["json-query"]},
            400,
            "server_not_run",
            "set run = true in [mcp.servers.json-query]",
        ),
        (
            "POST",
            "/down",
            {"names": ["task-master"]},
            400,
            "server_not_run",
            "set enabled = true in [mcp.servers.task-master]",
        ),
        ("POST", "/up", {"name": "good"}, 400, "invalid_params", "name"),
        ("POST", "/up", {"command": "rm", "names": []}, 400, "invalid_params", "command"),
        ("POST", "/up", [], 400, "invalid_params", "names"),
        ("GET", "/nobody/logs", None, 404, "unknown_server", "nobody"),
        ("GET", "/good/logs?lines=0", None, 400, "invalid_params", "lines"),
        ("GET", "/good/logs?lines=x", None, 400, "invalid_params", "lines"),
        ("GET", "/up", None, 405, "method_not_allowed", "other methods"),
        ("POST", "/dance", {}, 404, "not_found", "nothing at this path"),
    ],
)
async def test_what_cannot_be_done_is_refused_with_the_reason(
    method: str, path: str, body: object, status: int, code: str, problem: str, tmp_path: Path
):
    async with proxy(tmp_path, TOML) as world:
        content = None if body is None else json.dumps(body)
        headers = {"content-type": "application/json"}
        refused = await world.http.request(method, f"/api/mcp/servers{path}", content=content, headers=headers)

    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
    assert problem in refused.json()["error"]["message"]


async def test_a_server_that_is_not_ours_is_refused_with_a_word_for_why(tmp_path: Path):
    async with proxy(tmp_path, TOML) as world:
        asked = {name: {"names": [name]} for name in ("json-query", "task-master")}
        told = {name: (await world.http.post("/api/mcp/servers/up", json=body)).json() for name, body in asked.items()}

    reasons = {name: answer["error"]["reason"] for name, answer in told.items()}
    assert reasons == {"json-query": "elsewhere", "task-master": "switched_off"}


async def test_a_server_that_lacks_its_folder_is_listed_with_the_reason_beside_the_others(tmp_path: Path):
    async with proxy(tmp_path, server("good") + "[mcp.servers.fast-filesystem]\nrun = true\n") as world:
        told = (await world.http.get("/api/mcp/servers")).json()["servers"]
        up = (await world.http.post("/api/mcp/servers/up", json={})).json()["servers"]
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search_tools", "arguments": {}}}
        searched = await world.http.post("/api/mcp-gateway/rpc", json=call)

    by_name = {status["name"]: status for status in told}
    assert (by_name["good"]["state"], by_name["fast-filesystem"]["state"]) == ("idle", "down")
    assert (
        'set root in [mcp.servers.fast-filesystem] ("/" allows everything)' in by_name["fast-filesystem"]["last_error"]
    )
    assert [(status["name"], status["state"]) for status in up] == [("good", "ready"), ("fast-filesystem", "down")]
    assert searched.status_code == 200


async def test_a_page_of_another_origin_cannot_stop_anything(tmp_path: Path):
    async with proxy(tmp_path, TOML) as world:
        refused = await world.http.post("/api/mcp/servers/down", headers={"origin": "https://evil.example"})

    assert refused.status_code == 403
