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
from kimi_proxy.api.mcp import NOTHING, RpcReply
from kimi_proxy.api.mcp.errors import rpc_failure
from kimi_proxy.api.mcp.http import EVENTS, json_reply, names_version, unless_gone, with_notices
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

Endpoint = Callable[[Request], Awaitable[Response]]

log = logging.getLogger(__name__)


def routes(gateway: Gateway) -> list[Route]:
    return [
        Route(f"{PATH}/rpc", _endpoint(gateway, mcp.RPC), methods=["POST"]),
        Route(f"{PATH}/mcp", _endpoint(gateway, mcp.MCP), methods=["POST"]),
    ]


def _endpoint(gateway: Gateway, versions: mcp.ProtocolVersions) -> Endpoint:
    async def post(request: Request) -> Response:
        headers, body = request.scope["headers"], await request.body()
        work = reply(gateway, request.path_params["server_name"], body, versions, headers)
        # With a handshake a lost connection says nothing; without one it takes the request back.
        work = unless_gone(work, request.receive) if names_version(headers, STATELESS_VERSIONS) else work
        # A client that wants notices of progress says so.
        if b"progressToken" in body and any(EVENTS in accepted for accepted in request.headers.getlist("accept")):
            return await with_notices(work)
        return json_reply(await work)

    return post


async def reply(
    gateway: Gateway, server: str, raw: bytes, versions: mcp.ProtocolVersions, headers: mcp.Headers
) -> RpcReply:
    message: JsonValue = None
    try:
        message = json.decode(raw)
        gateway.check(server)
        if isinstance(message, list):
            answers = await gateway.handle_rpc(server, message)
            status = 200 if isinstance(answers, list) else BadRequest.http_status
            return NOTHING if answers is None else RpcReply(answers, status)
        version = _version(message, versions, headers)
        answer = await gateway.answer(server, message)
        if answer is None:
            return NOTHING
        # A server's own error is an answer like any other, except where the protocol ties it to a status.
        return RpcReply(answer, version.status_of(answer) if version.enveloped else 200)
    except KimiProxyError as e:
        return RpcReply(rpc_failure(jsonrpc.id_of(message), e), e.http_status)
    except Exception as e:  # noqa: BLE001 - the caller waits for this id: it gets an answer, whatever broke
        log.error("gateway failed", extra={"server": server[:80], "what": location(e)})
        return RpcReply(rpc_failure(jsonrpc.id_of(message), e), KimiProxyError.http_status)


def _version(message: JsonValue, versions: mcp.ProtocolVersions, headers: mcp.Headers) -> mcp.ProtocolVersion:
    """Return the protocol version of a message; raise if it comes in an envelope that is not in order."""
    call = jsonrpc.read(message)
    if call is None or call.notification:
        return versions.default
    # Where there is but one version, its requests come in no envelope.
    version = versions.default if versions.stateless is None else versions.of(call, headers)
    if version.enveloped:
        mcp.check_envelope(call, headers, version.versions)
        if call.method in REMOVED:
            raise MethodNotFound(call.method)
    return version


class ServerNames(BaseModel):
    """Which servers; none means all that we run."""

    model_config = ConfigDict(extra="forbid")

    names: list[str] = Field(default=[], max_length=1000)


class LogLines(BaseModel):
    lines: int = Field(default=LOG_LINES, ge=1, le=100_000)


def server_routes(supervisor: Supervisor) -> list[Route]:
    async def status(request: Request) -> Response:
        return json_answer({"servers": await supervisor.status()})

    async def logs(request: Request) -> Response:
        name = request.path_params["server_name"]
        lines = checked(LogLines, dict(request.query_params)).lines
        return json_answer({"name": name, "log": supervisor.logs(name, lines)})

    return [
        Route("/api/mcp/servers", status, methods=["GET"]),
        Route("/api/memory/servers", status, methods=["GET"]),
        Route("/api/mcp/servers/up", _for_servers(supervisor.up), methods=["POST"]),
        Route("/api/mcp/servers/down", _for_servers(supervisor.down), methods=["POST"]),
        Route("/api/mcp/servers/restart", _for_servers(supervisor.restart), methods=["POST"]),
        Route("/api/mcp/servers/{server_name}/logs", logs, methods=["GET"]),
    ]


def _for_servers(work: Callable[[list[str]], Awaitable[list[JsonObject]]]) -> Endpoint:
    async def post(request: Request) -> Response:
        chosen = checked(ServerNames, await object_in(request, 'send {"names": ["…"]}, or nothing for all'))
        return json_answer({"servers": await work(chosen.names)})

    return post


_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18})?)?", re.ASCII)


def endpoint(gateway: Gateway) -> Endpoint:
    async def read_original(request: Request) -> Response:
        mask_id = request.path_params["mask_id"]
        arguments = {"id": mask_id, **_span(request, "lines", "line"), **_span(request, "chars", "char")}
        text = await gateway.original(mask_id)
        part = recovery.part(text, checked(Recover, arguments))
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
