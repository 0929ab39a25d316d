"""The gateway over HTTP: a server's name in the path, a JSON-RPC message in the body."""

import logging
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api import envelope, eras
from kimi_proxy.api.errors import rpc_failure
from kimi_proxy.api.mcp import NOTHING, Reply
from kimi_proxy.api.notices import EVENTS, announced, json_reply
from kimi_proxy.api.rpc import unless_gone
from kimi_proxy.core import jsonrpc, jsontext, mcp
from kimi_proxy.core.errors import BadRequest, KimiProxyError, MethodNotFound
from kimi_proxy.core.fault import place
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.services.gateway import Gateway

PATH = "/api/mcp-gateway/{server_name}"

log = logging.getLogger(__name__)


def routes(gateway: Gateway) -> list[Route]:
    return [
        Route(f"{PATH}/rpc", _endpoint(gateway, eras.RPC), methods=["POST"]),
        Route(f"{PATH}/mcp", _endpoint(gateway, eras.MCP), methods=["POST"]),
    ]


def _endpoint(gateway: Gateway, door: eras.Door) -> Callable[[Request], Awaitable[Response]]:
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


def _takes_back(headers: envelope.Headers) -> bool:
    versions = {value.decode("latin-1") for name, value in headers if name == envelope.VERSION_HEADER}
    return not versions.isdisjoint(mcp.STATELESS_VERSIONS)


async def reply(gateway: Gateway, server: str, raw: bytes, door: eras.Door, headers: envelope.Headers) -> Reply:
    message: JsonValue = None
    try:
        message = jsontext.decode(raw)
        gateway.check(server)
        if isinstance(message, list):
            return _of_batch(await gateway.handle_rpc(server, message))
        era = _era(message, door, headers)
        answer = await gateway.answer(server, message)
        return NOTHING if answer is None else Reply(answer, _status(answer, era))
    except KimiProxyError as e:
        return Reply(rpc_failure(jsonrpc.id_of(message), e), e.http_status)
    except Exception as e:  # noqa: BLE001 - whoever waits for this id gets an answer, whatever broke
        log.error("gateway failed", extra={"server": server[:80], "what": place(e)})
        return Reply(rpc_failure(jsonrpc.id_of(message), e), KimiProxyError.http_status)


def _of_batch(answers: JsonValue) -> Reply:
    if answers is None:
        return NOTHING
    return Reply(answers, 200 if isinstance(answers, list) else BadRequest.http_status)


def _era(message: JsonValue, door: eras.Door, headers: envelope.Headers) -> eras.Era:
    """The era that a message is of; one that comes in an envelope has to come in a good one."""
    call = jsonrpc.read(message)
    if call is None or call.notification:
        return door.era
    era = door.era_of(call, headers)
    if era.enveloped:
        envelope.check(call, headers, era.versions)
        if call.method in mcp.REMOVED:
            raise MethodNotFound(call.method)
    return era


def _status(answer: JsonObject, era: eras.Era) -> int:
    """A server's own error is an answer like any other, except where the protocol ties it to a status."""
    return era.status_of(answer) if era.enveloped else 200
