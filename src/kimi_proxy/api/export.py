"""`/api/export/csv` and `/api/export/json`: what requests came to, as a file that is written while it is read."""

import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kimi_proxy.core import jsontext
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.features.metering import Metric
from kimi_proxy.services import told
from kimi_proxy.services.sessions import Sessions

COLUMNS = tuple(told.metric(Metric("", "", 0.0, "", "", "", 0, 0, (), None)))

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


def routes(sessions: Sessions) -> list[Route]:
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
    yield format.head + format.rows(map(told.metric, first))
    async for page in rest:
        yield format.between + format.rows(map(told.metric, page))
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
    return ",\n".join(jsontext.encode(metric).decode() for metric in metrics)


CSV = Format("csv", "text/csv; charset=utf-8", f"{','.join(COLUMNS)}\r\n", "", _csv_rows, "")
JSON = Format("json", "application/json", '{"metrics": [\n', "\n]}\n", _json_rows, ",\n")
