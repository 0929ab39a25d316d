"""Our errors as others read them: JSON-RPC errors, advice for a model, HTTP answers in the shape of each API."""

import gzip
import math
import re
from collections.abc import Mapping
from typing import Literal

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kimi_proxy.core import json, jsonrpc
from kimi_proxy.core.chat.wires import BY_PATH
from kimi_proxy.core.errors import InvalidParams, KimiProxyError, RateLimited
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.jsonrpc import RpcId

WORTH_BYTES = 4096
LEVEL = 1  # each is packed while somebody waits

_REFUSED = re.compile(r"\s*q\s*=\s*0(\.0*)?\s*")


def listed(request: Request, header: str) -> set[str]:
    """The values of a header that lists some, without what follows a `;`, unless that refuses them."""
    values = (each.strip().partition(";") for each in request.headers.get(header, "").split(","))
    return {value.strip() for value, _, weight in values if not _REFUSED.fullmatch(weight)}


def unpacks(request: Request) -> bool:
    return "gzip" in listed(request, "accept-encoding")


def packed_answer(request: Request, value: JsonValue) -> Response:
    """For lists that grow with what has happened."""
    body, headers = json.encode(value), {"vary": "accept-encoding"}
    if len(body) >= WORTH_BYTES and unpacks(request):
        body, headers = gzip.compress(body, LEVEL, mtime=0), {**headers, "content-encoding": "gzip"}
    return Response(body, headers=headers, media_type="application/json")


INTERNAL = "internal error: the server's log has the details"

# Refusals that are nobody's error: of the guard, of the router, of a server that stops.
Refused = Literal[
    "host",
    "origin",
    "cross_site",
    "token_required",
    "content_encoding",
    "content_type",
    "body_too_large",
    "body_timeout",
    "body_incomplete",
    "not_found",
    "method_not_allowed",
    "refused",
    "crowded",
    "stopping",
]

# The router's own refusals, in our words.
_REFUSALS: Mapping[int, tuple[Refused, str]] = {
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
    headers = {"retry-after": str(math.ceil(error.retry_after_s))} if isinstance(error, RateLimited) else None
    return problem(error.http_status, error.code, str(error), headers, _path(request), error.data())


async def on_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code, message = _REFUSALS.get(error.status_code, ("refused", error.detail))
    return refusal(error.status_code, code, message, error.headers, _path(request))


async def on_fault(request: Request, error: Exception) -> Response:
    return problem(KimiProxyError.http_status, KimiProxyError.code, INTERNAL, None, _path(request))


def refusal(
    status: int, code: Refused, message: str, headers: Mapping[str, str] | None = None, path: str = ""
) -> Response:
    return problem(status, code, message, headers, path)


def problem(
    status: int,
    code: str,
    message: str,
    headers: Mapping[str, str] | None = None,
    path: str = "",
    data: JsonObject | None = None,
) -> Response:
    """An error as the clients of `path` expect it; `data` is what a program may want to read beside the message."""
    if path in BY_PATH:
        return json_answer(BY_PATH[path].format.error_body(status, code, message), status, headers)
    return json_answer({"error": {**(data or {}), "code": code, "message": message}}, status, headers)


def _path(request: Request) -> str:
    return str(request.scope["path"])


def json_answer(value: JsonValue, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.encode(value), status, headers, "application/json")


async def object_in(request: Request, advice: str) -> dict[str, JsonValue]:
    """No body is an empty object; `advice` says what to send in place of anything else."""
    value = json.decode((await request.body()).strip() or b"{}")
    if not isinstance(value, dict):
        raise InvalidParams("body", advice)
    return value
