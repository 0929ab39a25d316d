"""What the tests of tools on demand share: a client with a few tools of its own and many of a server."""

import json
from collections.abc import AsyncIterator, Sequence

from tests.support.conversations import Item, tool
from tests.support.conversations import body as request_body
from tests.support.model import Call

from kimi_proxy.assembly.runtime import Runtime
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.services.chat.requests import ChatRequest

CORE = ("bash", "read_file")
RARE = tuple(f"mcp__tickets__{verb}_{noun}" for verb in ("create", "list", "close") for noun in ("issue", "board"))
AGENT = (b"user-agent", b"opencode/1.2")
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


def body(
    wire: Wire, items: Sequence[Item], stream: bool = False, rare: Sequence[str] = RARE, **more: JsonValue
) -> bytes:
    asked: JsonObject = json.loads(request_body(wire, items, CORE, stream=stream, **more))
    offered = asked["tools"]
    assert isinstance(offered, list)
    offered.extend(described(wire, name) for name in rare)
    return json.dumps(asked).encode()


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
