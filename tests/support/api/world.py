"""A small server with real tools, on a real port."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from kimi_proxy.api.guard import Rules
from kimi_proxy.api.mcp import Catalog
from kimi_proxy.api.routing import Access, PageRoute, json_answer
from kimi_proxy.api.server import serve
from kimi_proxy.assembly.apps import mcp_app
from kimi_proxy.core import json
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import InvalidRange, PruneIdNotFound, StoreUnavailable
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.tool import AnyTool, Tool, ToolAnswer

HEALTH: JsonObject = {"status": "healthy", "server": "mcp-pruner", "version": "0.1.0"}
PRUNE_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "ratio": {"type": "number", "minimum": 0, "maximum": 1}},
    "required": ["text"],
    "additionalProperties": False,
}


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class PruneText(Strict):
    text: str
    ratio: float = Field(default=0.5, ge=0, le=1)


class RecoverText(Strict):
    prune_id: str
    start_line: int = 1


class Nothing(Strict):
    pass


@dataclass
class Signals:
    """What a slow tool did, and when it may go on."""

    begun: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)


def said(value: JsonObject) -> ToolAnswer:
    return ToolAnswer(json.encode(value).decode(), value)


async def prune_text(who: Caller, arguments: PruneText) -> ToolAnswer:
    return said({"pruned_text": arguments.text, "chars": len(arguments.text)})


async def recover_text(who: Caller, arguments: RecoverText) -> ToolAnswer:
    match arguments.prune_id:
        case "prn_expired":
            raise PruneIdNotFound(arguments.prune_id, "expired")
        case "prn_short":
            raise InvalidRange("the text has 12 lines", max_line=12)
        case "prn_sick":
            raise StoreUnavailable("the store cannot be read now: try again in a minute")
        case "prn_known":
            return said({"raw_text": "line one"})
        case unknown:
            raise PruneIdNotFound(unknown, "unknown")


async def health(who: Caller, arguments: Nothing) -> ToolAnswer:
    return said(HEALTH)


async def broken(who: Caller, arguments: Nothing) -> ToolAnswer:
    raise RuntimeError("a secret of the inside")


async def plain(who: Caller, arguments: Nothing) -> ToolAnswer:
    return ToolAnswer("only text", is_error=True)


def slow(signals: Signals) -> Tool[Nothing]:
    async def wait(who: Caller, arguments: Nothing) -> ToolAnswer:
        signals.begun.set()
        try:
            while not signals.go_on.is_set():  # noqa: ASYNC110 - a test in another thread sets it
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            signals.cancelled.set()
            raise
        return said({"waited": True})

    return Tool("slow", "Waits until it may go on.", {"type": "object"}, Nothing, wait)


def tools(signals: Signals) -> Mapping[str, AnyTool]:
    recover = Tool(
        "recover_text", "Lines behind a marker.", {"type": "object"}, RecoverText, recover_text, title="Recover"
    )
    return {
        "prune_text": Tool("prune_text", "Keeps what matters.", PRUNE_SCHEMA, PruneText, prune_text),
        "recover_text": recover,
        "recover_range": recover,
        "health": Tool("health", "Says how it is.", {"type": "object"}, Nothing, health),
        "broken": Tool("broken", "Breaks.", {"type": "object"}, Nothing, broken, read_only=False),
        "plain": Tool("plain", "Complains.", {"type": "object"}, Nothing, plain),
        "slow": slow(signals),
    }


def catalog(signals: Signals | None = None) -> Catalog:
    return Catalog("mcp-pruner", "0.1.0", "Prune, then recover.", tools(signals or Signals()))


async def show_health(request: Request) -> Response:
    return json_answer(HEALTH)


async def show_metrics(request: Request) -> Response:
    return Response(b"calls 1\n", media_type="text/plain")


def app(rules: Rules | None = None, signals: Signals | None = None) -> ASGIApp:
    routes = [PageRoute("/health", show_health, Access.EVERYONE), PageRoute("/metrics", show_metrics, Access.ADMINS)]
    return mcp_app(catalog(signals), rules or Rules(), routes, lambda refusal: None)


@contextmanager
def listening(app: ASGIApp) -> Iterator[int]:
    """Serve `app` from a thread of its own; gives the port."""

    async def main(stop: asyncio.Event, on_ready: Callable[[str, int], None]) -> None:
        await serve(app, "127.0.0.1", 0, stop=stop, on_ready=on_ready)

    with in_thread(main) as port:
        yield port


@contextmanager
def in_thread(
    main: Callable[[asyncio.Event, Callable[[str, int], None]], Coroutine[None, None, None]],
) -> Iterator[int]:
    """Run a server in a thread of its own, until its event is set; gives the port that it calls back with."""
    ready, ports, stops = threading.Event(), list[int](), list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()

    def on_ready(host: str, port: int) -> None:
        ports.append(port)
        ready.set()

    async def until_stopped() -> None:
        stop = asyncio.Event()
        stops.append((asyncio.get_running_loop(), stop))
        await main(stop, on_ready)

    thread = threading.Thread(target=asyncio.run, args=(until_stopped(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield ports[0]
    finally:
        loop, stop = stops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        assert not thread.is_alive()
