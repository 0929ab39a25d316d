"""The clients of all configured servers, each made when it is first needed and kept until the end."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from kimi_proxy.core.errors import UnknownServer
from kimi_proxy.core.servers import ALIASES, Mcp, McpServer
from kimi_proxy.core.types import JsonObject
from kimi_proxy.proxy.commands import child_env
from kimi_proxy.proxy.mcp.reaper import Reaper
from kimi_proxy.proxy.mcp.stdio import Command, Stdio


class Client(Protocol):
    async def forward(self, message: JsonObject, timeout_s: float) -> JsonObject | None:
        """The answer to a request, under its own id; None for whatever asks for none."""
        ...

    async def close(self) -> None: ...


class Upstreams:
    """`headers` are what a server of ours needs from us, by its name; nothing of a client's goes along."""

    def __init__(
        self, mcp: Mcp, env: Mapping[str, str], headers: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self._mcp = mcp
        self._env = env
        self._headers = headers or {}
        self._reaper = Reaper()
        self._clients: dict[str, Client] = {}

    async def forward_jsonrpc(self, server_name: str, message: JsonObject) -> JsonObject | None:
        """What the server of that name answers to `message`."""
        server = self._mcp.server(server_name)
        if server is None:
            raise UnknownServer(server_name, self._mcp.names)
        return await self._client(ALIASES.get(server_name, server_name), server).forward(message, server.timeout_s)

    async def close(self) -> None:
        clients = list(self._clients.values())
        self._clients.clear()
        await asyncio.gather(*(client.close() for client in clients))
        self._reaper.close()

    def _client(self, name: str, server: McpServer) -> Client:
        if name not in self._clients:
            self._clients[name] = self._made(name, server)
        return self._clients[name]

    def _made(self, name: str, server: McpServer) -> Client:
        headers = self._headers.get(name)
        match server.way:
            case "plain":
                from kimi_proxy.proxy.mcp.plain import Plain  # the HTTP client takes 0.2 s to load

                return Plain(name, server.url, headers)
            case "streamable":
                from kimi_proxy.proxy.mcp.streamable import Streamable

                return Streamable(name, server.url, server.start_timeout_s, headers)
            case "stdio":
                env = {**child_env(self._env, server.env_pass), **server.env}
                command = Command((server.command, *server.args), env, server.root or None)
                return Stdio(name, command, server.start_timeout_s, self._reaper)
