"""No text costs an answer, whatever is missing in it: by every way in it comes out, cut or whole."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.support.deep import IS_DEEP
from tests.support.records import KINDS, damaged
from tests.support.texts import a_question

from kimi_proxy.assembly.apps import proxy_app
from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core import json
from kimi_proxy.core.caller import ANONYMOUS, LOCAL, Caller
from kimi_proxy.core.config import parse
from kimi_proxy.core.config.servers import McpSettings
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.services.gateway.clients import McpClients
from kimi_proxy.services.tools.pruning import SwePrune, prune

SEED = random.randrange(2**32) if IS_DEEP else 39
TIMES = 30 if IS_DEEP else 1  # for each kind of text, way in and damage
SETTINGS = """
[mcp.servers.masked]
url = "http://127.0.0.1:1/rpc"
masking = { max_chars = 900, head_chars = 450, tail_chars = 450 }
[mcp.servers.pruned]
url = "http://127.0.0.1:1/rpc"
masking = { max_chars = 900, head_chars = 450, tail_chars = 450 }
pruning = { enabled = true, min_keep_lines = 1 }
[hooks]
budget_ms = 10000
[sanitizer]
threshold_tokens = 300
budget_ms = 10000
"""
AS_JSON = {"content-type": "application/json"}
GOAL = "why is web-7 not running?"
EMPTY_FIELD = "".join(
    f"Name:   web-{n}\nLabels:{' app=web' if n != 4 else ''}\nIP:     10.1.0.{n}\n\n" for n in range(60)
)


class Servers(McpClients):
    """MCP servers that answer every call with one text."""

    def __init__(self, settings: McpSettings) -> None:
        super().__init__(settings, {})
        self.text = ""

    async def forward_jsonrpc(self, server_name: str, message: JsonObject, who: Caller = ANONYMOUS) -> JsonObject:
        return {"jsonrpc": "2.0", "id": message.get("id"), "result": {"content": [{"type": "text", "text": self.text}]}}

    async def close(self) -> None:
        pass


class World:
    def __init__(self, runtime: Runtime, folder: Path, http: httpx.AsyncClient) -> None:
        self.runtime = runtime
        self.folder = folder
        self.http = http
        self.servers = Servers(runtime.config.mcp)
        runtime.gateway.clients = self.servers


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("workspace")
    config = parse(SETTINGS, {"MCP_PRUNER_CWD": str(folder)}, tmp_path_factory.mktemp("home"))
    async with running(config, thread_max_chars=10**9) as runtime:
        transport = httpx.ASGITransport(app=proxy_app(runtime))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=60) as http:
            yield World(runtime, folder, http)


async def call_server(server: str, world: World, text: str) -> str:
    world.servers.text = text
    params: JsonObject = {"name": "describe", "arguments": {"what": GOAL}}
    call: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    match await world.runtime.gateway.answer(LOCAL, server, call):
        case {"result": {"content": [{"text": str(shown)}]}}:
            return shown
        case other:
            raise AssertionError(f"no answer: {other}")


async def prune_text(world: World, text: str) -> str:
    return (await world.runtime.pruner.prune(LOCAL, a_question(text, GOAL))).pruned.text


async def prune_as_swe_pruner(world: World, text: str) -> str:
    return (await prune(LOCAL, SwePrune(code=text, query=GOAL), world.runtime.pruner))["pruned_code"]


async def use_tool(name: str, question: str, world: World, text: str) -> str:
    (world.folder / "file.txt").write_bytes(text.encode("utf-8", "replace"))
    target: JsonObject = {"file_path": "file.txt"} if name == "read" else {"command": "cat file.txt"}
    asked: JsonObject = {"context_focus_question": question} if question else {"max_tokens": 300}
    answer = await world.runtime.agent_tools[name].call(LOCAL, {**target, **asked})
    assert not answer.is_error
    return answer.text


async def run_hook(world: World, text: str) -> str:
    event: JsonObject = {
        "hook_event_name": "PostToolUse",
        "session_id": "s",
        "tool_name": "Bash",
        "tool_input": {"command": "kubectl describe pods"},
        "tool_response": {"stdout": text, "stderr": ""},
        "tool_use_id": str(hash(text)),
    }
    answered = await world.http.post("/api/hooks/claude", content=json.encode(event), headers=AS_JSON)
    assert answered.status_code == 200, answered.text
    match answered.json():
        case {"hookSpecificOutput": {"updatedToolOutput": {"stdout": str(shown)}}}:
            return shown
    return text


async def chat(world: World, text: str) -> str:
    call: JsonValue = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    messages: list[JsonValue] = [
        {"role": "user", "content": f"{GOAL} {hash(text)}"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
    ]
    done = await world.runtime.messages.shorten(LOCAL, messages)
    assert "sanitizer_failed" not in done.warnings
    last = done.messages[-1]
    assert isinstance(last, dict) and isinstance(last["content"], str)
    return last["content"]


Way = Callable[[World, str], Awaitable[str]]
WAYS: dict[str, Way] = {
    "gateway": partial(call_server, "masked"),
    "gateway with a goal": partial(call_server, "pruned"),
    "prune_text": prune_text,
    "swe-pruner": prune_as_swe_pruner,
    "read": partial(use_tool, "read", ""),
    "read with a question": partial(use_tool, "read", GOAL),
    "bash": partial(use_tool, "bash", ""),
    "bash with a question": partial(use_tool, "bash", GOAL),
    "hook": run_hook,
    "chat": chat,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_paragraphs_with_an_empty_field_are_cut_like_any_others(world: World, way: Way) -> None:
    shown = await way(world, EMPTY_FIELD)

    assert 0 < len(shown) < len(EMPTY_FIELD)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_whatever_is_missing_in_a_text_there_is_an_answer(world: World, way: Way) -> None:
    rng = random.Random(f"{SEED}")
    for kind, text in KINDS.items():
        for _ in range(TIMES):
            given = damaged(text, rng).replace("\0", "")
            try:
                shown = await way(world, given)
            except Exception as e:
                raise AssertionError(f"seed {SEED}, {kind}: {json.encode(given)[:2000]!r}") from e
            assert bool(shown) == bool(given) or "no output" in shown
