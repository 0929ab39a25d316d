"""`/api/me`, `/api/report`, `/api/team/people`, `/api/audit-log` and `/api/login`: who calls, and what was used."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, TypedDict

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api.answers import DescribedRoute, RouteSpec, caller_of, json_answer, json_route, query
from kimi_proxy.api.guard import cookie_in
from kimi_proxy.api.routing import Access
from kimi_proxy.core.config.team import CALLBACK
from kimi_proxy.core.errors import InvalidParams, KimiProxyError, LoginFailed, LoginReason, StoreUnavailable
from kimi_proxy.services.events import iso_time
from kimi_proxy.services.sessions import Sessions
from kimi_proxy.services.store.protocols import NEWEST, Store
from kimi_proxy.services.team import Team, report
from kimi_proxy.services.team.logins import BEGUN_S, IssuerCallback, Logins

DAYS = 30
LOGIN = "/api/login"
BEGUN = "login"  # the cookies: of a login that is begun, and of one that is made
MADE = "session"
# No other page learns where a browser was sent, and nothing on the way keeps it: an address may hold a code.
UNSEEN = {"cache-control": "no-store", "referrer-policy": "no-referrer"}

log = logging.getLogger(__name__)


class ReportQuery(BaseModel):
    by: str = "person"
    days: int = Field(default=DAYS, ge=1, le=3660)


class AuditPage(BaseModel):
    before: int = Field(default=NEWEST, ge=1)
    limit: int = Field(default=100, ge=1, le=1000)
    since: str = ""


class LoginStart(BaseModel):
    """Where the dashboard was left: a view of it, never an address."""

    place: str = Field(default="", max_length=200, pattern=r"^[A-Za-z0-9_/%.~!*'()-]*$")


class LoginCallback(BaseModel):
    """What an issuer adds to the address; what else it adds is not read."""

    code: str = Field(default="", max_length=4096)
    state: str = Field(default="", max_length=4096)
    error: str = Field(default="", max_length=4096)
    iss: str = Field(default="", max_length=4096)


class LoginBody(TypedDict):
    oidc: bool


class LogoutBody(TypedDict):
    ended: bool


class MeBody(TypedDict):
    is_team: bool
    person: str
    team: str
    role: Literal["member", "admin"]


class UsageBody(TypedDict):
    by: Sequence[report.Column]
    since: str
    rows: list[report.UsageRow]


class PersonBody(TypedDict):
    name: str
    role: str
    team: str
    created_at: str
    rotated_at: str
    revoked: bool


class PeopleBody(TypedDict):
    people: list[PersonBody]


class AuditLineBody(report.AuditFields):
    seq: int


class AuditLogBody(TypedDict):
    entries: list[AuditLineBody]
    before: int | None


ME = RouteSpec("Show who calls", access=Access.PEOPLE)
REPORT = RouteSpec("Add up what was used", query=ReportQuery, access=Access.PEOPLE)
PEOPLE = RouteSpec("List the people of the team", access=Access.ADMINS)
LOGIN_OFFER = RouteSpec("Say whether there is a login", access=Access.EVERYONE)
START = RouteSpec(
    "Send a browser to the issuer", status=303, query=LoginStart, media_type="text/plain", access=Access.EVERYONE
)
FINISH = RouteSpec(
    "Log in with what the issuer says", status=303, query=LoginCallback, media_type="text/plain", access=Access.VISITORS
)
LOGOUT = RouteSpec("End a login", access=Access.EVERYONE)
AUDIT_LOG = RouteSpec("List who did what", query=AuditPage, access=Access.ADMINS)


def routes(store: Store, team: Team | None, sessions: Sessions) -> list[Route]:
    async def me(request: Request) -> MeBody:
        who = caller_of(request)
        return {
            "is_team": team is not None,
            "person": who.person,
            "team": who.team,
            "role": "admin" if who.is_admin else "member",
        }

    async def show_report(request: Request) -> UsageBody:
        asked, who = query(request, ReportQuery), caller_of(request)
        by = report.columns(asked.by)
        since = (datetime.now(UTC) - timedelta(days=asked.days - 1)).date().isoformat()
        await sessions.caught_up()
        usage = await store.team.usage(since, None if who.is_admin else [who.person])
        return {"by": by, "since": since, "rows": report.rows_to_json(report.group(usage, by), by)}

    async def people(request: Request) -> PeopleBody:
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

    async def audit_log(request: Request) -> AuditLogBody:
        asked = query(request, AuditPage)
        since = _moment(asked.since)
        found = await team.audit.page(asked.before, asked.limit, since) if team else ()
        lines: list[AuditLineBody] = [{"seq": seq, **report.audit_line(entry)} for seq, entry in found]
        return {"entries": lines, "before": found[-1][0] if len(found) == asked.limit else None}

    return [
        json_route("GET", "/api/me", me, ME),
        json_route("GET", "/api/report", show_report, REPORT, compressed=True),
        json_route("GET", "/api/team/people", people, PEOPLE),
        json_route("GET", "/api/audit-log", audit_log, AUDIT_LOG, compressed=True),
    ]


def login_routes(logins: Logins | None) -> list[Route]:
    """Return the login of the dashboard. A failed one goes back to the dashboard, which says why."""

    async def offer(request: Request) -> LoginBody:
        return {"oidc": logins is not None}

    async def start(request: Request) -> Response:
        asked = query(request, LoginStart)
        if logins is None:
            return _login_failure("off")
        try:
            begun = await logins.begin(asked.place)
        except LoginFailed as e:
            return _login_failure(e.reason, e)
        except StoreUnavailable as e:
            return _login_failure("store_away", e)
        answer = _redirect_to(begun.url)
        _set_cookie(answer, logins, BEGUN, begun.id, BEGUN_S)
        return answer

    async def finish(request: Request) -> Response:
        brought = query(request, LoginCallback)
        if logins is None:
            return _login_failure("off")
        returned = IssuerCallback(brought.code, brought.state, brought.error, brought.iss)
        try:
            made = await logins.make(cookie_in(request.scope["headers"], _cookie(logins, BEGUN)), returned)
        except LoginFailed as e:
            answer = _login_failure(e.reason, e)
        except StoreUnavailable as e:
            answer = _login_failure("store_away", e)
        else:
            answer = _redirect_to(f"/#/{made.place}")
            _set_cookie(answer, logins, MADE, made.id, logins.lasts_s)
        _set_cookie(answer, logins, BEGUN, "", 0)
        return answer

    async def logout(request: Request) -> LogoutBody | Response:
        if logins is None:
            return LogoutBody(ended=False)
        is_ended = await logins.end(cookie_in(request.scope["headers"], session_cookie(logins)))
        answer = json_answer(LogoutBody(ended=is_ended))
        _set_cookie(answer, logins, MADE, "", 0)
        return answer

    return [
        json_route("GET", LOGIN, offer, LOGIN_OFFER),
        DescribedRoute("GET", f"{LOGIN}/start", start, START),
        DescribedRoute("GET", CALLBACK, finish, FINISH),
        json_route("POST", "/api/logout", logout, LOGOUT),
    ]


def session_cookie(logins: Logins) -> str:
    """Return the name of the cookie that says who is logged in."""
    return _cookie(logins, MADE)


def _cookie(logins: Logins, name: str) -> str:
    # With this prefix, no page of a neighbouring name can set it.
    return f"__Host-kimi-proxy-{name}" if logins.settings.is_secure else f"kimi-proxy-{name}"


def _set_cookie(answer: Response, logins: Logins, name: str, value: str, lasts_s: int) -> None:
    """Set a cookie that no script can read.

    A begun login is Lax, because its issuer sends the browser back from another site. A session is Strict: the page
    itself shows nothing, and its own scripts, which fetch everything, are of the same site wherever one came from.
    """
    answer.set_cookie(
        _cookie(logins, name),
        value,
        max_age=lasts_s,
        secure=logins.settings.is_secure,
        httponly=True,
        samesite="strict" if name == MADE else "lax",
    )


def _login_failure(reason: LoginReason, error: KimiProxyError | None = None) -> Response:
    if error is not None:
        log.warning("a login failed", extra={"reason": reason, "problem": str(error)})
    return _redirect_to(f"/?login={reason}")


def _redirect_to(url: str) -> Response:
    return Response(status_code=303, headers={**UNSEEN, "location": url}, media_type="text/plain")


def _moment(since: str) -> float:
    try:
        return datetime.fromisoformat(since).timestamp() if since else 0.0
    except ValueError as e:
        raise InvalidParams("since", "give a date such as 2026-11-01") from e
