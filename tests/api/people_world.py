"""A team whose servers have a provider's key, and a provider that keeps objects for whoever has that key."""

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.api.watching import completion, models
from tests.support.evil import Evil, Heard, Line, evil, http

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.services.team.people import Role

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
    """Answers as OpenAI and Anthropic do; what it keeps, it gives to everyone who has the key."""

    kept: dict[str, JsonObject] = field(default_factory=dict)
    is_compressing: bool = False

    async def talk(self, heard: Heard, line: Line) -> None:
        path, query = urlsplit(heard.target).path, parse_qs(urlsplit(heard.target).query)
        body = json.loads(heard.body) if heard.body else {}
        parts = path.removeprefix("/v1/").split("/")
        match heard.method, parts:
            case "POST", ["chat", "completions"]:
                await line.send(http(completion()))
            case "POST", ["messages"]:
                await self._send_message(body, line)
            case "POST", ["responses"]:
                await self._send_response(body, line)
            case "POST", ["messages", "batches"]:
                made = self.make("msgbatch", {"type": "message_batch", "requests": body.get("requests")})
                await line.send(http(json.dumps(made).encode()))
            case "GET", ["messages", "batches"]:
                await self._send_list(query, line)
            case _, [*_, id] if id in self.kept and heard.method in ("GET", "DELETE"):
                found = self.kept[id] if heard.method == "GET" else self.kept.pop(id)
                await line.send(http(json.dumps(found).encode()))
            case _, [*_, id, "results" | "cancel" | "input_items"] if id in self.kept:
                items = {"object": "list", "data": [{"id": f"msg_of_{id}"}], "of": self.kept[id], "action": parts[-1]}
                await line.send(http(json.dumps(items).encode()))
            case _:
                await self._refuse(f"{parts} not found", line, "404 Not Found")

    def make(self, prefix: str, about: JsonObject) -> JsonObject:
        made: JsonObject = {"id": f"{prefix}_{secrets.token_hex(24)}", **about}
        self.kept[str(made["id"])] = made
        return made

    async def _send_message(self, body: JsonObject, line: Line) -> None:
        if (named := _named(body)) and not named <= set(self.kept):
            await self._refuse(f"{sorted(named)} not found", line, "404 Not Found")
            return
        made = self.make("file", {"of": body.get("messages")})
        container = self.make("container", {})
        block = {"type": "code_execution_output", "file_id": made["id"]}
        answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [block]}
        usage = {"input_tokens": 10, "output_tokens": 1}
        await line.send(http(json.dumps({**answer, "container": {"id": container["id"]}, "usage": usage}).encode()))

    async def _send_response(self, body: JsonObject, line: Line) -> None:
        if (named := _named(body)) and not named <= set(self.kept):
            await self._refuse(f"{sorted(named)} not found", line, "400 Bad Request")
            return
        item = self.make("rs", {"type": "reasoning", "of": body.get("input")})
        made = self.make("resp", {"object": "response", "status": "completed", "output": [item], "read": sorted(named)})
        if not body.get("stream"):
            await line.send(http(json.dumps(made).encode()))
            return
        events = [{"type": f"response.{name}", "response": made} for name in ("created", "completed")]
        await line.stream(*(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events))

    async def _send_list(self, query: dict[str, list[str]], line: Line) -> None:
        """Newest first, from after or before an id, as Anthropic lists batches."""
        every = [one for one in reversed(self.kept.values()) if one.get("type") == "message_batch"]
        ids, limit = [str(one["id"]) for one in every], int(query.get("limit", ["20"])[0])
        for name in ("after_id", "before_id"):
            if query.get(name, ids[:1])[0] not in ids and name in query:
                await self._refuse(f"{query[name]} is unknown", line, "404 Not Found")
                return
        if "before_id" in query:
            end = ids.index(query["before_id"][0])
            page, has_more = every[max(0, end - limit) : end], end > limit
        else:
            start = ids.index(query["after_id"][0]) + 1 if "after_id" in query else 0
            page, has_more = every[start : start + limit], len(every) > start + limit
        edges = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
        shown = json.dumps({"data": page, "has_more": has_more, **edges}).encode()
        coded = ("Content-Encoding: br",) if self.is_compressing else ()
        await line.send(http(shown, "200 OK", "application/json", *coded))

    async def _refuse(self, why: str, line: Line, status: str) -> None:
        await line.send(http(json.dumps({"error": {"message": why, "type": "invalid_request_error"}}).encode(), status))


def _named(value: JsonValue) -> set[str]:
    """Return the ids that a body refers to, as a provider would look them up."""
    if isinstance(value, list):
        return set().union(*map(_named, value))
    if not isinstance(value, dict):
        return set()
    found = {str(value[name]) for name in ("previous_response_id", "file_id") if value.get(name)}
    is_item = value.get("type") in ("item_reference", "reasoning") or set(value) == {"id"}
    found |= {str(value["id"])} if is_item else set()
    found |= {str(each) for name in ("file_ids", "vector_store_ids") for each in value.get(name) or ()}  # type: ignore[union-attr]
    for holder in (value.get("container"), value.get("conversation")):
        id = holder.get("id") if isinstance(holder, dict) else holder
        found |= {str(id)} if id else set()
    inner = [each for name, each in value.items() if name != "input" or value.get("type") != "tool_use"]
    return found | _named(inner)


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
