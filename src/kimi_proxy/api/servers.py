"""The MCP servers behind the gateway, for people: how they are doing, what they say, and which of ours should run."""

from collections.abc import Awaitable, Callable

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api.body import object_in
from kimi_proxy.api.errors import json_answer
from kimi_proxy.core.types import JsonObject
from kimi_proxy.features.tool import checked
from kimi_proxy.services.supervisor import LOG_LINES, Supervisor

Endpoint = Callable[[Request], Awaitable[Response]]


class Chosen(BaseModel):
    """Which servers; none means all that we run."""

    model_config = ConfigDict(extra="forbid")

    names: list[str] = Field(default=[], max_length=1000)


class Asked(BaseModel):
    lines: int = Field(default=LOG_LINES, ge=1, le=100_000)


def routes(supervisor: Supervisor) -> list[Route]:
    return [
        Route("/api/mcp/servers", _status(supervisor), methods=["GET"]),
        Route("/api/memory/servers", _status(supervisor), methods=["GET"]),
        Route("/api/mcp/servers/up", _told(supervisor.up), methods=["POST"]),
        Route("/api/mcp/servers/down", _told(supervisor.down), methods=["POST"]),
        Route("/api/mcp/servers/restart", _told(supervisor.restart), methods=["POST"]),
        Route("/api/mcp/servers/{server_name}/logs", _logs(supervisor), methods=["GET"]),
    ]


def _status(supervisor: Supervisor) -> Endpoint:
    async def status(request: Request) -> Response:
        return json_answer({"servers": await supervisor.status()})

    return status


def _told(work: Callable[[list[str]], Awaitable[list[JsonObject]]]) -> Endpoint:
    async def told(request: Request) -> Response:
        chosen = checked(Chosen, await object_in(request, 'send {"names": ["…"]}, or nothing for all'))
        return json_answer({"servers": await work(chosen.names)})

    return told


def _logs(supervisor: Supervisor) -> Endpoint:
    async def logs(request: Request) -> Response:
        name = request.path_params["server_name"]
        lines = checked(Asked, dict(request.query_params)).lines
        return json_answer({"name": name, "log": supervisor.logs(name, lines)})

    return logs
