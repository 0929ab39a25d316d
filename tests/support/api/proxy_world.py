"""The proxy with its gateway, on a real port, beside the tests in one event loop."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from kimi_proxy.api.server import serve
from kimi_proxy.assembly.apps import proxy_app
from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.config import Config, parse
from kimi_proxy.core.json import JsonValue


@dataclass(frozen=True)
class Proxy:
    runtime: Runtime
    port: int
    http: httpx.AsyncClient

    async def rpc(self, server: str, message: JsonValue, door: str = "rpc") -> httpx.Response:
        return await self.http.post(f"/api/mcp-gateway/{server}/{door}", json=message)

    async def call(self, server: str, name: str, **arguments: JsonValue) -> JsonValue:
        """The result of a tool call."""
        params: JsonValue = {"name": name, "arguments": arguments}
        response = await self.rpc(server, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        assert response.status_code == 200, response.text
        result: JsonValue = response.json()["result"]
        return result


def proxy(home: Path, toml: str, at_port: int = 0, **environment: str) -> AbstractAsyncContextManager[Proxy]:
    return proxy_of(parse(toml, environment, home), at_port)


@asynccontextmanager
async def proxy_of(config: Config, at_port: int = 0, env: Mapping[str, str] = os.environ) -> AsyncIterator[Proxy]:
    stop = asyncio.Event()
    ports: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with running(config, env=env) as runtime:
        listening = asyncio.create_task(
            serve(
                proxy_app(runtime),
                "127.0.0.1",
                at_port,
                stop=stop,
                token=True,
                on_ready=lambda host, port: ports.set_result(port),
            )
        )
        try:
            port = await ports
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}",
                timeout=60,
                trust_env=False,
                verify=False,  # certificates, which nothing here has, take 50 ms to load
            ) as http:
                yield Proxy(runtime, port, http)
        finally:
            stop.set()
            await listening
