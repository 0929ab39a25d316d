"""`POST /prune`: swe-pruner's own route, for clients that know no other."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from kimi_proxy.api.errors import json_answer
from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.features.tool import checked
from kimi_proxy.services import swe_prune
from kimi_proxy.services.runtime import Runtime
from kimi_proxy.services.swe_prune import SwePrune


def endpoint(runtime: Runtime) -> Callable[[Request], Awaitable[Response]]:
    async def prune(request: Request) -> Response:
        body = jsontext.decode(await request.body())
        if not isinstance(body, dict):
            raise InvalidParams("body", "must be an object with code and query")
        return json_answer(await swe_prune.prune(checked(SwePrune, body), runtime.pruner))

    return prune
