"""What the tests of team share with others."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
from starlette.types import ASGIApp
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.api.watching import MODEL, Watcher, completion, models
from tests.support.evil import Evil, Script, answering, evil, http
from websockets.asyncio.client import connect

from kimi_proxy.assembly.apps import pruner_app
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.json import JsonObject

SECRET = "zebra-crossing"

LONG = "\n".join(f"INFO step {n} took {n} ms" for n in range(3000)) + f"\nERROR {SECRET} failed\n"

TOKEN = "the-server's-own-token"

TEAM = "[team]\nenabled = true\n"

OPTIONS = {
    "max_prune_ratio": 0.9,
    "min_keep_lines": 1,
    "timeout_ms": 30_000,
    "annotate_lines": False,
    "include_markers": True,
}


@dataclass(frozen=True)
class Team:
    proxy: Proxy
    provider: Evil
    tokens: dict[str, str]
    pruner: ASGIApp

    async def caller(self, name: str) -> Caller:
        """Return the caller of requests with the token of a person."""
        people = self.proxy.runtime.team
        assert people
        who = await people.people.identify([self.tokens[name].encode()])
        assert who
        return who

    @asynccontextmanager
    async def person(self, name: str) -> AsyncIterator[httpx.AsyncClient]:
        headers = {"authorization": f"Bearer {self.tokens[name]}"}
        async with httpx.AsyncClient(
            base_url=self.proxy.http.base_url, headers=headers, trust_env=False, timeout=60
        ) as c:
            yield c

    @asynccontextmanager
    async def at_pruner(self, name: str) -> AsyncIterator[httpx.AsyncClient]:
        transport, headers = httpx.ASGITransport(self.pruner), {"x-api-key": self.tokens[name]}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8006", headers=headers) as c:
            yield c

    @asynccontextmanager
    async def watched_by(self, name: str) -> AsyncIterator[Watcher]:
        token = base64.urlsafe_b64encode(self.tokens[name].encode()).decode().rstrip("=")
        address = f"ws://127.0.0.1:{self.proxy.port}/ws"
        async with connect(address, proxy=None, subprotocols=["kimi-proxy", f"bearer.{token}"]) as socket:  # type: ignore[list-item]
            watcher = Watcher(socket)
            taking = asyncio.create_task(watcher.take())
            try:
                await watcher.until("init")
                yield watcher
            finally:
                taking.cancel()


@asynccontextmanager
async def teams(
    home: Path, toml: str, settings: str, *urls: str, script: Script | None = None
) -> AsyncIterator[list[Team]]:
    """A server for each of these stores, all of the same people.

    Ada and ben are members of one team, cy is a member of another, dee is an admin.
    """
    async with AsyncExitStack() as alive:
        provider = await alive.enter_async_context(evil(script or answering(http(completion()))))
        config, tokens, made = settings + toml + provider.toml() + models(), dict[str, str](), list[Team]()
        for at, url in enumerate(urls):
            environment = {"KIMI_PROXY_TOKEN": TOKEN, **({"KIMI_PROXY_DATABASE_URL": url} if url else {})}
            p = await alive.enter_async_context(proxy(home / str(at), config, **environment))
            made.append(Team(p, provider, tokens, pruner_app(p.runtime)))
        first = made[0].proxy.runtime.team
        assert first
        add = partial(first.people.add, LOCAL)
        people = [await add("ada", team="x"), await add("ben", team="x"), await add("cy", team="y")]
        people.append(await add("dee", "admin"))
        tokens.update({one.person.name: one.token for one in people})
        yield made


@asynccontextmanager
async def team(home: Path, toml: str = "", settings: str = TEAM, script: Script | None = None) -> AsyncIterator[Team]:
    async with teams(home, toml, settings, "", script=script) as (only,):
        yield only


def conversation() -> JsonObject:
    """One whose long tool result is cut."""
    call = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    return {
        "model": MODEL,
        "messages": [
            {"role": "user", "content": f"why does the {SECRET} fail?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": LONG},
        ],
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}],
    }


async def ask(client: httpx.AsyncClient, name: str = "") -> httpx.Response:
    headers = {"x-session-id": name} if name else {}
    return await client.post("/v1/chat/completions", json=conversation(), headers=headers)
