"""`/api/sanitizer` and `/api/mask`: what was left out of chat requests, and the switch."""

from collections.abc import Awaitable, Callable

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api.body import object_in
from kimi_proxy.api.errors import json_answer
from kimi_proxy.features.tool import checked
from kimi_proxy.services.sanitizer import Sanitizer

Endpoint = Callable[[Request], Awaitable[Response]]


class Switch(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    enabled: bool | None = None  # None: the other way round


class Limit(BaseModel):
    limit: int = Field(default=50, ge=1, le=500)


def routes(sanitizer: Sanitizer) -> list[Route]:
    return [
        Route("/api/sanitizer/stats", _stats(sanitizer), methods=["GET"]),
        Route("/api/sanitizer/toggle", _toggle(sanitizer), methods=["POST"]),
        Route("/api/mask", _masks(sanitizer), methods=["GET"]),
    ]


def _stats(sanitizer: Sanitizer) -> Endpoint:
    async def stats(request: Request) -> Response:
        return json_answer(await sanitizer.stats())

    return stats


def _toggle(sanitizer: Sanitizer) -> Endpoint:
    async def toggle(request: Request) -> Response:
        """Nothing is written: the next start reads the settings again."""
        asked = checked(Switch, await object_in(request, 'send {"enabled": true}, {"enabled": false}, or nothing'))
        sanitizer.is_on = not sanitizer.is_on if asked.enabled is None else asked.enabled
        return json_answer({"enabled": sanitizer.is_on})

    return toggle


def _masks(sanitizer: Sanitizer) -> Endpoint:
    async def masks(request: Request) -> Response:
        asked = checked(Limit, dict(request.query_params))
        return json_answer({"masks": await sanitizer.masks(asked.limit)})

    return masks
