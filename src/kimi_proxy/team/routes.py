"""`/api/me`, `/api/report`, `/api/team/people`, `/api/audit-log` and `/api/login`: people, tokens, what was used."""

import logging
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, TypedDict

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kimi_proxy.api.guard import cookie_in
from kimi_proxy.api.routing import (
    Access,
    DescribedRoute,
    RequestBody,
    RouteSpec,
    body,
    caller_of,
    json_answer,
    json_route,
    query,
)
from kimi_proxy.core import json
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config.team import CALLBACK
from kimi_proxy.core.errors import InvalidParams, KimiProxyError, LoginFailed, LoginReason, StoreUnavailable
from kimi_proxy.services.events import iso_time
from kimi_proxy.services.sessions import Sessions
from kimi_proxy.services.store.protocols import NEWEST, Store
from kimi_proxy.team import report
from kimi_proxy.team.logins import BEGUN_S, IssuerCallback, Logins
from kimi_proxy.team.records import PersonRecord, TokenRecord
from kimi_proxy.team.team import Team

DAYS = 30
LOGIN = "/api/login"
ADVICE = "send a JSON object"
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
    """The dashboard view to return to; never an address."""

    place: str = Field(default="", max_length=200, pattern=r"^[A-Za-z0-9_/%.~!*'()-]*$")


class LoginCallback(BaseModel):
    """The parameters that an issuer adds to the address; any others are ignored."""

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
    id: str
    name: str
    role: str
    team: str
    created_at: str
    rotated_at: str
    revoked: bool


class PeopleBody(TypedDict):
    people: list[PersonBody]


class NewPerson(RequestBody):
    name: str = Field(max_length=64)
    role: Literal["member", "admin"] = "member"
    team: str = Field(default="", max_length=64)


class NewPersonBody(TypedDict):
    person: PersonBody
    token: str  # shown this once


class RemovedBody(TypedDict):
    """The id is still good for exporting and erasing the data."""

    name: str
    id: str
    removed: bool


class ErasedBody(TypedDict):
    """The numbers of a person's items that were erased."""

    name: str
    sessions: int
    originals: int
    decisions: int
    recordings: int


class TokenRequest(RequestBody):
    label: str = Field(default="", max_length=80)
    days: int = Field(default=0, ge=0, le=3660)  # 0: as many as [team] token_days


class TokenBody(TypedDict):
    id: str
    label: str
    created_at: str
    expires_at: str
    is_expired: bool


class TokensBody(TypedDict):
    tokens: list[TokenBody]
    max_days: int


class MadeTokenBody(TokenBody):
    token: str  # shown this once


class EndedTokenBody(TypedDict):
    id: str
    ended: bool


class AuditLineBody(report.AuditFields):
    seq: int


class AuditLogBody(TypedDict):
    entries: list[AuditLineBody]
    before: int | None


ME = RouteSpec("Show the caller", access=Access.PEOPLE)
REPORT = RouteSpec("Add up usage", query=ReportQuery, access=Access.PEOPLE)
PEOPLE = RouteSpec("List the people of the team", access=Access.ADMINS)
NO_SUCH = (InvalidParams,)
ADD = RouteSpec("Add a person", status=201, body=NewPerson, access=Access.ADMINS)
ROTATE = RouteSpec("Issue a new token for a person", raises=NO_SUCH, access=Access.ADMINS)
REVOKE = RouteSpec("Revoke a person's tokens", raises=NO_SUCH, access=Access.ADMINS)
REMOVE = RouteSpec("Remove a revoked name", raises=NO_SUCH, access=Access.ADMINS)
ERASE = RouteSpec("Delete all data stored for a revoked person, and the name", raises=NO_SUCH, access=Access.ADMINS)
EXPORT = RouteSpec(
    "Export all that is kept for a person, as JSON lines",
    raises=NO_SUCH,
    media_type="application/x-ndjson",
    access=Access.ADMINS,
)
EXPORT_ME = RouteSpec(
    "Export all that is kept for the caller, as JSON lines", media_type="application/x-ndjson", access=Access.PEOPLE
)
TOKENS = RouteSpec("List the caller's own tokens", access=Access.PEOPLE)
MAKE_TOKEN = RouteSpec("Create a token that expires", status=201, body=TokenRequest, access=Access.PEOPLE)
END_TOKEN = RouteSpec("Revoke one of the caller's own tokens", raises=NO_SUCH, access=Access.PEOPLE)
LOGIN_OFFER = RouteSpec("Report whether there is a login", access=Access.EVERYONE)
START = RouteSpec(
    "Send a browser to the issuer", status=303, query=LoginStart, media_type="text/plain", access=Access.EVERYONE
)
FINISH = RouteSpec(
    "Log in with what the issuer says", status=303, query=LoginCallback, media_type="text/plain", access=Access.VISITORS
)
LOGOUT = RouteSpec("End a login", access=Access.EVERYONE)
AUDIT_LOG = RouteSpec("List the audit log", query=AuditPage, access=Access.ADMINS)


def all_routes(store: Store, team: Team | None, sessions: Sessions, token_days: int) -> list[Route]:
    return [
        *routes(store, team, sessions),
        *people_routes(team, token_days),
        *login_routes(team.logins if team else None),
    ]


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
        asked = query(request, ReportQuery)
        who = caller_of(request)
        by = report.columns(asked.by)
        since = (datetime.now(UTC) - timedelta(days=asked.days - 1)).date().isoformat()
        await sessions.caught_up()
        usage = await store.usage_by_day.usage(since, None if who.is_admin else [who.person_id])
        return {"by": by, "since": since, "rows": report.rows_to_json(report.group(usage, by), by)}

    async def people(request: Request) -> PeopleBody:
        found = await team.people.list() if team else ()
        return {"people": [_person_to_json(one) for one in found]}

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


def people_routes(team: Team | None, token_days: int) -> list[Route]:
    """Return the routes that manage people and their tokens. Without a team, each of them returns an error."""

    def there() -> Team:
        if team is None:
            raise InvalidParams("team", "team mode is off: set [team] enabled = true")
        return team

    async def add(request: Request) -> NewPersonBody:
        asked = await body(request, NewPerson, ADVICE)
        made = await there().people.add(caller_of(request), asked.name, asked.role, asked.team)
        there().audit.add(caller_of(request), "add_person", asked.name, asked.role)
        return {"person": _person_to_json(made.person), "token": made.token}

    async def rotate(request: Request) -> NewPersonBody:
        made = await there().people.rotate(caller_of(request), _name(request))
        there().audit.add(caller_of(request), "rotate_token", made.person.name)
        return {"person": _person_to_json(made.person), "token": made.token}

    async def revoke(request: Request) -> PersonBody:
        person = await there().people.revoke(_name(request))
        there().audit.add(caller_of(request), "revoke_token", person.name)
        return _person_to_json(person)

    async def remove(request: Request) -> RemovedBody:
        removed = await there().people.remove(_name(request))
        there().audit.add(caller_of(request), "remove_person", removed.name, removed.id)
        return {"name": removed.name, "id": removed.id, "removed": True}

    async def erase(request: Request) -> ErasedBody:
        name = _name(request)
        data = there().person_data
        erased = await data.erase(caller_of(request), await data.find(name))
        return {
            "name": name,
            "sessions": erased.sessions,
            "originals": erased.originals,
            "decisions": erased.decisions,
            "recordings": erased.recordings,
        }

    async def export(request: Request) -> Response:
        person = await there().person_data.find(_name(request))
        return _export_answer(there(), caller_of(request), person)

    async def export_me(request: Request) -> Response:
        who = caller_of(request)
        return _export_answer(there(), who, await there().people.of(who))

    async def tokens(request: Request) -> TokensBody:
        found = await there().people.tokens(caller_of(request))
        return {"tokens": [_token_to_json(one) for one in found], "max_days": token_days}

    async def make_token(request: Request) -> MadeTokenBody:
        asked = await body(request, TokenRequest, ADVICE)
        who = caller_of(request)
        made = await there().people.make_token(who, asked.label, min(asked.days or token_days, token_days))
        there().audit.add(who, "make_token", made.record.id)
        return {**_token_to_json(made.record), "token": made.token}

    async def end_token(request: Request) -> EndedTokenBody:
        who = caller_of(request)
        id = str(request.path_params["token_id"])
        await there().people.end_token(who, id)
        there().audit.add(who, "end_token", id)
        return {"id": id, "ended": True}

    one = "/api/team/people/{person}"
    return [
        json_route("POST", "/api/team/people", add, ADD),
        json_route("POST", f"{one}/rotate", rotate, ROTATE),
        json_route("POST", f"{one}/revoke", revoke, REVOKE),
        json_route("DELETE", one, remove, REMOVE),
        json_route("POST", f"{one}/erase", erase, ERASE),
        DescribedRoute("GET", f"{one}/export", export, EXPORT),
        DescribedRoute("GET", "/api/me/export", export_me, EXPORT_ME),
        json_route("GET", "/api/me/tokens", tokens, TOKENS),
        json_route("POST", "/api/me/tokens", make_token, MAKE_TOKEN),
        json_route("DELETE", "/api/me/tokens/{token_id}", end_token, END_TOKEN),
    ]


def _export_answer(team: Team, actor: Caller, person: PersonRecord) -> Response:
    async def encode_lines() -> AsyncIterator[bytes]:
        async for line in team.person_data.export(actor, person):
            yield json.encode(line) + b"\n"

    name = person.name or person.id
    headers = {**UNSEEN, "content-disposition": f'attachment; filename="kimi-proxy-{name}.jsonl"'}
    return StreamingResponse(encode_lines(), 200, headers, "application/x-ndjson")


def _name(request: Request) -> str:
    return str(request.path_params["person"])


def _person_to_json(one: PersonRecord) -> PersonBody:
    return {
        "id": one.id,
        "name": one.name,
        "role": one.role,
        "team": one.team,
        "created_at": iso_time(one.created),
        "rotated_at": iso_time(one.rotated),
        "revoked": one.revoked is not None,
    }


def _token_to_json(one: TokenRecord) -> TokenBody:
    return {
        "id": one.id,
        "label": one.label,
        "created_at": iso_time(one.created),
        "expires_at": iso_time(one.expires),
        "is_expired": one.expires <= time.time(),
    }


def login_routes(logins: Logins | None) -> list[Route]:
    """Return the login routes of the dashboard. A failed login returns to the dashboard, which shows the reason."""

    async def offer(request: Request) -> LoginBody:
        return {"oidc": logins is not None}

    async def start(request: Request) -> Response:
        asked = query(request, LoginStart)
        if logins is None:
            return _login_failure("off")
        try:
            peer = request.client.host if request.client else ""
            begun = await logins.begin(asked.place, peer, request.headers.getlist("x-forwarded-for"))
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
    """Return the name of the session cookie."""
    return _cookie(logins, MADE)


def _cookie(logins: Logins, name: str) -> str:
    # With this prefix, no page of a neighbouring name can set it.
    return f"__Host-kimi-proxy-{name}" if logins.settings.is_secure else f"kimi-proxy-{name}"


def _set_cookie(answer: Response, logins: Logins, name: str, value: str, lasts_s: int) -> None:
    """Set a cookie that scripts cannot read.

    During a login it is Lax, because the issuer redirects the browser from another site. A session is Strict: the page
    itself contains no data, and its scripts, which fetch everything, are same-site wherever the visitor came from.
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
        raise InvalidParams("since", "use a date such as 2026-11-01") from e
