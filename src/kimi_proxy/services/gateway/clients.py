"""The clients of the MCP servers behind the gateway, and the processes that people have of their own."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from kimi_proxy.core.caller import ANONYMOUS, Caller
from kimi_proxy.core.config.servers import ALIASES, McpServer, McpSettings
from kimi_proxy.core.errors import ServerNotRun, UnknownServer, UpstreamUnreachable
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features import gateway
from kimi_proxy.proxy.commands import child_env
from kimi_proxy.proxy.mcp.program import ServerProcess, ServerProgram
from kimi_proxy.proxy.mcp.protocol import McpClient, ServerIntroduction
from kimi_proxy.proxy.mcp.stdio import HttpProgramClient, StdioClient, StdioProcess
from kimi_proxy.proxy.process import Command, OrphanCleanup

MAX_PEOPLE = 32  # with a process of their own of one server
IDLE_S = 1800.0  # after which the process of a person ends, at the next call of anybody
RETRY_S = 10.0

AnyProgram: TypeAlias = ServerProgram[StdioProcess, ServerIntroduction] | ServerProgram[ServerProcess, McpClient]


@dataclass(slots=True)
class PersonalClient:
    """A person's own process of a server."""

    client: McpClient
    used_at: float
    calls: int = 0  # that run


class McpClients:
    """One client for each server, made when it is first needed and kept until the end.

    A program on standard input and output has one state for all who call it. In a team each person therefore has a
    process of their own, unless the settings say otherwise; without a person's id it is the process of the server.
    """

    def __init__(
        self,
        settings: McpSettings,
        env: Mapping[str, str],
        is_team: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._servers = settings.switched_on()
        self._env = env
        self._is_team = is_team
        self._now = now
        self._orphans = OrphanCleanup()
        self._clients: dict[str, McpClient] = {}
        self._personal: dict[tuple[str, str], PersonalClient] = {}  # by server and person, the one used last at the end
        self._ending: set[asyncio.Task[None]] = set()

    async def forward_jsonrpc(
        self, server_name: str, message: JsonObject, who: Caller = ANONYMOUS
    ) -> JsonObject | None:
        """Return the response of the server with that name to `message`."""
        server = self._server(server_name)
        person = self.person_of(server_name, who)
        if not person:
            return await self._client(server_name).forward(message, server.timeout_s)
        personal = self._personal_client(ALIASES.get(server_name, server_name), person)
        personal.calls += 1
        try:
            return await personal.client.forward(message, server.timeout_s)
        finally:
            personal.calls -= 1
            personal.used_at = self._now()

    def person_of(self, server_name: str, who: Caller) -> str:
        """Return the id of the person whose own process answers; "" if all share one."""
        server = self._server(server_name)
        is_personal = server.per == "person" or (server.per == "auto" and self._is_team)
        return who.person_id if is_personal and server.way == "stdio" else ""

    async def end_personal(self, server_name: str) -> None:
        """End the processes that people have of a server."""
        for place in [place for place in self._personal if place[0] == server_name]:
            self._end(place)
        if self._ending:
            await asyncio.wait(self._ending)

    def program(self, server_name: str) -> AnyProgram | None:
        """Return the program behind a server, if we run it."""
        client = self._client(server_name)
        return client.program if isinstance(client, StdioClient | HttpProgramClient) else None

    async def close(self) -> None:
        clients = [*self._clients.values(), *(each.client for each in self._personal.values())]
        self._clients.clear()
        self._personal.clear()
        await asyncio.gather(*(client.close() for client in clients), *self._ending)
        self._orphans.close()

    def _server(self, server_name: str) -> McpServer:
        if server_name not in self._servers:
            raise UnknownServer(server_name, tuple(self._servers))
        return self._servers[server_name]

    def _personal_client(self, name: str, person: str) -> PersonalClient:
        """Return a person's own client. Raise UpstreamUnreachable if too many people use the server at once."""
        program = self.program(name)
        if program is not None:
            program.refuse_if_stopped()
        self._end_idle(name)
        place = name, person
        found = self._personal.pop(place, None)
        if found is None:
            found = PersonalClient(self._make_client(name, self._servers[name]), self._now())
        self._personal[place] = found
        return found

    def _end_idle(self, name: str) -> None:
        """End the processes that were idle for long, and that of the person who was idle longest if there are many."""
        idle = [place for place, each in self._personal.items() if not each.calls]
        for place in idle:
            if self._now() - self._personal[place].used_at > IDLE_S:
                self._end(place)
        own = [place for place in self._personal if place[0] == name]
        if len(own) < MAX_PEOPLE:
            return
        longest = next((place for place in own if place in idle), None)
        if longest is None:
            raise UpstreamUnreachable(f"{name} serves {MAX_PEOPLE} people at this moment: try again later", RETRY_S)
        self._end(longest)

    def _end(self, place: tuple[str, str]) -> None:
        task = asyncio.create_task(self._personal.pop(place).client.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _client(self, server_name: str) -> McpClient:
        self._server(server_name)
        name = ALIASES.get(server_name, server_name)
        if name not in self._clients:
            self._clients[name] = self._make_client(name, self._servers[name])
        return self._clients[name]

    def _make_client(self, name: str, server: McpServer) -> McpClient:
        if server.lacks_root:
            raise ServerNotRun(
                "no_root",
                f'{name} is not started without a folder: set root in [mcp.servers.{name}] ("/" allows everything)',
            )
        own = {name: value.get_secret_value() for name, value in server.env.items()}
        env = {**child_env(self._env, server.env_pass), **own}
        arguments = server.arguments
        secrets = gateway.secrets_of(arguments, own, [env[name] for name in server.env_pass if name in env])
        command = Command((server.command, *arguments), env, server.folder, secrets)
        if server.way == "stdio":
            return StdioClient(name, command, server.start_timeout_s, self._orphans)
        if server.is_run:
            client = partial(self._over_http, name, server)
            return HttpProgramClient(
                name, server.url.get_secret_value(), command, client, server.start_timeout_s, self._orphans
            )
        return self._over_http(name, server)

    def _over_http(self, name: str, server: McpServer) -> McpClient:
        from kimi_proxy.proxy.mcp.http import PlainHttp, StreamableHttp  # the HTTP client takes 0.2 s to load

        if server.way == "plain":
            return PlainHttp(name, server.url.get_secret_value())
        return StreamableHttp(name, server.url.get_secret_value(), server.start_timeout_s)
