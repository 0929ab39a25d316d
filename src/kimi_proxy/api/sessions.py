"""`/api/sessions`: conversations, what they cost, and how full their windows are."""

import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kimi_proxy.api.errors import json_answer, object_in, packed_answer
from kimi_proxy.core import json
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.metering import Metric
from kimi_proxy.features.sessions import MAX_NAME_CHARS
from kimi_proxy.features.tool import checked
from kimi_proxy.services import serialize
from kimi_proxy.services.chat.context import LatestRequests
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
                request, {"sessions": [serialize.session(each) for each in found], "total": len(found), "after": None}
            )
        found, total = await sessions.page(asked.limit, await _cursor(sessions, asked.after))
        after = found[-1].id if len(found) == asked.limit else None
        return packed_answer(
            request, {"sessions": [serialize.session(each) for each in found], "total": total, "after": after}
        )

    return list_sessions


def _create(sessions: Sessions) -> Endpoint:
    async def create_session(request: Request) -> Response:
        asked = checked(NewSession, await object_in(request, ADVICE))
        session = await sessions.create(asked.external_session_id, asked.title)
        return json_answer(serialize.session(session), 201)

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
        return json_answer(serialize.session(await sessions.session(_id(request))))

    return show_session


def _history(sessions: Sessions) -> Endpoint:
    async def session_metrics(request: Request) -> Response:
        asked = checked(Amount, {**request.query_params, **_number(request, "limit")})
        found = await sessions.history(_id(request), asked.limit)
        return packed_answer(request, {"metrics": [serialize.metric(each) for each in found]})

    return session_metrics


def _rename(sessions: Sessions) -> Endpoint:
    async def rename_session(request: Request) -> Response:
        asked = checked(Renaming, await object_in(request, ADVICE))
        return json_answer(serialize.session(await sessions.rename(_id(request), asked.title)))

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


def context_routes(sessions: Sessions, latest: LatestRequests) -> list[Route]:
    path = "/api/sessions/{session_id}/context"
    return [
        Route(path, _context(sessions, latest), methods=["GET"]),
        Route(path + "/{index:int}", _message(sessions, latest), methods=["GET"]),
        Route(path + "/gave_way/{index:int}", _gave_way(sessions, latest), methods=["GET"]),
    ]


def _context(sessions: Sessions, latest: LatestRequests) -> Endpoint:
    async def context(request: Request) -> Response:
        return packed_answer(request, await latest.context(await _context_id(sessions, request)))

    return context


def _message(sessions: Sessions, latest: LatestRequests) -> Endpoint:
    async def message(request: Request) -> Response:
        return json_answer(await latest.message(await _context_id(sessions, request), request.path_params["index"]))

    return message


def _gave_way(sessions: Sessions, latest: LatestRequests) -> Endpoint:
    async def gave_way(request: Request) -> Response:
        return json_answer(await latest.summarized(await _context_id(sessions, request), request.path_params["index"]))

    return gave_way


async def _context_id(sessions: Sessions, request: Request) -> str:
    return (await sessions.session(str(request.path_params["session_id"]))).id


COLUMNS = tuple(serialize.metric(Metric("", "", 0.0, "", "", "", 0, 0, (), None)))

# A spreadsheet takes a cell that begins so for a formula, and runs it.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True, slots=True)
class Format:
    name: str
    media_type: str
    head: str
    tail: str
    rows: Callable[[Iterable[JsonObject]], str]
    between: str  # two pages


def export_routes(sessions: Sessions) -> list[Route]:
    return [Route(f"/api/export/{each.name}", _endpoint(sessions, each), methods=["GET"]) for each in (CSV, JSON)]


def _endpoint(sessions: Sessions, format: Format) -> Callable[[Request], Awaitable[Response]]:
    async def export(request: Request) -> Response:
        pages = sessions.metrics(request.query_params.get("session"))
        # An error is told as one as long as nothing was sent.
        first = await anext(pages, None) or ()
        headers = {"content-disposition": f'attachment; filename="kimi-proxy-metrics.{format.name}"'}
        return StreamingResponse(_written(first, pages, format), 200, headers, format.media_type)

    return export


async def _written(
    first: Sequence[Metric], rest: AsyncIterator[Sequence[Metric]], format: Format
) -> AsyncIterator[str]:
    yield format.head + format.rows(map(serialize.metric, first))
    async for page in rest:
        yield format.between + format.rows(map(serialize.metric, page))
    yield format.tail


def _csv_rows(metrics: Iterable[JsonObject]) -> str:
    page = io.StringIO()
    csv.writer(page).writerows([_cell(metric[name]) for name in COLUMNS] for metric in metrics)
    return page.getvalue()


def _cell(value: JsonValue) -> JsonValue:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _json_rows(metrics: Iterable[JsonObject]) -> str:
    return ",\n".join(json.encode(metric).decode() for metric in metrics)


CSV = Format("csv", "text/csv; charset=utf-8", f"{','.join(COLUMNS)}\r\n", "", _csv_rows, "")
JSON = Format("json", "application/json", '{"metrics": [\n', "\n]}\n", _json_rows, ",\n")
