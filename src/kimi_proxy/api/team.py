"""`/api/me`, `/api/report`, `/api/team/people` and `/api/audit-log`: who calls, and for admins what was used."""

from datetime import UTC, datetime, timedelta
from typing import Literal, NotRequired, TypedDict

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.routing import Route

from kimi_proxy.api.answers import RouteSpec, json_route, query
from kimi_proxy.core import caller
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.json import JsonObject
from kimi_proxy.services.events import iso_time
from kimi_proxy.services.sessions import Sessions
from kimi_proxy.services.store.protocols import NEWEST, Store
from kimi_proxy.services.team import Team, report

DAYS = 30


class ReportQuery(BaseModel):
    by: str = "person"
    days: int = Field(default=DAYS, ge=1, le=3660)


class AuditPage(BaseModel):
    before: int = Field(default=NEWEST, ge=1)
    limit: int = Field(default=100, ge=1, le=1000)
    since: str = ""


class MeBody(TypedDict):
    is_team: bool
    person: str
    team: str
    role: Literal["member", "admin"]


class UsageRow(TypedDict):
    """The names of the columns that were asked for, and the sums."""

    person: NotRequired[str]
    team: NotRequired[str]
    model: NotRequired[str]
    day: NotRequired[str]
    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    tokens_saved: int
    net_saved_tokens: int
    cost_usd: float
    net_saved_usd: float


class UsageBody(TypedDict):
    by: list[Literal["person", "team", "model", "day"]]
    since: str
    rows: list[UsageRow]


class PersonBody(TypedDict):
    name: str
    role: str
    team: str
    created_at: str
    rotated_at: str
    revoked: bool


class PeopleBody(TypedDict):
    people: list[PersonBody]


class AuditLineBody(TypedDict):
    seq: int
    at: str
    person: str
    action: str
    subject: str
    detail: str


class AuditLogBody(TypedDict):
    entries: list[AuditLineBody]
    before: int | None


ME = RouteSpec("Show who calls", MeBody)
REPORT = RouteSpec("Add up what was used", UsageBody, query=ReportQuery)
PEOPLE = RouteSpec("List the people of the team", PeopleBody)
AUDIT_LOG = RouteSpec("List who did what", AuditLogBody, query=AuditPage)


def routes(store: Store, team: Team | None, sessions: Sessions) -> list[Route]:
    async def me(request: Request) -> JsonObject:
        who = caller.current()
        role = "admin" if who.is_admin else "member"
        return {"is_team": team is not None, "person": who.person, "team": who.team, "role": role}

    async def show_report(request: Request) -> JsonObject:
        asked, who = query(request, ReportQuery), caller.current()
        by = report.columns(asked.by)
        since = (datetime.now(UTC) - timedelta(days=asked.days - 1)).date().isoformat()
        await sessions.caught_up()
        usage = await store.team.usage(since, None if who.is_admin else [who.person])
        return {"by": by, "since": since, "rows": report.rows_to_json(report.grouped(usage, by), by)}

    async def people(request: Request) -> JsonObject:
        found = await team.people.list() if team else ()
        return {
            "people": [
                {
                    "name": one.name,
                    "role": one.role,
                    "team": one.team,
                    "created_at": iso_time(one.created),
                    "rotated_at": iso_time(one.rotated),
                    "revoked": one.revoked is not None,
                }
                for one in found
            ]
        }

    async def audit_log(request: Request) -> JsonObject:
        asked = query(request, AuditPage)
        since = _moment(asked.since)
        found = await team.audit.page(asked.before, asked.limit, since) if team else ()
        lines: list[JsonObject] = [{"seq": seq, **report.audit_line(entry)} for seq, entry in found]
        return {"entries": lines, "before": found[-1][0] if len(found) == asked.limit else None}

    return [
        json_route("GET", "/api/me", me, ME),
        json_route("GET", "/api/report", show_report, REPORT, compressed=True),
        json_route("GET", "/api/team/people", people, PEOPLE),
        json_route("GET", "/api/audit-log", audit_log, AUDIT_LOG, compressed=True),
    ]


def _moment(since: str) -> float:
    try:
        return datetime.fromisoformat(since).timestamp() if since else 0.0
    except ValueError as e:
        raise InvalidParams("since", "give a date such as 2026-11-01") from e
