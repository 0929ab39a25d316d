"""`/api/sessions`: conversations, their cost, and how full their context windows are; `/api/export`."""

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, tzinfo
from functools import partial
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kimi_proxy.api.routing import (
    Access,
    DescribedRoute,
    RequestBody,
    RouteSpec,
    body,
    caller_of,
    json_route,
    query,
    whole_number,
)
from kimi_proxy.core import json
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import InvalidParams, SessionNotFound
from kimi_proxy.features.chat.sessions import MAX_NAME_CHARS
from kimi_proxy.features.metering import Metric
from kimi_proxy.features.tool import validate
from kimi_proxy.services import serialize
from kimi_proxy.services.serialize import MetricBody, SessionBody
from kimi_proxy.services.sessions import (
    DeletedBody,
    DeletedSessions,
    MetricsBody,
    SavingsBody,
    SessionHealthBody,
    SessionMemoryBody,
    Sessions,
    SessionsBody,
    StatusLineBody,
)
from kimi_proxy.services.store.protocols import Cursor

MAX_TITLE_CHARS = 200
MAX_PAGE = 500
ADVICE = "send a JSON object"


def _printable(text: str) -> str:
    """Return `text` on one line, with spaces for characters that cannot be shown."""
    return "".join(each if each.isprintable() else " " for each in text).strip()


Title = Annotated[str, Field(max_length=MAX_TITLE_CHARS), AfterValidator(_printable)]
Name = Annotated[str, Field(max_length=MAX_NAME_CHARS), AfterValidator(_printable)]


class NewSession(RequestBody):
    title: Title = ""
    external_session_id: Name = ""


class RenameSession(RequestBody):
    title: Title


class DeleteSessions(RequestBody):
    ids: list[str] = Field(default=[], max_length=10_000)
    all: bool = False


class SessionPage(RequestBody):
    limit: int = Field(default=50, ge=1, le=MAX_PAGE)
    after: str = ""
    q: str = Field(default="", max_length=MAX_TITLE_CHARS)


class MetricLimit(RequestBody):
    limit: int = Field(default=100, ge=1, le=MAX_PAGE)


class SavingsQuery(BaseModel):
    since: date | None = None
    until: date | None = None
    timezone: str = Field(default="", max_length=60)  # in which days begin, such as Europe/Paris


class StatusLineQuery(BaseModel):
    session: str = ""  # its id or name; "" omits facts that only one session has


NOT_FOUND = (SessionNotFound,)
LIST = RouteSpec("List sessions, the last used first", query=SessionPage, raises=NOT_FOUND, access=Access.PEOPLE)
CREATE = RouteSpec("Create a session that requests can name", status=201, body=NewSession, access=Access.PEOPLE)
DELETE_MANY = RouteSpec("Delete sessions, or all of them", body=DeleteSessions, access=Access.PEOPLE)
SHOW = RouteSpec("Show a session", raises=NOT_FOUND, access=Access.PEOPLE)
RENAME = RouteSpec("Rename a session", body=RenameSession, raises=NOT_FOUND, access=Access.PEOPLE)
DELETE = RouteSpec("Delete a session", raises=NOT_FOUND, access=Access.PEOPLE)
METRICS = RouteSpec("List the newest requests of a session", query=MetricLimit, raises=NOT_FOUND, access=Access.PEOPLE)
MEMORY = RouteSpec(
    "Show how much of a session's requests was memory", query=MetricLimit, raises=NOT_FOUND, access=Access.PEOPLE
)
SAVINGS = RouteSpec(
    "Show what was saved today, this week, this month and in a range of days", query=SavingsQuery, access=Access.PEOPLE
)
STATUS_LINE = RouteSpec("Show the text of an agent's status line", query=StatusLineQuery, access=Access.PEOPLE)
HEALTH = RouteSpec("Show how full a session's context window is", raises=NOT_FOUND, access=Access.PEOPLE)


class SessionRoutes:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def routes(self) -> list[Route]:
        all, one = "/api/sessions", "/api/sessions/{session_id}"
        return [
            json_route("GET", all, self._list, LIST, compressed=True),
            json_route("POST", all, self._create, CREATE),
            json_route("DELETE", all, self._delete_many, DELETE_MANY),
            json_route("GET", one, self._show, SHOW),
            json_route("PATCH", one, self._rename, RENAME),
            json_route("DELETE", one, self._delete, DELETE),
            json_route("GET", f"{one}/metrics", self._metrics, METRICS, compressed=True),
            json_route("GET", f"{one}/memory", self._memory, MEMORY),
            json_route("GET", "/api/session/{session_id}/health", self._health, HEALTH),
            json_route("GET", "/api/savings", self._savings, SAVINGS, compressed=True),
            json_route("GET", "/api/statusline", self._status_line, STATUS_LINE),
        ]

    async def _list(self, request: Request) -> SessionsBody:
        asked = validate(SessionPage, {**request.query_params, **whole_number(request, "limit")})
        who = caller_of(request)
        after = None
        if asked.q:
            found = await self._sessions.matching(who, asked.q, asked.limit)
            total = len(found)
        else:
            found, total = await self._sessions.page(who, asked.limit, await self._cursor(who, asked.after))
            after = found[-1].id if len(found) == asked.limit else None
        losses = await self._sessions.losses(who, found)
        listed = [serialize.session(each) for each in found]
        for each in listed:
            if each["id"] in losses:
                each["losses"] = losses[each["id"]]
        return {"sessions": listed, "total": total, "after": after}

    async def _cursor(self, who: Caller, after: str) -> Cursor | None:
        if not after:
            return None
        last = await self._sessions.session(who, after)
        return last.last_used, last.id

    async def _create(self, request: Request) -> SessionBody:
        asked = await body(request, NewSession, ADVICE)
        made = await self._sessions.create(caller_of(request), asked.external_session_id, asked.title)
        return serialize.session(made)

    async def _delete_many(self, request: Request) -> DeletedBody:
        asked = await body(request, DeleteSessions, ADVICE)
        if asked.all == bool(asked.ids):
            raise InvalidParams("ids", 'send {"ids": ["ses_…"]}, or {"all": true}')
        who = caller_of(request)
        work = self._sessions.delete_all(who) if asked.all else self._sessions.delete(who, asked.ids)
        return _deleted_to_json(await work)

    async def _show(self, request: Request) -> SessionBody:
        return serialize.session(await self._sessions.session(caller_of(request), _id(request)))

    async def _rename(self, request: Request) -> SessionBody:
        asked = await body(request, RenameSession, ADVICE)
        return serialize.session(await self._sessions.rename(caller_of(request), _id(request), asked.title))

    async def _delete(self, request: Request) -> DeletedBody:
        who = caller_of(request)
        session = await self._sessions.own_session(who, _id(request))
        return _deleted_to_json(await self._sessions.delete(who, [session.id]))

    async def _metrics(self, request: Request) -> MetricsBody:
        found = await self._sessions.history(caller_of(request), _id(request), _limit(request))
        return {"metrics": [serialize.metric(each) for each in found]}

    async def _health(self, request: Request) -> SessionHealthBody:
        return await self._sessions.health(caller_of(request), _id(request))

    async def _savings(self, request: Request) -> SavingsBody:
        asked = query(request, SavingsQuery)
        return await self._sessions.savings(caller_of(request), _zone(asked.timezone), asked.since, asked.until)

    async def _status_line(self, request: Request) -> StatusLineBody:
        return await self._sessions.status_line(caller_of(request), query(request, StatusLineQuery).session)

    async def _memory(self, request: Request) -> SessionMemoryBody:
        return await self._sessions.memory(caller_of(request), _id(request), _limit(request))


def _zone(name: str) -> tzinfo | None:
    """Return a time zone; None is this machine's own, where no other is named or known."""
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _deleted_to_json(deleted: DeletedSessions) -> DeletedBody:
    return {"deleted": deleted.sessions, "originals_deleted": deleted.originals}


def _id(request: Request) -> str:
    return str(request.path_params["session_id"])


def _limit(request: Request) -> int:
    return validate(MetricLimit, {**request.query_params, **whole_number(request, "limit")}).limit


COLUMNS = tuple(serialize.metric(Metric("", "", 0.0, "", "", "", 0, 0, (), None)))

# A spreadsheet treats a cell that begins with one of these as a formula, and runs it.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


class ExportQuery(BaseModel):
    session: str | None = None  # its id or name; None for the requests of all


@dataclass(frozen=True, slots=True)
class ExportFormat:
    name: str
    media_type: str
    head: str
    tail: str
    rows: Callable[[Iterable[MetricBody]], str]
    separator: str  # between two pages
    answer: object | None = None  # the type of its JSON

    @property
    def spec(self) -> RouteSpec:
        summary = f"Export the usage of requests, as {self.name.upper()}"
        media_type = self.media_type.partition(";")[0]
        return RouteSpec(
            summary, self.answer, query=ExportQuery, raises=NOT_FOUND, media_type=media_type, access=Access.PEOPLE
        )


def export_routes(sessions: Sessions) -> list[Route]:
    """`/api/export/csv` and `/api/export/json`: the metrics of one session or all, streamed page by page."""
    return [
        DescribedRoute("GET", f"/api/export/{each.name}", partial(_export, sessions, each), each.spec)
        for each in (CSV, JSON)
    ]


async def _export(sessions: Sessions, format: ExportFormat, request: Request) -> Response:
    pages = sessions.metrics(caller_of(request), query(request, ExportQuery).session)
    # Only before the first byte can an error be answered with its status.
    first = await anext(pages, None) or ()
    headers = {"content-disposition": f'attachment; filename="kimi-proxy-metrics.{format.name}"'}
    return StreamingResponse(_written(first, pages, format), 200, headers, format.media_type)


async def _written(
    first: Sequence[Metric], rest: AsyncIterator[Sequence[Metric]], format: ExportFormat
) -> AsyncIterator[str]:
    yield format.head + format.rows(map(serialize.metric, first))
    async for page in rest:
        yield format.separator + format.rows(map(serialize.metric, page))
    yield format.tail


def _csv_rows(metrics: Iterable[MetricBody]) -> str:
    page = io.StringIO()
    csv.writer(page).writerows(map(_cell, metric.values()) for metric in metrics)
    return page.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _json_rows(metrics: Iterable[MetricBody]) -> str:
    return ",\n".join(json.encode(metric).decode() for metric in metrics)


CSV = ExportFormat("csv", "text/csv; charset=utf-8", f"{','.join(COLUMNS)}\r\n", "", _csv_rows, "")
JSON = ExportFormat("json", "application/json", '{"metrics": [\n', "\n]}\n", _json_rows, ",\n", MetricsBody)
