"""Our errors as others read them: JSON-RPC errors, advice for a model, HTTP answers."""

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kimi_proxy.core import jsonrpc, jsontext
from kimi_proxy.core.errors import InvalidParams, KimiProxyError
from kimi_proxy.core.jsonrpc import RpcId
from kimi_proxy.core.types import JsonObject, JsonValue

INTERNAL = "internal error: the server's log has the details"

# The router's own refusals, in our words.
_REFUSALS = {
    404: ("not_found", "there is nothing at this path"),
    405: ("method_not_allowed", "this path answers to other methods only: see the Allow header"),
}


def advice(error: KimiProxyError) -> str:
    """What a model reads when its tool call failed: the code, what is wrong, what to do next."""
    if isinstance(error, InvalidParams):
        return f"{error.code}: {error}. Correct the argument {error.field!r} and call the tool again."
    return f"{error.code}: {error}"


def rpc_failure(call_id: RpcId, error: Exception) -> JsonObject:
    """An error as the response to a call; an error that isn't ours says nothing of our insides."""
    if isinstance(error, KimiProxyError):
        return jsonrpc.failure_of(call_id, error)
    return jsonrpc.failure(call_id, KimiProxyError.rpc_code, INTERNAL, {"code": KimiProxyError.code})


async def on_own_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, KimiProxyError):
        raise error
    return problem(error.http_status, error.code, str(error))


async def on_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code, message = _REFUSALS.get(error.status_code, ("refused", error.detail))
    return problem(error.status_code, code, message, error.headers)


async def on_fault(request: Request, error: Exception) -> Response:
    return problem(KimiProxyError.http_status, KimiProxyError.code, INTERNAL)


def problem(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return json_answer({"error": {"code": code, "message": message}}, status, headers)


def json_answer(value: JsonValue, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(jsontext.encode(value), status, headers, "application/json")
