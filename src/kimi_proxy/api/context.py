"""`/api/sessions/{id}/context`: the newest request of a session, message by message."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api.errors import json_answer
from kimi_proxy.api.packing import packed_answer
from kimi_proxy.services.latest import Latest
from kimi_proxy.services.sessions import Sessions

Endpoint = Callable[[Request], Awaitable[Response]]


def routes(sessions: Sessions, latest: Latest) -> list[Route]:
    path = "/api/sessions/{session_id}/context"
    return [
        Route(path, _context(sessions, latest), methods=["GET"]),
        Route(path + "/{index:int}", _message(sessions, latest), methods=["GET"]),
        Route(path + "/gave_way/{index:int}", _gave_way(sessions, latest), methods=["GET"]),
    ]


def _context(sessions: Sessions, latest: Latest) -> Endpoint:
    async def context(request: Request) -> Response:
        return packed_answer(request, await latest.context(await _id(sessions, request)))

    return context


def _message(sessions: Sessions, latest: Latest) -> Endpoint:
    async def message(request: Request) -> Response:
        return json_answer(await latest.message(await _id(sessions, request), request.path_params["index"]))

    return message


def _gave_way(sessions: Sessions, latest: Latest) -> Endpoint:
    async def gave_way(request: Request) -> Response:
        return json_answer(await latest.gave_way(await _id(sessions, request), request.path_params["index"]))

    return gave_way


async def _id(sessions: Sessions, request: Request) -> str:
    return (await sessions.session(str(request.path_params["session_id"]))).id
