"""`GET /api/mask/{id}`: the text behind a marker."""

import re
from collections.abc import Awaitable, Callable
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from kimi_proxy.api.errors import json_answer
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.features import redeem
from kimi_proxy.features.redeem import Recover
from kimi_proxy.features.tool import checked
from kimi_proxy.services.gateway import Gateway

_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18})?)?", re.ASCII)


def endpoint(gateway: Gateway) -> Callable[[Request], Awaitable[Response]]:
    async def read_original(request: Request) -> Response:
        mask_id = request.path_params["mask_id"]
        asked = {"id": mask_id, **_span(request, "lines", "line"), **_span(request, "chars", "char")}
        text = await gateway.original(mask_id)
        part = redeem.part(text, checked(Recover, asked))
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
