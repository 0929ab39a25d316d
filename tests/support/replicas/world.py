"""Several servers in one event loop, with one database and one provider."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from tests.support import outputs
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.conversations import Assistant, Call, Item, Result, User, body
from tests.support.evil import Evil, answering, evil, http
from tests.support.services.store.postgres_server import url_of

from kimi_proxy.core.chat import Wire, parse

# The machine may be busy with other tests: nothing goes whole because it was late.
SETTINGS = "[sanitizer]\nbudget_ms = 60000\n"
STORE = "[store]\ntimeout_ms = 60000\n"


@dataclass(frozen=True)
class ReplicaWorld:
    replicas: Sequence[Proxy]
    provider: Evil

    async def ask(self, at: int, items: Sequence[Item], session: str = "") -> httpx.Response:
        """Send a conversation through the replica of this number."""
        headers = {"content-type": "application/json"} | ({"x-session-id": session} if session else {})
        answer = await self.replicas[at].http.post(
            "/v1/chat/completions", content=body(Wire.CHAT, items), headers=headers
        )
        assert answer.status_code == 200, answer.text
        return answer

    def left(self) -> list[list[bytes]]:
        """Of each request that reached the provider, its messages."""
        requests = [parse(heard.body, Wire.CHAT) for heard in self.provider.heard]
        return [[request.body[message.start : message.end] for message in request.messages] for request in requests]


@asynccontextmanager
async def replicated(server: str, home: Path, count: int = 2, settings: str = STORE) -> AsyncIterator[ReplicaWorld]:
    url = url_of(server, home)
    async with AsyncExitStack() as alive:
        provider = await alive.enter_async_context(evil(answering(http(b'{"choices":[]}'))))
        toml = provider.toml() + SETTINGS + settings
        replicas = [
            await alive.enter_async_context(proxy(home / str(at), toml, KIMI_PROXY_DATABASE_URL=url))
            for at in range(count)
        ]
        yield ReplicaWorld(replicas, provider)


def turn(number: int, failures: int = 160) -> list[Item]:
    """Return a question, a call, and its long result."""
    call = f"call_{number:08}"
    log = outputs.pytest_log(failures, number)
    return [User(f"Turn {number}: {log.goal}"), Assistant("", (Call(call),)), Result(call, f"run {number}\n{log.text}")]
