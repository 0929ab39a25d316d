"""Logins to the dashboard through an OpenID Connect issuer, with a session cookie.

Started logins and sessions are in the store under the hash of a random id that only the browser has: any server can
handle any step, each step works only once, and there is no signing key. The issuer's part is team/oidc.py.
"""

import asyncio
import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pydantic import SecretStr

from kimi_proxy.core import json
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.client_address import client_address
from kimi_proxy.core.config.team import OidcSettings
from kimi_proxy.core.errors import ConfigError, InvalidParams, LoginFailed
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.team.audit import AuditLog
from kimi_proxy.team.people import People, is_name
from kimi_proxy.team.records import LoginRecord, PersonRecord, TeamTables

if TYPE_CHECKING:
    from kimi_proxy.team.oidc import Issuer

BEGUN_S = 600  # that a person has at the issuer
ID_BYTES = 32
# So many logins may begin within ten seconds, from one address and in all: no one needs a token to begin one.
MAX_BEGUN_EACH, MAX_BEGUN, MAX_BEGUN_S = 30, 600, 10.0
MAX_ADDRESSES = 10_000
# Claims that people cannot change themselves at the common issuers; `email` counts only if it was verified.
FIXED_CLAIMS = ("sub", "oid", "email")


@dataclass(frozen=True, slots=True)
class BegunLogin:
    """The address to which the browser is redirected, and the state that it keeps until it returns."""

    url: str
    id: str


@dataclass(frozen=True, slots=True)
class IssuerCallback:
    """The parameters with which the browser returns from the issuer."""

    code: str = ""
    state: str = ""
    error: str = ""
    issuer: str = ""


@dataclass(frozen=True, slots=True)
class MadeLogin:
    """The login that the browser keeps from now on, and the view to which it returns."""

    id: str
    place: str


class Logins:
    """Raise ConfigError if what checks a login is not installed."""

    def __init__(
        self,
        settings: OidcSettings,
        secret: SecretStr | None,
        tables: TeamTables,
        people: People,
        audit: AuditLog,
        now: Callable[[], float] = time.time,
        trusted_proxies: Sequence[str] = (),
    ) -> None:
        if find_spec("joserfc") is None:
            raise ConfigError("team.oidc needs a package that is not installed (joserfc): pip install kimi-proxy[team]")
        self.settings = settings
        self._trusted_proxies = trusted_proxies
        self._secret = secret
        self._tables = tables
        self._people = people
        self._audit = audit
        self._now = now
        self._begun: deque[float] = deque(maxlen=MAX_BEGUN)
        self._begun_from: LruCache[str, deque[float]] = LruCache(MAX_ADDRESSES)
        self._opened: Issuer | None = None
        self._turn = asyncio.Lock()

    @property
    def lasts_s(self) -> int:
        return self.settings.session_hours * 3600

    async def begin(self, place: str, peer: str = "", forwarded: Sequence[str] = ()) -> BegunLogin:
        """Return the issuer's login address; `place` is returned with it. Raise LoginFailed if it is unavailable.

        `peer` is the address of the connection, and `forwarded` what proxies say about it.
        """
        address = client_address(peer, forwarded, self._trusted_proxies)
        now = self._now()
        of_address = self._begun_from.get(address) or deque(maxlen=MAX_BEGUN_EACH)
        for begun in (of_address, self._begun):
            if len(begun) == begun.maxlen and now - begun[0] < MAX_BEGUN_S:
                raise LoginFailed("busy", "too many logins at once")
        of_address.append(now)
        self._begun.append(now)
        self._begun_from.put(address, of_address)
        state, nonce, verifier, id = (secrets.token_urlsafe(ID_BYTES) for _ in range(4))
        url = await (await self._issuer()).login_url(self.settings.redirect_uri, state, nonce, verifier)
        detail = json.encode({"state": state, "nonce": nonce, "verifier": verifier, "place": place}).decode()
        await self._tables.keep_login(LoginRecord(_hash(id), now, now + BEGUN_S, detail=detail))
        return BegunLogin(url, id)

    async def make(self, id: str, returned: IssuerCallback) -> MadeLogin:
        """Return the login of whom the issuer names. Raise LoginFailed if it names no one who may come in."""
        begun = await self._tables.take_login(_hash(id)) if id else None
        if begun is None or begun.person or begun.expires <= self._now():
            raise LoginFailed("expired", "this login was not started in this browser within the last ten minutes")
        detail = json.decode(begun.detail.encode())
        if not isinstance(detail, dict):
            raise LoginFailed("expired", "this login cannot be read")
        state, nonce, verifier, place = (str(detail[key]) for key in ("state", "nonce", "verifier", "place"))
        if not hmac.compare_digest(returned.state.encode("utf-8", "replace"), state.encode()):
            raise LoginFailed("expired", "the state belongs to another login")
        if returned.issuer not in ("", self.settings.issuer.get_secret_value()):
            raise LoginFailed("invalid", "the response is from another issuer")
        if returned.error or not returned.code:
            raise LoginFailed("denied", "the issuer rejected the login")
        claims = await (await self._issuer()).claims(returned.code, verifier, self.settings.redirect_uri, nonce)
        return await self._logged_in(await self._person(claims), place)

    async def identify(self, id: str) -> Caller | None:
        """Return whose login this is, as a token would; None if it is no one's. Raise StoreUnavailable."""
        return await self._people.logged_in(_hash(id)) if id else None

    async def end(self, id: str) -> bool:
        """Log out; return whether anyone was logged in. On other servers it ends within two seconds."""
        hashed = _hash(id)
        who = await self._people.logged_in(hashed) if id else None
        self._people.forget(hashed)
        if who is None:
            return False
        await self._tables.take_login(hashed)
        self._audit.add(who, "logout")
        return True

    async def _logged_in(self, person: PersonRecord, place: str) -> MadeLogin:
        # A token that was made on a server whose clock is ahead must not end a login that comes after it.
        id = secrets.token_urlsafe(ID_BYTES)
        began = max(round(self._now(), 3), person.rotated)
        await self._tables.keep_login(LoginRecord(_hash(id), began, began + self.lasts_s, person.id))
        self._audit.add(self._people.caller(person), "login")
        return MadeLogin(id, place)

    async def _person(self, claims: JsonObject) -> PersonRecord:
        """Return who logs in, with the role and the team that the issuer gives them, if the settings say so.

        They are found by whom the issuer knows them as, which no one can change; by their name only the first time.
        """
        subject = f"{self.settings.issuer.get_secret_value()} {claims['sub']}"
        everyone = await self._people.list()
        found = next((one for one in everyone if one.subject == subject), None)
        if found is None:
            name = _name(claims, self.settings.name_claim)
            found = next((one for one in everyone if one.name == name), None) or await self._add_person(name)
            self._check_first_login(found)
        if found.revoked is not None:
            raise LoginFailed("revoked", "the person was revoked")
        if found.subject not in ("", subject):
            raise LoginFailed("taken", "the name belongs to another person")
        person = replace(found, subject=subject, role=self._role(claims, found), team=self._team(claims, found))
        if person != found and not await self._tables.change_by_login(person):
            raise LoginFailed("revoked", "the person was revoked or replaced at this moment")
        return person

    def _check_first_login(self, found: PersonRecord) -> None:
        """Raise LoginFailed where the claim could be chosen by the person, and would make them an admin."""
        settings = self.settings
        if found.role == "admin" and not settings.admin_claim and settings.name_claim not in FIXED_CLAIMS:
            raise LoginFailed(
                "unknown",
                f"{found.name!r} is an admin, and their first login must not use a claim that people can change: set "
                'admin_claim, or name_claim = "email"',
            )

    async def _add_person(self, name: str) -> PersonRecord:
        if self.settings.new_people == "refuse":
            raise LoginFailed("unknown", "the person is not in the team")
        try:
            # The token is shown to no one; `team rotate` makes one for a client.
            added = await self._people.add(LOCAL, name)
        except InvalidParams as e:
            raise LoginFailed("taken", "the name belongs to another person") from e
        self._audit.add(self._people.caller(added.person), "add_person", name, "by login")
        return added.person

    def _role(self, claims: JsonObject, found: PersonRecord) -> str:
        settings = self.settings
        if not settings.admin_claim:
            return found.role
        is_admin = any(value in settings.admin_values for value in _values(claims.get(settings.admin_claim)))
        return "admin" if is_admin else "member"

    def _team(self, claims: JsonObject, found: PersonRecord) -> str:
        settings = self.settings
        if not settings.team_claim:
            return found.team
        teams = [_lower(value) for value in _values(claims.get(settings.team_claim))]
        allowed = {_lower(team) for team in settings.team_values}
        return next((team for team in teams if is_name(team) and (not allowed or team in allowed)), "")

    async def _issuer(self) -> "Issuer":
        """Return the issuer's client, loaded for the first login: it takes a quarter of a second."""
        async with self._turn:
            if self._opened is None:
                module = await asyncio.to_thread(import_module, "kimi_proxy.team.oidc")
                self._opened = module.Issuer(self.settings, self._secret, self._now)
            return self._opened


def _name(claims: JsonObject, claim: str) -> str:
    """Return a person's name as ours are written. Raise LoginFailed if the issuer gives none that can be trusted."""
    given = claims.get(claim)
    name = _lower(given) if isinstance(given, str) else ""
    if claim == "email" and claims.get("email_verified") not in (True, "true"):
        raise LoginFailed("unknown", "the issuer has not verified the person's email address")
    if not is_name(name):
        raise LoginFailed("unknown", f"the claim {claim!r} is not a name of up to 64 letters, digits and . _ - + @")
    return name


def _lower(text: str) -> str:
    """Return a name in small letters; one that has others than ours stays as it is, and is none: K may be a Kelvin."""
    return text.lower() if text.isascii() else text


def _values(claim: JsonValue) -> Sequence[str]:
    """Return the values of a claim, which is one or a list of them."""
    given = claim if isinstance(claim, list) else [claim]
    return [value for value in given if isinstance(value, str)]


def _hash(id: str) -> bytes:
    """Return the stored hash of an id. With 256 random bits, an id needs no slow hash against guessing."""
    return sha256(id.encode("utf-8", "replace")).digest()
