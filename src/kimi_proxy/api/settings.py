"""`/api/settings`: what is in force, and what may be switched while it runs."""

from collections.abc import Awaitable, Callable

from pydantic import ConfigDict, RootModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api.body import object_in
from kimi_proxy.api.errors import json_answer
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.features.tool import checked
from kimi_proxy.services.settings import Settings

Endpoint = Callable[[Request], Awaitable[Response]]

ADVICE = 'send what to change, such as {"sanitizer.enabled": false}'


class Change(RootModel[dict[str, bool]]):
    model_config = ConfigDict(strict=True)


def routes(settings: Settings) -> list[Route]:
    return [
        Route("/api/settings", _show(settings), methods=["GET"]),
        Route("/api/settings", _change(settings), methods=["PATCH"]),
    ]


def _show(settings: Settings) -> Endpoint:
    async def show(request: Request) -> Response:
        return json_answer(settings.told())

    return show


def _change(settings: Settings) -> Endpoint:
    async def change(request: Request) -> Response:
        body = await object_in(request, ADVICE)
        if not body:
            raise InvalidParams("body", ADVICE)
        return json_answer(await settings.change(checked(Change, body).root))

    return change
