"""`/api/compress` and `/api/compaction`: old exchanges give way to a summary, and come back."""

from collections.abc import Awaitable, Callable

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api.body import object_in
from kimi_proxy.api.errors import json_answer
from kimi_proxy.features.compression.preset import Preset
from kimi_proxy.features.tool import checked
from kimi_proxy.services.compressions import Compressions

Endpoint = Callable[[Request], Awaitable[Response]]


class Wish(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    force: bool = False


def routes(compressions: Compressions) -> list[Route]:
    light = [] if compressions.light is None else _routes("/api/compaction", compressions.light, compressions)
    return [*_routes("/api/compress", compressions.usual, compressions), *light]


def _routes(path: str, preset: Preset, compressions: Compressions) -> list[Route]:
    return [
        Route(f"{path}/stats", _all_stats(compressions), methods=["GET"]),
        Route(f"{path}/{{session_id}}", _compress(compressions, preset), methods=["POST"]),
        Route(f"{path}/{{session_id}}/simulate", _simulate(compressions, preset), methods=["POST"]),
        Route(f"{path}/{{session_id}}/undo", _undo(compressions), methods=["POST"]),
        Route(f"{path}/{{session_id}}/stats", _stats(compressions), methods=["GET"]),
    ]


def _compress(compressions: Compressions, preset: Preset) -> Endpoint:
    async def compress(request: Request) -> Response:
        wish = checked(Wish, await object_in(request, 'send {"force": true}, or nothing'))
        is_forced = wish.force or request.query_params.get("force", "").lower() in ("1", "true")
        fullness = await compressions.fullness(_session(request), preset)
        if fullness.is_below and not is_forced:
            return json_answer(fullness.told(), 400)
        return json_answer(await compressions.compress(_session(request), preset))

    return compress


def _simulate(compressions: Compressions, preset: Preset) -> Endpoint:
    async def simulate(request: Request) -> Response:
        return json_answer(await compressions.simulate(_session(request), preset))

    return simulate


def _undo(compressions: Compressions) -> Endpoint:
    async def undo(request: Request) -> Response:
        return json_answer(await compressions.undo(_session(request)))

    return undo


def _stats(compressions: Compressions) -> Endpoint:
    async def stats(request: Request) -> Response:
        return json_answer(await compressions.stats(_session(request)))

    return stats


def _all_stats(compressions: Compressions) -> Endpoint:
    async def stats(request: Request) -> Response:
        return json_answer(await compressions.stats())

    return stats


def _session(request: Request) -> str:
    return str(request.path_params["session_id"])
