"""`/api/sessions`: conversations, what they cost, and how full their windows are."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api.body import object_in
from kimi_proxy.api.errors import json_answer
from kimi_proxy.api.packing import packed_answer
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.features.sessions import MAX_NAME_CHARS
from kimi_proxy.features.tool import checked
from kimi_proxy.services import told
from kimi_proxy.services.sessions import Sessions
from kimi_proxy.services.store import Cursor

MAX_TITLE_CHARS = 200
MAX_PAGE = 500
ADVICE = "send a JSON object"

Endpoint = Callable[[Request], Awaitable[Response]]


def _printable(text: str) -> str:
    """One line of what can be shown and stored; the rest leaves as spaces."""
    return "".join(each if each.isprintable() else " " for each in text).strip()


Title = Annotated[str, Field(max_length=MAX_TITLE_CHARS), AfterValidator(_printable)]
Name = Annotated[str, Field(max_length=MAX_NAME_CHARS), AfterValidator(_printable)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NewSession(_Body):
    title: Title = ""
    external_session_id: Name = ""


class Renaming(_Body):
    title: Title


class Deletion(_Body):
    ids: list[str] = Field(default=[], max_length=10_000)
    all: bool = False


class Paging(_Body):
    limit: int = Field(default=50, ge=1, le=MAX_PAGE)
    after: str = ""
    q: str = Field(default="", max_length=MAX_TITLE_CHARS)


class Amount(_Body):
    limit: int = Field(default=100, ge=1, le=MAX_PAGE)


def routes(sessions: Sessions) -> list[Route]:
    return [
        Route("/api/sessions", _list(sessions), methods=["GET"]),
        Route("/api/sessions", _create(sessions), methods=["POST"]),
        Route("/api/sessions", _delete_many(sessions), methods=["DELETE"]),
        Route("/api/sessions/{session_id}", _show(sessions), methods=["GET"]),
        Route("/api/sessions/{session_id}", _rename(sessions), methods=["PATCH"]),
        Route("/api/sessions/{session_id}", _delete(sessions), methods=["DELETE"]),
        Route("/api/sessions/{session_id}/metrics", _history(sessions), methods=["GET"]),
        Route("/api/sessions/{session_id}/memory", _memory(sessions), methods=["GET"]),
        Route("/api/session/{session_id}/health", _health(sessions), methods=["GET"]),
    ]


def _list(sessions: Sessions) -> Endpoint:
    async def list_sessions(request: Request) -> Response:
        asked = checked(Paging, {**request.query_params, **_number(request, "limit")})
        if asked.q:
            found = await sessions.matching(asked.q, asked.limit)
            return packed_answer(
                request, {"sessions": [told.session(each) for each in found], "total": len(found), "after": None}
            )
        found, total = await sessions.page(asked.limit, await _cursor(sessions, asked.after))
        after = found[-1].id if len(found) == asked.limit else None
        return packed_answer(
            request, {"sessions": [told.session(each) for each in found], "total": total, "after": after}
        )

    return list_sessions


def _create(sessions: Sessions) -> Endpoint:
    async def create_session(request: Request) -> Response:
        asked = checked(NewSession, await object_in(request, ADVICE))
        session = await sessions.create(asked.external_session_id, asked.title)
        return json_answer(told.session(session), 201)

    return create_session


def _delete_many(sessions: Sessions) -> Endpoint:
    async def delete_sessions(request: Request) -> Response:
        asked = checked(Deletion, await object_in(request, ADVICE))
        if asked.all == bool(asked.ids):
            raise InvalidParams("ids", 'name the sessions, {"ids": ["ses_…"]}, or say {"all": true}')
        deleted = await (sessions.delete_all() if asked.all else sessions.delete(asked.ids))
        return json_answer({"deleted": deleted})

    return delete_sessions


def _show(sessions: Sessions) -> Endpoint:
    async def show_session(request: Request) -> Response:
        return json_answer(told.session(await sessions.session(_id(request))))

    return show_session


def _history(sessions: Sessions) -> Endpoint:
    async def session_metrics(request: Request) -> Response:
        asked = checked(Amount, {**request.query_params, **_number(request, "limit")})
        found = await sessions.history(_id(request), asked.limit)
        return packed_answer(request, {"metrics": [told.metric(each) for each in found]})

    return session_metrics


def _rename(sessions: Sessions) -> Endpoint:
    async def rename_session(request: Request) -> Response:
        asked = checked(Renaming, await object_in(request, ADVICE))
        return json_answer(told.session(await sessions.rename(_id(request), asked.title)))

    return rename_session


def _delete(sessions: Sessions) -> Endpoint:
    async def delete_session(request: Request) -> Response:
        session = await sessions.session(_id(request))
        return json_answer({"deleted": await sessions.delete([session.id])})

    return delete_session


def _memory(sessions: Sessions) -> Endpoint:
    async def session_memory(request: Request) -> Response:
        asked = checked(Amount, {**request.query_params, **_number(request, "limit")})
        return json_answer(await sessions.memory(_id(request), asked.limit))

    return session_memory


def _health(sessions: Sessions) -> Endpoint:
    async def session_health(request: Request) -> Response:
        return json_answer(await sessions.health(_id(request)))

    return session_health


def _id(request: Request) -> str:
    return str(request.path_params["session_id"])


def _number(request: Request, parameter: str) -> dict[str, int]:
    given = request.query_params.get(parameter)
    if given is None:
        return {}
    if not (given.isascii() and given.isdigit() and len(given) < 10):
        raise InvalidParams(parameter, "give a whole number")
    return {parameter: int(given)}


async def _cursor(sessions: Sessions, after: str) -> Cursor | None:
    if not after:
        return None
    last = await sessions.session(after)
    return last.last_used, last.id
