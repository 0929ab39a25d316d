"""What the tests of compress share with others."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import model
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.clouds import addressed
from tests.support.conversations import Assistant, Call, Item, Result, User, body
from tests.support.evil import Evil, Heard, Line, evil, http
from tests.support.model import Says

from kimi_proxy.core import tokens
from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.features.chat import context

PATHS = {wire: wire.format.paths[0].format(model="kimi-k2") for wire in Wire}

KINDS = {wire: wire.format.provider_types[0] for wire in Wire}

WINDOW = 6_000

SUMMARY = "Goal: mend the importer. Decision: keep SQLite. Open: the docs."

ASKED_FOR_SUMMARY = b"You summarise the earlier part"

AUTOMATIC = "automatic = true\ncooldown_s = 0\n"

Answer = Callable[[Heard, Line, Wire], Awaitable[None]]


def tokens_in(raw: bytes, wire: Wire) -> int:
    return context.tokens_of(parse(raw, wire), tokens.count)


async def good(heard: Heard, line: Line, wire: Wire) -> None:
    await line.send(http(model.body(wire, Says(SUMMARY, tokens=(900, 40)))))


def sent_body(wire: Wire, items: list[Item]) -> bytes:
    """Return what a provider receives of a request that nothing changed, with what its address says at the end."""
    raw = body(wire, items)
    return (
        addressed(Heard(PATHS[wire], (), raw.replace(b'"model": "kimi-k2", ', b"", 1))).body
        if _names_model(wire)
        else raw
    )


def _names_model(wire: Wire) -> bool:
    return "{model}" in wire.format.paths[0]


@dataclass
class World:
    p: Proxy
    provider: Evil
    wire: Wire

    async def send(self, items: list[Item], **headers: str) -> Request:
        """What of this the provider received."""
        named = {"content-type": "application/json", "x-session-id": "day-1", **headers}
        sent = await self.p.http.post(PATHS[self.wire], content=body(self.wire, items), headers=named)
        assert sent.status_code == 200, sent.text
        return self.heard[-1]

    @property
    def heard(self) -> list[Request]:
        asked = [addressed(heard).body for heard in self.provider.heard if ASKED_FOR_SUMMARY not in heard.body]
        return [parse(raw, self.wire) for raw in asked]

    @property
    def summaries_asked(self) -> int:
        return len(self.provider.heard) - len(self.heard)

    async def post(self, path: str, **body: object) -> tuple[int, dict[str, object]]:
        answer = await self.p.http.post(f"/api/{path}", json=body)
        return answer.status_code, answer.json()


@asynccontextmanager
async def world(
    home: Path, wire: Wire, settings: str = "cooldown_s = 0\n", summary: Answer = good
) -> AsyncIterator[World]:
    async def script(heard: Heard, line: Line) -> None:
        if ASKED_FOR_SUMMARY in heard.body:
            await summary(heard, line, wire)
        else:
            counted = tokens_in(addressed(heard).body, wire)
            await line.send(http(model.body(wire, Says("ok", tokens=(counted, 2)))))

    async with evil(script) as provider:
        toml = provider.toml(KINDS[wire])
        toml += f'[models.kimi-k2]\nprovider = "{KINDS[wire]}-evil"\nmax_context_size = {WINDOW}\n'
        toml += "[sanitizer]\nenabled = false\nrecover_tool = false\n[compression]\n"
        async with proxy(home, toml + settings) as p:
            yield World(p, provider, wire)


def exchange(n: int, words: int = 150) -> list[Item]:
    return [
        User(f"Question {n}: what about module_{n}?"),
        Assistant("", (Call(f"c{n}", "read_file", {"path": f"src/module_{n}.py"}),)),
        Result(f"c{n}", f"def function_{n}(): ... " + f"word{n} " * words),
        Assistant(f"Answer {n}: function_{n} is fine."),
    ]


def conversation(exchanges: int) -> list[Item]:
    return [*(item for n in range(exchanges) for item in exchange(n)), User("And now?")]


FULL = 15  # exchanges that fill the window to 90 %


def words(request: Request) -> str:
    return "\n".join(part.text for message in request.messages for part in message.parts)
