"""The gateway over HTTP: a server's name in the path, a JSON-RPC message in the body."""

import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api import mcp
from kimi_proxy.api.mcp import NOTHING, Catalog, RpcReply, rpc_failure
from kimi_proxy.api.mcp.http import (
    EVENTS,
    cancel_on_disconnect,
    endpoint,
    json_reply,
    names_version,
    rpc_spec,
    with_notices,
)
from kimi_proxy.api.routing import Access, DescribedRoute, RouteSpec, body, caller_of, json_route, query
from kimi_proxy.core import json, jsonrpc
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import (
    BadRequest,
    InvalidParams,
    InvalidRange,
    KimiProxyError,
    MethodNotFound,
    PruneIdNotFound,
    ServerNotRun,
    UnknownServer,
    UpstreamTimeout,
    UpstreamUnreachable,
    UpstreamUnreadable,
    location,
)
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.mcp import REMOVED, STATELESS_VERSIONS
from kimi_proxy.core.prune import Numbering
from kimi_proxy.features.recovery import EVERYTHING, TO_END, LineRange, Selection, check
from kimi_proxy.services.gateway import Gateway
from kimi_proxy.services.gateway.supervisor import LOG_LINES, ServerBody, Supervisor
from kimi_proxy.services.recover import Recovery

if TYPE_CHECKING:
    from kimi_proxy.services.gateway.tool_directory import ToolDirectory

ALL = "/api/mcp-gateway"
PATH = f"{ALL}/{{server_name}}"

Endpoint = Callable[[Request], Awaitable[Response]]

log = logging.getLogger(__name__)


CALL = replace(
    rpc_spec("Pass a JSON-RPC message to an MCP server"),
    raises=(UnknownServer, UpstreamUnreachable, UpstreamTimeout, UpstreamUnreadable),
)


class ToolsQuery(BaseModel):
    """The listing mode: a few tools that search and call all others, or all tools."""

    tools: Literal["search", "all"] = "search"


CALL_ANY = replace(rpc_spec("Call the tools of all MCP servers through one endpoint"), query=ToolsQuery)


def routes(gateway: Gateway, pruner: Catalog) -> list[DescribedRoute]:
    """Return the routes of the gateway; it calls `pruner` in this process, for the person who calls."""

    async def call_pruner(who: Caller, message: JsonObject) -> JsonObject | None:
        answer = (await mcp.reply_to(who, message, mcp.IN_PROCESS, pruner)).value
        return answer if isinstance(answer, dict) else None

    gateway.own_pruner = call_pruner

    @cache
    def directory() -> "ToolDirectory":
        # It is loaded with the first question about the tools of all servers.
        from kimi_proxy.services.gateway.tool_directory import ToolDirectory

        return ToolDirectory(gateway)

    return [
        DescribedRoute("POST", f"{PATH}/rpc", _endpoint(gateway, mcp.RPC), CALL),
        DescribedRoute("POST", f"{PATH}/mcp", _endpoint(gateway, mcp.MCP), CALL),
        DescribedRoute("POST", f"{ALL}/rpc", _all_tools_endpoint(directory, mcp.RPC), CALL_ANY),
        DescribedRoute("POST", f"{ALL}/mcp", _all_tools_endpoint(directory, mcp.MCP), CALL_ANY),
    ]


def _all_tools_endpoint(directory: "Callable[[], ToolDirectory]", versions: mcp.ProtocolVersions) -> Endpoint:
    async def post(request: Request) -> Response:
        from kimi_proxy.api.mcp.gateway_catalog import gateway_catalog

        asked = query(request, ToolsQuery)
        catalog = await gateway_catalog(directory(), caller_of(request), asked.tools == "all")
        return await endpoint(versions, catalog)(request)

    return post


def _endpoint(gateway: Gateway, versions: mcp.ProtocolVersions) -> Endpoint:
    async def post(request: Request) -> Response:
        headers = request.scope["headers"]
        raw = await request.body()
        work = reply(caller_of(request), gateway, request.path_params["server_name"], raw, versions, headers)
        # With a handshake, a lost connection has no meaning; without one, it cancels the request.
        work = cancel_on_disconnect(work, request.receive) if names_version(headers, STATELESS_VERSIONS) else work
        # A client that wants progress notifications declares it.
        if b"progressToken" in raw and any(EVENTS in accepted for accepted in request.headers.getlist("accept")):
            return await with_notices(work)
        return json_reply(await work)

    return post


async def reply(
    who: Caller, gateway: Gateway, server: str, raw: bytes, versions: mcp.ProtocolVersions, headers: mcp.Headers
) -> RpcReply:
    message: JsonValue = None
    try:
        message = json.decode(raw)
        gateway.check(server)
        if isinstance(message, list):
            answers = await gateway.handle_rpc(who, server, message)
            status = 200 if isinstance(answers, list) else BadRequest.http_status
            return NOTHING if answers is None else RpcReply(answers, status)
        version = _version(message, versions, headers)
        answer = await gateway.answer(who, server, message)
        if answer is None:
            return NOTHING
        # A server's own error is an answer like any other, except where the protocol ties it to a status.
        return RpcReply(answer, version.status_of(answer) if version.enveloped else 200)
    except KimiProxyError as e:
        return RpcReply(rpc_failure(jsonrpc.id_of(message), e, who), e.http_status)
    except Exception as e:  # noqa: BLE001 - the caller waits for this id: it gets an answer, whatever broke
        log.error("gateway failed", extra={"server": server[:80], "what": location(e)})
        return RpcReply(rpc_failure(jsonrpc.id_of(message), e), KimiProxyError.http_status)


def _version(message: JsonValue, versions: mcp.ProtocolVersions, headers: mcp.Headers) -> mcp.ProtocolVersion:
    """Return the protocol version of a message; raise if its envelope is not valid."""
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
    """The servers to act on; none means all that we run."""

    model_config = ConfigDict(extra="forbid")

    names: list[str] = Field(default=[], max_length=1000)


class LogLines(BaseModel):
    lines: int = Field(default=LOG_LINES, ge=1, le=100_000)


STATUS = RouteSpec("Show the state of the MCP servers behind the gateway", access=Access.PEOPLE)
NOT_OURS = (UnknownServer, ServerNotRun)


class ServersBody(TypedDict):
    servers: list[ServerBody]


class ServerLogBody(TypedDict):
    name: str
    log: str


def server_routes(supervisor: Supervisor) -> list[Route]:
    async def status(request: Request) -> ServersBody:
        return {"servers": await supervisor.status(caller_of(request))}

    async def logs(request: Request) -> ServerLogBody:
        name = str(request.path_params["server_name"])
        return {"name": name, "log": supervisor.logs(name, query(request, LogLines).lines)}

    def work_route(name: str, work: Callable[[list[str]], Awaitable[list[ServerBody]]]) -> Route:
        async def post(request: Request) -> ServersBody:
            chosen = await body(request, ServerNames, 'send {"names": ["…"]}, or nothing for all')
            return {"servers": await work(chosen.names)}

        summary = f"{name.capitalize()} MCP servers that kimi-proxy runs"
        spec = RouteSpec(summary, body=ServerNames, raises=NOT_OURS, access=Access.ADMINS)
        return json_route("POST", f"/api/mcp/servers/{name}", post, spec)

    log_spec = RouteSpec("Show the last lines of a server's log", query=LogLines, raises=NOT_OURS, access=Access.ADMINS)
    return [
        json_route("GET", "/api/mcp/servers", status, STATUS),
        json_route("GET", "/api/memory/servers", status, STATUS),
        work_route("up", supervisor.up),
        work_route("down", supervisor.stop),
        work_route("restart", supervisor.restart),
        json_route("GET", "/api/mcp/servers/{server_name}/logs", logs, log_spec),
    ]


_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18})?)?", re.ASCII)


class OriginalPart(BaseModel):
    """Ranges of lines, or one of characters: `10-20`, `10-` to the end, `10` for one, `10-20,40` for several."""

    lines: str | None = Field(default=None, json_schema_extra={"pattern": f"^{_RANGE.pattern}(?:,{_RANGE.pattern})*$"})
    chars: str | None = Field(default=None, json_schema_extra={"pattern": f"^{_RANGE.pattern}$"})


ORIGINAL = RouteSpec(
    "Return the text behind a marker",
    query=OriginalPart,
    raises=(PruneIdNotFound, InvalidRange),
    access=Access.PEOPLE,
)


class OriginalBody(TypedDict):
    id: str
    original_chars: int
    numbering: Numbering
    text: str


class DeletedOriginalBody(TypedDict):
    id: str
    deleted: bool


DELETE_ORIGINAL = RouteSpec("Delete the text behind a marker", raises=(PruneIdNotFound,), access=Access.PEOPLE)


def original_routes(recovery: Recovery) -> list[Route]:
    async def read_original(request: Request) -> OriginalBody:
        mask_id = str(request.path_params["mask_id"])
        found = await recovery.read(caller_of(request), mask_id, _parse_selection(query(request, OriginalPart)))
        return {"id": mask_id, "original_chars": found.chars, "numbering": found.numbering, "text": found.text}

    async def delete_original(request: Request) -> DeletedOriginalBody:
        mask_id = str(request.path_params["mask_id"])
        await recovery.delete(caller_of(request), mask_id)
        return {"id": mask_id, "deleted": True}

    return [
        json_route("GET", "/api/mask/{mask_id}", read_original, ORIGINAL),
        json_route("DELETE", "/api/mask/{mask_id}", delete_original, DELETE_ORIGINAL),
    ]


def _parse_selection(asked: OriginalPart) -> Selection:
    if asked.lines is not None and asked.chars is not None:
        raise InvalidRange("request either lines or characters, not both")
    if asked.chars is not None:
        start, end = _range("chars", asked.chars)
        if end is not None and end < start:
            raise InvalidRange(f"characters {asked.chars} are not a range: characters are counted from 0")
        return Selection(chars=(start, start + 1 if "-" not in asked.chars else TO_END if end is None else end))
    if asked.lines is None:
        return EVERYTHING
    ranges = tuple(_line_range(part) for part in asked.lines.split(","))
    check(ranges)
    return Selection(ranges)


def _line_range(given: str) -> LineRange:
    start, end = _range("lines", given)
    return start, start if "-" not in given else TO_END if end is None else end


def _range(parameter: Literal["lines", "chars"], given: str) -> tuple[int, int | None]:
    found = _RANGE.fullmatch(given.strip())
    if found is None:
        raise InvalidParams(parameter, "write it as 10-20, as 10- or as 10")
    return int(found[1]), int(found[2]) if found[2] else None
