"""People and their tokens: made, shown once, found again by a hash, rotated, revoked."""

import hmac
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from pydantic import SecretStr

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import LOCAL_SCOPE, Caller, person_scope, team_scope
from kimi_proxy.core.errors import AccessDenied, InvalidParams, StoreUnavailable
from kimi_proxy.core.markers import new_id
from kimi_proxy.proxy.headers import TEAM_TOKEN
from kimi_proxy.team.records import PersonRecord, TeamTables, TokenRecord

Role = Literal["member", "admin"]

ADMIN = "admin"  # the name and the id of who calls with KIMI_PROXY_TOKEN; no one else may have the name
ADMIN_SCOPE = person_scope(ADMIN)
ID = "per"  # how the ids of people begin
TOKEN_BYTES = 32
MAX_TOKENS = 20  # live ones that a person makes for themselves
NOT_ALLOWED = (
    "send the newest token that you have from an admin, or log in to the dashboard: a token that you created yourself, "
    "or one that was replaced or revoked, cannot do this"
)
DAY_S = 86_400.0
CHECK_S = 2.0  # a token that was good is looked up again after this: so long a revoked one may still be used
# While the store is away, requests go on without cuts: a person who called before is known for this long.
REMEMBER_S = 900.0
MAX_KNOWN = 10_000

_NAME = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,63}", re.ASCII)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NewToken:
    """A person, and the token that is shown this once."""

    person: PersonRecord
    token: str


@dataclass(frozen=True, slots=True)
class OwnToken:
    """A token that a person made for themselves, shown this once."""

    record: TokenRecord
    token: str


class People:
    """`admin_token` is the server's own. `shares` lets members read what is stored for the team."""

    def __init__(
        self,
        tables: TeamTables,
        admin_token: SecretStr | None,
        shares: bool,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tables = tables
        admin = admin_token.get_secret_value().encode() if admin_token else b""
        # A command of a person has that person's token where the server has its own.
        self._admin_hash = None if not admin or admin.startswith(TEAM_TOKEN) else _hash(admin)
        self._shares = shares
        self._now = now
        self._fresh: LruCache[bytes, Caller] = LruCache(MAX_KNOWN, ttl_s=CHECK_S, now=monotonic)
        self._known: LruCache[bytes, Caller] = LruCache(MAX_KNOWN, ttl_s=REMEMBER_S, now=monotonic)

    async def identify(self, tokens: Iterable[bytes]) -> Caller | None:
        """Return who has one of these tokens; None if no one has. Raise StoreUnavailable if that cannot be said."""
        for token in tokens:
            hashed = _hash(token)
            if self._admin_hash is not None and hmac.compare_digest(hashed, self._admin_hash):
                return Caller(ADMIN_SCOPE, ADMIN, is_admin=True, person_id=ADMIN)
            if not token.startswith(TEAM_TOKEN):
                continue
            if (found := await self._with(hashed, self._with_token)) is not None:
                return found
        return None

    async def _with_token(self, hashed: bytes) -> PersonRecord | None:
        return await self._tables.person_with(hashed, self._now())

    async def of_token(self, token: SecretStr | None) -> Caller:
        """Return whose token this is, for a command that works for one person. Raise AccessDenied if it is no one's."""
        who = await self.identify([token.get_secret_value().encode()]) if token else None
        if who is None:
            raise AccessDenied("this store belongs to a team: set KIMI_PROXY_TOKEN to your own token")
        return who

    async def logged_in(self, id_hash: bytes) -> Caller | None:
        """Return whose login to the dashboard this is, as `identify` does for tokens."""
        return await self._with(id_hash, lambda hashed: self._tables.person_logged_in(hashed, self._now()))

    def forget(self, id_hash: bytes) -> None:
        """Look a login up again when it is used next: it has ended."""
        self._fresh.forget(id_hash)
        self._known.forget(id_hash)

    async def _with(self, hashed: bytes, find: Callable[[bytes], Awaitable[PersonRecord | None]]) -> Caller | None:
        if (fresh := self._fresh.get(hashed)) is not None:
            return fresh
        try:
            person = await find(hashed)
        except StoreUnavailable:
            if (known := self._known.get(hashed)) is None:
                raise
            return known
        if person is None:
            self._known.forget(hashed)
            return None
        caller = self.caller(person, hashed)
        self._fresh.put(hashed, caller)
        self._known.put(hashed, caller)
        return caller

    def caller(self, person: PersonRecord, credential: bytes = b"") -> Caller:
        """Return the caller for a request of `person`, who sent a token or login with this hash.

        If a team shares, data stored from then on belongs to the team; earlier data stays the person's.
        """
        own = person_scope(person.id)
        is_shared = self._shares and bool(person.team)
        return Caller(
            scope=team_scope(person.team) if is_shared else own,
            person=person.name,
            team=person.team,
            is_admin=person.role == "admin",
            also_reads=(own,) if is_shared else (),
            credential=credential,
            person_id=person.id,
        )

    async def list(self) -> Sequence[PersonRecord]:
        return await self._tables.people()

    async def add(self, by: Caller, name: str, role: Role = "member", team: str = "") -> NewToken:
        """Raise InvalidParams if the name is taken, or is none; AccessDenied if `by` is not an admin any more."""
        for field, given in (("name", name), ("team", team)):
            if not is_name(given) and (given or field == "name"):
                raise InvalidParams(field, "use up to 64 lowercase letters, digits and . _ - + @")
        now = round(self._now(), 3)
        token = _new_token()
        person = PersonRecord(name, role, team, now, now, id=new_id(ID))
        if name == ADMIN or not await self._tables.add_person(person, _hash(token.encode()), _credential(by)):
            if name != ADMIN and all(one.name != name for one in await self._tables.people()):
                raise AccessDenied(NOT_ALLOWED)
            raise InvalidParams("name", f"{name!r} already exists: choose another name, or rotate its token")
        return NewToken(person, token)

    async def rotate(self, by: Caller, name: str) -> NewToken:
        """Give a person a new token; all others stop working, and a revoked person is back.

        Raise InvalidParams if there is no such person, AccessDenied if `by` is not an admin any more.
        """
        now = round(self._now(), 3)
        token = _new_token()
        person = await self._tables.rotate_person(name, now, _hash(token.encode()), _credential(by))
        if person is None:
            await self._one(name)
            raise AccessDenied(NOT_ALLOWED)
        return NewToken(person, token)

    async def revoke(self, name: str) -> PersonRecord:
        """Revoke a person's token; their data stays theirs."""
        person = await self._tables.revoke_person(name, round(self._now(), 3))
        return person or await self._one(name)

    async def of(self, who: Caller) -> PersonRecord:
        """Return the person who calls. Raise InvalidParams if it is none, such as the server's own token."""
        found = next((one for one in await self._tables.people() if one.id == who.person_id), None)
        if found is None:
            raise InvalidParams("name", "this token belongs to no person of the team")
        return found

    async def remove(self, name: str) -> PersonRecord:
        """Remove a revoked name. Raise InvalidParams if the person is not revoked.

        Their data stays until it expires, and belongs to no one: the next person of that name has another id.
        """
        person = await self._one(name)
        if person.revoked is None:
            raise InvalidParams("name", f"{name!r} still has a working token: kimi-proxy team revoke {name}")
        await self._tables.remove_person(person.id)
        return person

    async def make_token(self, who: Caller, label: str, days: int) -> OwnToken:
        """Return a token that a person makes for themselves, and that expires.

        Raise InvalidParams if they have too many, AccessDenied if they do not call with their newest token from an
        admin, or a login.
        """
        credential = _credential(who)
        if credential is None:
            raise AccessDenied("only team members have tokens: add one with kimi-proxy team add NAME")
        now = round(self._now(), 3)
        token = _new_token()
        made = TokenRecord(new_id("tok"), who.person_id, label, now, now + days * DAY_S)
        if not await self._tables.add_token(made, _hash(token.encode()), credential, MAX_TOKENS):
            live = [one for one in await self._tables.tokens(who.person_id) if one.expires > now]
            if len(live) < MAX_TOKENS:
                raise AccessDenied(NOT_ALLOWED)
            raise InvalidParams("label", f"you have {len(live)} tokens: revoke one first")
        return OwnToken(made, token)

    async def tokens(self, who: Caller) -> Sequence[TokenRecord]:
        """Return the tokens that a person made for themselves."""
        return await self._tables.tokens(who.person_id) if who.person_id else ()

    async def end_token(self, who: Caller, id: str) -> None:
        """Raise InvalidParams if the person has no such token."""
        if not await self._tables.end_token(who.person_id, id):
            raise InvalidParams("token_id", f"you have no token {id[:40]!r}")

    async def one(self, name: str) -> PersonRecord:
        """Raise InvalidParams if there is no such person."""
        return await self._one(name)

    async def _one(self, name: str) -> PersonRecord:
        found = next((one for one in await self._tables.people() if one.name == name), None)
        if found is None:
            raise InvalidParams("name", f"there is no {name[:64]!r}; kimi-proxy team list shows everyone")
        return found


def is_person_id(text: str) -> bool:
    """Return whether this is an id of a person and no name, which has no underscore."""
    return text.startswith(f"{ID}_")


def is_name(text: str) -> bool:
    """Return whether a person or a team may be called so."""
    return _NAME.fullmatch(text) is not None


def _credential(by: Caller) -> bytes | None:
    """Return the credential to look up; None for a command on the server and for KIMI_PROXY_TOKEN."""
    return None if by.scope in (LOCAL_SCOPE, ADMIN_SCOPE) else by.credential


def _new_token() -> str:
    return TEAM_TOKEN.decode() + secrets.token_urlsafe(TOKEN_BYTES)


def _hash(token: bytes) -> bytes:
    """Return the stored hash of a token. With 256 random bits, a token needs no slow hash against guessing."""
    return sha256(token).digest()
