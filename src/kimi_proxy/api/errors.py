"""Errors as HTTP answers, in the shape of each API."""

import math
import re
from collections.abc import Container, Mapping
from typing import Literal

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kimi_proxy.api.mcp import INTERNAL
from kimi_proxy.api.routing import caller_of, json_answer
from kimi_proxy.core.chat.wires import Wire, wire_of_path
from kimi_proxy.core.chat.wires.protocol import ROOT
from kimi_proxy.core.errors import KimiProxyError, RateLimited
from kimi_proxy.core.json import JsonObject

# Refusals that are no KimiProxyError: of the guard, the router, and a server that stops.
RefusalCode = Literal[
    "host",
    "origin",
    "cross_site",
    "token_required",
    "people_unavailable",
    "admins_only",
    "content_encoding",
    "content_type",
    "body_too_large",
    "body_timeout",
    "body_incomplete",
    "not_found",
    "method_not_allowed",
    "refused",
    "other_user",
    "crowded",
    "stopping",
    "upgrade_required",
]

OLLAMA_PATHS = frozenset({"/api/chat", "/api/tags", "/api/show"})  # there an error is a text

# Messages for the router's refusals.
_REFUSALS: Mapping[int, tuple[RefusalCode, str]] = {
    404: ("not_found", "there is nothing at this path"),
    405: ("method_not_allowed", "this path answers to other methods only: see the Allow header"),
}


# Other APIs of Bedrock. A 404 makes Claude Code blame an administrator.
_OTHER_CLOUDS = re.compile(r"/model/.+/converse(?:-\w+)*|/inference-profiles.*")
_OTHER_CLOUD = (
    "of Bedrock kimi-proxy serves InvokeModel, InvokeModelWithResponseStream and CountTokens: call the cloud itself "
    "for this"
)


async def on_own_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, KimiProxyError):
        raise error
    headers = {"retry-after": str(math.ceil(error.retry_after_s))} if isinstance(error, RateLimited) else None
    shown = error.explain(caller_of(request))
    return problem(
        error.http_status, error.code, shown, headers, _path(request), data=error.data(), sent=request.headers
    )


async def on_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code, message = _REFUSALS.get(error.status_code, ("refused", error.detail))
    if error.status_code == 404 and _OTHER_CLOUDS.fullmatch(_path(request)):
        return json_answer(Wire.MESSAGES.format.error_body(400, "other_cloud", _OTHER_CLOUD), 400)
    if error.status_code == 404 and _path(request).startswith(ROOT):
        message = "kimi-proxy does not relay this path of the API: call the provider itself for it"
    return problem(error.status_code, code, message, error.headers, _path(request), sent=request.headers)


async def on_fault(request: Request, error: Exception) -> Response:
    return problem(KimiProxyError.http_status, KimiProxyError.code, INTERNAL, None, _path(request))


def refusal(
    status: int, code: RefusalCode, message: str, headers: Mapping[str, str] | None = None, path: str = ""
) -> Response:
    return problem(status, code, message, headers, path)


def problem(
    status: int,
    code: str,
    message: str,
    headers: Mapping[str, str] | None = None,
    path: str = "",
    data: JsonObject | None = None,
    sent: Container[str] = (),
) -> Response:
    """Return an error in the shape that clients of `path` expect; `data` are further fields for programs.

    `sent` are the headers of the request, which tell APIs apart that have a path in common.
    """
    if path in OLLAMA_PATHS:
        return json_answer({"error": message}, status, headers)
    if wire := wire_of_path(path, sent):
        return json_answer(wire.format.error_body(status, code, message), status, headers)
    return json_answer({"error": {**(data or {}), "code": code, "message": message}}, status, headers)


def _path(request: Request) -> str:
    return str(request.scope["path"])
