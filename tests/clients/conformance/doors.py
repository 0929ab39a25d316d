"""The fixtures behind the product: its own dispatch, protocol versions, guard and server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.clients.conformance.fixtures import CAPABILITIES, METHODS, OLDER, Refusal

from kimi_proxy.api.guard import Rules
from kimi_proxy.api.mcp import HANDSHAKE, STATELESS, Catalog, Method, ProtocolVersions
from kimi_proxy.api.mcp.http import endpoint, rpc_spec
from kimi_proxy.api.routing import DescribedRoute
from kimi_proxy.api.server import serve
from kimi_proxy.assembly.apps import behind_guard
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import BadRequest
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.mcp import HANDSHAKE_VERSIONS, STATELESS_VERSIONS

CATALOG = Catalog("fixtures", "1", "", {})
OLDER_CAPABILITIES: JsonObject = {**CAPABILITIES, "logging": {}, "resources": {"subscribe": True}}


class Refused(BadRequest):
    """A fixture's refusal as an error of ours."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.rpc_code = refusal.code  # type: ignore[misc]
        self._data = refusal.data

    def data(self) -> JsonObject:
        return self._data


def method(work: Callable[[JsonObject], JsonObject]) -> Method:
    async def serve_it(who: Caller, catalog: Catalog, params: JsonObject) -> JsonObject:
        try:
            return work(params)
        except Refusal as e:
            raise Refused(e) from e

    return serve_it


def methods(served: Mapping[str, Callable[[JsonObject], JsonObject]]) -> dict[str, Method]:
    return {name: method(work) for name, work in served.items()}


def initialize(params: JsonObject) -> JsonObject:
    return {
        "protocolVersion": HANDSHAKE_VERSIONS[0],
        "capabilities": OLDER_CAPABILITIES,
        "serverInfo": CATALOG.info(),
    }


def discover(params: JsonObject) -> JsonObject:
    return {"supportedVersions": STATELESS_VERSIONS, "capabilities": CAPABILITIES}


VERSIONS = ProtocolVersions(
    replace(HANDSHAKE, methods=methods({**METHODS, **OLDER, "initialize": initialize})),
    replace(STATELESS, methods=methods({**METHODS, "server/discover": discover})),
)


@asynccontextmanager
async def fixtures_on_a_port() -> AsyncIterator[int]:
    app = behind_guard([DescribedRoute("POST", "/mcp", endpoint(VERSIONS, CATALOG), rpc_spec(""))], Rules())
    stop = asyncio.Event()
    ports: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    ready = lambda host, port: ports.set_result(port)  # noqa: E731
    serving = asyncio.create_task(serve(app, "127.0.0.1", 0, stop=stop, on_ready=ready))
    try:
        yield await ports
    finally:
        stop.set()
        await serving
