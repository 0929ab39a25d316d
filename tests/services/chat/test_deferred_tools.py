"""Rarely used tools are left out of a request, and found and called when the model needs them."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.conversations import Assistant, Item, Result, User, tool
from tests.support.conversations import Call as Asked
from tests.support.conversations import body as request_body
from tests.support.evil import Evil, evil
from tests.support.fakes import Clock
from tests.support.model import Call, Says
from tests.support.services.chat.recall import Model

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.chat.reply import ReplyReader
from kimi_proxy.core.config import parse as parse_config
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.services.chat.handler import ChatRequest
from kimi_proxy.services.runtime import Runtime, running

WIRES = pytest.mark.parametrize("wire", list(Wire))
STREAM = pytest.mark.parametrize("stream", [True, False])
CORE = ("bash", "read_file")
RARE = tuple(f"mcp__tickets__{verb}_{noun}" for verb in ("create", "list", "close") for noun in ("issue", "label", "board"))
AGENT = (b"user-agent", b"opencode/1.2")
ON = '[deferred_tools]\nclients = ["opencode"]\n'
CREATE: dict[str, JsonValue] = {"title": "Broken"}
SEARCHING = Call("own_1", "find_tools", {"query": "create an issue"})
USING = Call("call_u1", "use_tool", {"name": RARE[0], "arguments": CREATE})


def described(wire: Wire, name: str) -> JsonValue:
    """Return a tool with as long a description as those of real servers."""
    words = name.rpartition("__")[2].replace("_", " ")
    properties: dict[str, JsonValue] = {
        key: {"type": "string", "description": f"The {key} of what you want to {words}. " * 6}
        for key in ("title", "body", "owner", "repository")
    }
    return tool(wire, name, properties)


def body(wire: Wire, items: Sequence[Item], stream: bool = False, rare: Sequence[str] = RARE, **more: JsonValue) -> bytes:
    asked: JsonObject = json.loads(request_body(wire, items, CORE, stream=stream, **more))
    offered = asked["tools"]
    assert isinstance(offered, list)
    offered.extend(described(wire, name) for name in rare)
    return json.dumps(asked).encode()


@dataclass
class World:
    home: Path
    model: Model
    clock: Clock
    settings: str = ON

    @asynccontextmanager
    async def runtime(self) -> AsyncIterator[Runtime]:
        kind = self.model.wire.format.provider_types[0]
        async with evil(self.model) as provider:
            async with running(parse_config(f"{provider.toml(kind)}{self.settings}", {}, self.home), now=self.clock) as runtime:
                yield runtime


async def ask(runtime: Runtime, wire: Wire, raw: bytes, headers: tuple[tuple[bytes, bytes], ...] = (AGENT,)) -> bytes:
    async with runtime.chat.answer(ChatRequest(LOCAL, wire, raw, headers)) as answer:
        came = answer.body
        async for piece in answer.rest or _nothing():
            came += piece
        assert answer.status == 200
        return came


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


def names(raw: bytes, wire: Wire) -> set[str]:
    return set(parse(raw, wire).tool_names)


@WIRES
@STREAM
async def test_the_model_finds_a_tool_and_the_client_reads_a_call_of_its_own(tmp_path: Path, wire: Wire, stream: bool):
    model = Model(wire, [Says("Hm.", (SEARCHING,)), Says("Here.", (USING,)), Says("Done.")])
    items: list[Item] = [User("Please file a ticket")]
    async with World(tmp_path, model, Clock(0.0)).runtime() as runtime:
        answer = await ask(runtime, wire, body(wire, items, stream))
        later = [*items, Assistant("Here.", (Asked("call_u1", RARE[0], CREATE),)), Result("call_u1", "filed")]
        await ask(runtime, wire, body(wire, later, stream))

    first, again, last = (parse(raw, wire) for raw in model.requests)
    assert b"find_tools" not in answer and b"use_tool" not in answer
    assert RARE[0].encode() in answer
    assert set(first.tool_names) == {*CORE, "recover_text", "find_tools", "use_tool"}
    found = json.loads(again.messages[-1].parts[-1].text)
    assert found["tools"][0]["name"] == RARE[0] and "inputSchema" in found["tools"][0]
    # What was sent stays byte for byte, and the history tells of the call as the model made it.
    assert last.body.startswith(first.body[: first.messages[-1].end])
    call, result = last.messages[-2].parts[-1], last.messages[-1].parts[-1]
    assert call.name == "use_tool" and json.loads(call.text) == {"name": RARE[0], "arguments": CREATE}
    assert result.text.startswith("filed\n\n[use_tool, {") and "inputSchema" in result.text
