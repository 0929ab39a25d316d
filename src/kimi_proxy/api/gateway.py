"""The gateway over HTTP: a server's name in the path, a JSON-RPC message in the body."""

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api import mcp
from kimi_proxy.api.answers import json_answer, object_in
from kimi_proxy.api.errors import rpc_failure
from kimi_proxy.api.mcp import NOTHING, Reply
from kimi_proxy.api.rpc import EVENTS, announced, json_reply, unless_gone
from kimi_proxy.core import json, jsonrpc
from kimi_proxy.core.errors import BadRequest, InvalidParams, KimiProxyError, MethodNotFound, location
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.mcp import REMOVED, STATELESS_VERSIONS
from kimi_proxy.features import recovery
from kimi_proxy.features.recovery import Recover
from kimi_proxy.features.tool import checked
from kimi_proxy.services.gateway import Gateway
from kimi_proxy.services.supervisor import LOG_LINES, Supervisor

PATH = "/api/mcp-gateway/{server_name}"

log = logging.getLogger(__name__)


def routes(gateway: Gateway) -> list[Route]:
    return [
        Route(f"{PATH}/rpc", _endpoint(gateway, mcp.RPC), methods=["POST"]),
        Route(f"{PATH}/mcp", _endpoint(gateway, mcp.MCP), methods=["POST"]),
    ]


def _endpoint(gateway: Gateway, door: mcp.Door) -> Callable[[Request], Awaitable[Response]]:
    async def post(request: Request) -> Response:
        headers, body = request.scope["headers"], await request.body()
        work = reply(gateway, request.path_params["server_name"], body, door, headers)
        # In the old era a lost connection says nothing; in the new one it takes the question back.
        work = unless_gone(work, request.receive) if _takes_back(headers) else work
        # Whoever wants to hear of the progress says so.
        if b"progressToken" in body and any(EVENTS in accepted for accepted in request.headers.getlist("accept")):
            return await announced(work)
        return json_reply(await work)

    return post


def _takes_back(headers: mcp.Headers) -> bool:
    versions = {value.decode("latin-1") for name, value in headers if name == mcp.VERSION_HEADER}
    return not versions.isdisjoint(STATELESS_VERSIONS)


async def reply(gateway: Gateway, server: str, raw: bytes, door: mcp.Door, headers: mcp.Headers) -> Reply:
    message: JsonValue = None
    try:
        message = json.decode(raw)
        gateway.check(server)
        if isinstance(message, list):
            return _of_batch(await gateway.handle_rpc(server, message))
        era = _era(message, door, headers)
        answer = await gateway.answer(server, message)
        return NOTHING if answer is None else Reply(answer, _status(answer, era))
    except KimiProxyError as e:
        return Reply(rpc_failure(jsonrpc.id_of(message), e), e.http_status)
    except Exception as e:  # noqa: BLE001 - whoever waits for this id gets an answer, whatever broke
        log.error("gateway failed", extra={"server": server[:80], "what": location(e)})
        return Reply(rpc_failure(jsonrpc.id_of(message), e), KimiProxyError.http_status)


def _of_batch(answers: JsonValue) -> Reply:
    if answers is None:
        return NOTHING
    return Reply(answers, 200 if isinstance(answers, list) else BadRequest.http_status)


def _era(message: JsonValue, door: mcp.Door, headers: mcp.Headers) -> mcp.Era:
    """The era that a message is of; one that comes in an envelope has to come in a good one."""
    call = jsonrpc.read(message)
    if call is None or call.notification:
        return door.era
    era = door.era_of(call, headers)
    if era.enveloped:
        mcp.check(call, headers, era.versions)
        if call.method in REMOVED:
            raise MethodNotFound(call.method)
    return era


def _status(answer: JsonObject, era: mcp.Era) -> int:
    """A server's own error is an answer like any other, except where the protocol ties it to a status."""
    return era.status_of(answer) if era.enveloped else 200


Endpoint = Callable[[Request], Awaitable[Response]]


class Chosen(BaseModel):
    """Which servers; none means all that we run."""

    model_config = ConfigDict(extra="forbid")

    names: list[str] = Field(default=[], max_length=1000)


class Asked(BaseModel):
    lines: int = Field(default=LOG_LINES, ge=1, le=100_000)


def server_routes(supervisor: Supervisor) -> list[Route]:
    return [
        Route("/api/mcp/servers", _servers_status(supervisor), methods=["GET"]),
        Route("/api/memory/servers", _servers_status(supervisor), methods=["GET"]),
        Route("/api/mcp/servers/up", _told(supervisor.up), methods=["POST"]),
        Route("/api/mcp/servers/down", _told(supervisor.down), methods=["POST"]),
        Route("/api/mcp/servers/restart", _told(supervisor.restart), methods=["POST"]),
        Route("/api/mcp/servers/{server_name}/logs", _logs(supervisor), methods=["GET"]),
    ]


def _servers_status(supervisor: Supervisor) -> Endpoint:
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


_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18})?)?", re.ASCII)


def endpoint(gateway: Gateway) -> Callable[[Request], Awaitable[Response]]:
    async def read_original(request: Request) -> Response:
        mask_id = request.path_params["mask_id"]
        asked = {"id": mask_id, **_span(request, "lines", "line"), **_span(request, "chars", "char")}
        text = await gateway.original(mask_id)
        part = recovery.part(text, checked(Recover, asked))
        return json_answer({"id": mask_id, "original_chars": len(text), "text": part})

    return read_original


def _span(request: Request, parameter: Literal["lines", "chars"], unit: str) -> dict[str, int]:
    """`?lines=10-20`, `?lines=10-` to the end, `?lines=10` for one."""
    given = request.query_params.get(parameter)
    if given is None:
        return {}
    found = _RANGE.fullmatch(given)
    if found is None:
        raise InvalidParams(parameter, "write it as 10-20, as 10- or as 10")
    start = int(found[1])
    single = start if parameter == "lines" else start + 1
    if "-" not in given:
        return {f"start_{unit}": start, f"end_{unit}": single}
    return {f"start_{unit}": start} | ({f"end_{unit}": int(found[2])} if found[2] else {})
