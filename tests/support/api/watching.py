"""Somebody who watches the proxy live, and a provider to ask through it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.evil import Evil, Script, answering, evil, http
from tests.support.processes import until
from websockets.asyncio.client import ClientConnection, connect

from kimi_proxy.core.json import JsonObject, JsonValue

MODEL = "openai-evil/m"


def completion(prompt: int = 900, cached: int = 100, written: int = 7) -> bytes:
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    choice = {"message": {"role": "assistant", "content": "so it is"}, "finish_reason": "stop"}
    return json.dumps({"model": "m", "choices": [choice], "usage": usage}).encode()


def models(max_context: int = 1000) -> str:
    return f"""
[models."{MODEL}"]
provider = "openai-evil"
max_context_size = {max_context}
input_usd_per_million = 1.0
cached_usd_per_million = 0.1
output_usd_per_million = 2.0
"""


@dataclass(slots=True)
class World:
    proxy: Proxy
    provider: Evil

    async def ask(self, *words: str, name: str = "", **fields: JsonValue) -> None:
        """Say something to the provider; `words` are what was said in turns."""
        said = [{"role": "assistant" if at % 2 else "user", "content": word} for at, word in enumerate(words)]
        headers = {"x-session-id": name} if name else {}
        body: JsonObject = {"model": MODEL, "messages": said, **fields}
        answer = await self.proxy.http.post("/v1/chat/completions", json=body, headers=headers)
        assert answer.status_code == 200, answer.text

    async def get(self, path: str) -> JsonObject:
        answer = await self.proxy.http.get(path)
        assert answer.status_code == 200, answer.text
        found: JsonObject = answer.json()
        return found

    async def sessions(self, requests: int | None = None) -> Sequence[JsonObject]:
        """All of them; once so many requests have been noted, if that is given."""
        async with asyncio.timeout(60):
            while True:
                found: Sequence[JsonObject] = (await self.proxy.http.get("/api/sessions?limit=500")).json()["sessions"]
                if requests is None or sum(int(str(each["requests"])) for each in found) >= requests:
                    return found
                await asyncio.sleep(0.02)


@asynccontextmanager
async def world(
    home: Path, toml: str = "", answer: bytes | None = None, script: Script | None = None, **env: str
) -> AsyncIterator[World]:
    script = script or answering(http(answer or completion()))
    async with evil(script) as provider, proxy(home, provider.toml() + (toml or models()), **env) as p:
        yield World(p, provider)


@dataclass(slots=True)
class Watcher:
    """Takes every event as it comes."""

    socket: ClientConnection
    events: list[JsonObject] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)

    async def take(self) -> None:
        async for frame in self.socket:
            self.frames.append(str(frame))
            self.events.append(json.loads(frame))

    @property
    def types(self) -> list[JsonValue]:
        return [event["type"] for event in self.events]

    def said(self, name: str) -> list[JsonObject]:
        return [event for event in self.events if event["type"] == name]

    async def until(self, name: str, count: int = 1) -> list[JsonObject]:
        await until(lambda: len(self.said(name)) >= count)
        return self.said(name)


@asynccontextmanager
async def watching(port: int, query: str = "") -> AsyncIterator[Watcher]:
    async with connect(f"ws://127.0.0.1:{port}/ws{query}", proxy=None) as socket:
        watcher = Watcher(socket)
        taking = asyncio.create_task(watcher.take())
        try:
            yield watcher
        finally:
            taking.cancel()
            await asyncio.wait([taking])


async def listed(http: httpx.AsyncClient, path: str, name: str, count: int, within_s: float = 60) -> list[JsonObject]:
    """What a route lists under `name`, once there are so many: what is written behind a request takes a moment."""
    deadline = time.monotonic() + within_s
    while len(found := (await http.get(path)).json()[name]) < count:
        assert time.monotonic() < deadline, f"{path} has only {len(found)}"
        await asyncio.sleep(0.05)
    rows: list[JsonObject] = found
    return rows
