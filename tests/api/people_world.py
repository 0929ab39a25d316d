"""A team whose servers have a provider's key, and a provider that keeps objects for whoever has that key."""

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.api.watching import completion, models
from tests.support.evil import Evil, Heard, Line, evil, http

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.json import JsonObject
from kimi_proxy.team.people import Role

TOKEN = "the-server's-own-token"
KEY = "sk-the-server's-key"
TEAM = "[team]\nenabled = true\n"
SHARED = TEAM + 'share = "team"\n'
PEOPLE: dict[str, tuple[Role, str]] = {
    "ada": ("member", "x"),
    "ben": ("member", "x"),
    "cy": ("member", "y"),
    "dee": ("admin", ""),
    "eve": ("member", "y"),
}
REVOKED = "eve"


@dataclass
class Keeper:
    """Answers as OpenAI and Anthropic do; what it keeps, it would give to everyone who has the key."""

    kept: dict[str, JsonObject] = field(default_factory=dict)

    async def talk(self, heard: Heard, line: Line) -> None:
        path = urlsplit(heard.target).path
        match heard.method, path.removeprefix("/v1/").split("/"):
            case "POST", ["chat", "completions"]:
                await line.send(http(completion()))
            case "POST", ["messages"]:
                await self._send_message(line)
            case "POST", ["responses"]:
                await self._send_response(json.loads(heard.body), line)
            case _, [*_, id] if id in self.kept:
                found = self.kept[id] if heard.method == "GET" else self.kept.pop(id)
                await line.send(http(json.dumps(found).encode()))
            case _:
                await self._refuse(f"{path} not found", line)

    def make(self, prefix: str, about: JsonObject) -> JsonObject:
        made: JsonObject = {"id": f"{prefix}_{secrets.token_hex(24)}", **about}
        self.kept[str(made["id"])] = made
        return made

    async def _send_message(self, line: Line) -> None:
        content = [{"type": "text", "text": "done"}]
        usage = {"input_tokens": 10, "output_tokens": 1}
        answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content}
        await line.send(http(json.dumps({**answer, "usage": usage}).encode()))

    async def _send_response(self, body: JsonObject, line: Line) -> None:
        item = self.make("rs", {"type": "reasoning", "of": body.get("input")})
        made = self.make("resp", {"object": "response", "status": "completed", "output": [item]})
        await line.send(http(json.dumps(made).encode()))

    async def _refuse(self, why: str, line: Line) -> None:
        error = {"error": {"message": why, "type": "invalid_request_error"}}
        await line.send(http(json.dumps(error).encode(), "404 Not Found"))


@dataclass(frozen=True)
class PeopleServer:
    proxy: Proxy
    tokens: dict[str, str]

    @asynccontextmanager
    async def person(self, name: str, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
        """Yield a client with the token of a person; "" has none."""
        own = {"x-kimi-proxy-token": self.tokens[name]} if name else {}
        async with httpx.AsyncClient(
            base_url=self.proxy.http.base_url, headers={**own, **headers}, trust_env=False, timeout=60
        ) as client:
            yield client

    async def audited(self) -> list[tuple[str, str, str]]:
        """Return who did what to which id, the first first."""
        team = self.proxy.runtime.team
        assert team
        return [(one.person, one.action, one.subject) for _, one in reversed(await team.audit.page(2**62, 1000))]


@dataclass(frozen=True)
class PeopleWorld:
    servers: tuple[PeopleServer, ...]
    provider: Evil
    keeper: Keeper


@asynccontextmanager
async def people_world(
    home: Path, settings: str = TEAM, urls: tuple[str, ...] = ("",), timeout_ms: int = 30_000
) -> AsyncIterator[PeopleWorld]:
    """A server for each of these stores, all of the same people: in SQLite, or in the PostgreSQL of a URL."""
    keeper, tokens = Keeper(), dict[str, str]()
    async with AsyncExitStack() as alive:
        provider = await alive.enter_async_context(evil(keeper.talk))
        key = {"api_key": "${PROVIDER_KEY}"}
        anthropic = provider.toml("anthropic", **key).replace('/v1"', '"')
        store = f"[store]\ntimeout_ms = {timeout_ms}\n"  # a loaded machine may be slow
        toml = settings + store + provider.toml(**key) + anthropic + models(100_000)
        servers = []
        for at, url in enumerate(urls):
            environment = {"KIMI_PROXY_TOKEN": TOKEN, "PROVIDER_KEY": KEY, "KIMI_PROXY_DATABASE_URL": url}
            p = await alive.enter_async_context(proxy(home / str(at), toml, **environment))
            servers.append(PeopleServer(p, tokens))
        team = servers[0].proxy.runtime.team
        assert team
        known = {one.name for one in await team.people.list()}
        for name, (role, of) in PEOPLE.items():
            add = team.people.rotate(LOCAL, name) if name in known else team.people.add(LOCAL, name, role, of)
            tokens[name] = (await add).token
        await team.people.revoke(REVOKED)
        yield PeopleWorld(tuple(servers), provider, keeper)
