"""The clients of all configured servers, each made when it is first needed and kept until the end."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

from kimi_proxy.core.config.servers import ALIASES, McpServer, McpSettings
from kimi_proxy.core.errors import UnknownServer
from kimi_proxy.core.json import JsonObject
from kimi_proxy.proxy.commands import child_env
from kimi_proxy.proxy.mcp.program import ServerProcess, ServerProgram
from kimi_proxy.proxy.mcp.protocol import McpClient, ServerIntroduction
from kimi_proxy.proxy.mcp.stdio import HttpProgramClient, StdioClient, StdioProcess
from kimi_proxy.proxy.process import Command, OrphanCleanup

AnyProgram: TypeAlias = ServerProgram[StdioProcess, ServerIntroduction] | ServerProgram[ServerProcess, McpClient]


class McpClients:
    """`headers` are what a server of ours needs from us, by its name; nothing of a client's goes along."""

    def __init__(
        self, mcp: McpSettings, env: Mapping[str, str], headers: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self._servers = mcp.switched_on()
        self._env = env
        self._headers = headers or {}
        self._orphans = OrphanCleanup()
        self._clients: dict[str, McpClient] = {}

    async def forward_jsonrpc(self, server_name: str, message: JsonObject) -> JsonObject | None:
        """Return what the server of that name answers to `message`."""
        return await self._client(server_name).forward(message, self._servers[server_name].timeout_s)

    def program(self, server_name: str) -> AnyProgram | None:
        """Return the program behind a server, if we run it."""
        client = self._client(server_name)
        return client.program if isinstance(client, StdioClient | HttpProgramClient) else None

    async def close(self) -> None:
        clients = list(self._clients.values())
        self._clients.clear()
        await asyncio.gather(*(client.close() for client in clients))
        self._orphans.close()

    def _client(self, server_name: str) -> McpClient:
        if server_name not in self._servers:
            raise UnknownServer(server_name, tuple(self._servers))
        name = ALIASES.get(server_name, server_name)
        if name not in self._clients:
            self._clients[name] = self._made(name, self._servers[name])
        return self._clients[name]

    def _made(self, name: str, server: McpServer) -> McpClient:
        env = {**child_env(self._env, server.env_pass), **server.env}
        command = Command((server.command, *server.args), env, server.root or None)
        if server.way == "stdio":
            return StdioClient(name, command, server.start_timeout_s, self._orphans)
        if server.is_run:
            client = partial(self._over_http, name, server)
            return HttpProgramClient(name, server.url, command, client, server.start_timeout_s, self._orphans)
        return self._over_http(name, server)

    def _over_http(self, name: str, server: McpServer) -> McpClient:
        headers = self._headers.get(name)
        from kimi_proxy.proxy.mcp.http import PlainHttp, StreamableHttp  # the HTTP client takes 0.2 s to load

        if server.way == "plain":
            return PlainHttp(name, server.url, headers)
        return StreamableHttp(name, server.url, server.start_timeout_s, headers)
