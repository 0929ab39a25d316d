"""A client of the Responses API over a WebSocket, and a model that answers each of its requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.support.evil import Heard, Line, Script
from tests.support.model import Says, events
from websockets.asyncio.client import ClientConnection, connect

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.json import JsonObject, JsonValue

ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
PATIENCE_S = 60


class ResponsesClient:
    """Asks, and reads the events of an answer to its end."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, **members: JsonValue) -> None:
        await self.socket.send(json.dumps({"type": "response.create", "model": "m", "store": False, **members}))

    async def ask(self, **members: JsonValue) -> list[JsonObject]:
        await self.send(**members)
        return await self.answer()

    async def answer(self) -> list[JsonObject]:
        """Return the events of one answer. Raise ConnectionClosed if the connection ends before it does."""
        found: list[JsonObject] = []
        async with asyncio.timeout(PATIENCE_S):
            while not found or found[-1]["type"] not in ENDS:
                found.append(json.loads(await self.socket.recv()))
        return found


@asynccontextmanager
async def responses_client(
    port: int, path: str = "/v1/responses", headers: dict[str, str] | None = None
) -> AsyncIterator[ResponsesClient]:
    async with connect(
        f"ws://127.0.0.1:{port}{path}", proxy=None, max_size=None, additional_headers=headers or {}
    ) as socket:
        yield ResponsesClient(socket)


def user(text: str) -> JsonObject:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def result(call_id: str, text: str) -> JsonObject:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def said(answers: Callable[[int], Says]) -> Script:
    """Return a provider whose model gives one answer after the other."""
    asked = 0

    async def script(heard: Heard, line: Line) -> None:
        nonlocal asked
        asked += 1
        await line.stream(*events(Wire.RESPONSES, answers(asked)))

    return script


def numbered(number: int) -> Says:
    return Says(f"answer {number}", id=f"resp_{number}")
