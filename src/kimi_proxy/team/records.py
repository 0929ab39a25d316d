"""Team data in the store: people, their usage by day, and the audit log.

These tables contain no text of a conversation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kimi_proxy.services.store.usage import OpenRequest, UsageKey, UsageTables


@dataclass(frozen=True, slots=True)
class PersonRecord:
    """A person. The store contains only a hash of their token, and never returns it.

    A name can be given to another person later. An id cannot, so every row that belongs to a person holds their id.
    """

    name: str
    role: str  # member or admin
    team: str  # "" for none
    created: float
    rotated: float  # when the token was made
    revoked: float | None = None
    subject: str = ""  # whom the issuer of logins knows them as, once they have logged in
    id: str = ""


@dataclass(frozen=True, slots=True)
class LoginRecord:
    """A login to the dashboard under the hash of a random id: begun, if it is no one's yet, else made by a person."""

    id_hash: bytes
    began: float
    expires: float
    person: str = ""  # their id
    detail: str = ""  # the data needed to finish a login


@dataclass(frozen=True, slots=True)
class UsageRange:
    """The requests that a budget counts: since a day, by person, team and model; None means all of them."""

    since: str
    person: str | None = None  # their id
    team: str | None = None
    models: tuple[str, ...] | None = None  # every name under which the model is counted


@dataclass(frozen=True, slots=True)
class Spent:
    """The used part of a budget: requests that were allowed, and money, including that reserved for open requests."""

    requests: int
    usd: float


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An audit entry: who did what, when, to which id. It never holds a text, a title or a key."""

    at: float
    person: str
    action: str
    subject: str = ""
    detail: str = ""
    outcome: str = "ok"  # or why it failed: a code such as expired, unknown, store_unavailable
    person_id: str = ""


@dataclass(frozen=True, slots=True)
class ErasedPerson:
    """A person whose data was erased, by id, and the scopes that held some of it."""

    seq: int
    id: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token that a person created for themselves, in addition to the admin's. Only its hash is stored."""

    id: str
    person: str  # their id
    label: str
    created: float
    expires: float


class TeamTables(UsageTables, Protocol):
    """Every method raises StoreUnavailable if the store cannot answer in time."""

    async def people(self) -> Sequence[PersonRecord]:
        """Return everyone by name, those whose token was revoked too."""

    async def person_with(self, token_hash: bytes, now: float) -> PersonRecord | None:
        """Return who has this token; None if no one has it, it has expired, or it was revoked."""

    async def add_person(self, person: PersonRecord, token_hash: bytes, by: bytes | None) -> bool:
        """Return False, and change nothing, if the name is taken, or if `by` is not the credential of an admin.

        A credential is the hash of the token that a person got from an admin, or of a login; the server itself needs
        none. It is looked up in the statement that writes, so one that was just replaced is refused.
        """

    async def rotate_person(self, name: str, at: float, token_hash: bytes, by: bytes | None) -> PersonRecord | None:
        """Replace a person's token, delete the tokens and logins that came with it, and undo a revocation.

        Return None, and change nothing, if there is no such name, or if `by` is not the credential of an admin.
        """

    async def revoke_person(self, name: str, at: float) -> PersonRecord | None:
        """Return the revoked person; None if there is no such name."""

    async def remove_person(self, person: str) -> bool:
        """Delete the person of this id and their tokens and logins; their days are counted under no name from then on.

        Return False if there is no such person.
        """

    async def add_token(self, token: TokenRecord, token_hash: bytes, by: bytes, most: int) -> bool:
        """Add a token of a person's own, and delete some of those that expired before it was made.

        Return False, and add nothing, if `by` is not that person's credential, as for `add_person`, or if they have
        `most` tokens.
        """

    async def tokens(self, person: str) -> Sequence[TokenRecord]:
        """Return the own tokens of the person of this id, also expired ones, the newest first."""

    async def end_token(self, person: str, id: str) -> bool:
        """Delete a token of a person's own; return False if there is none."""

    async def erase_person(self, person: str, scopes: Sequence[str], at: float) -> None:
        """From the return on, nothing is written for the person of this id, in `scopes` or in others.

        Their usage is counted under no name, and entries of the audit log are written.
        """

    async def erased_since(self, seq: int) -> Sequence[ErasedPerson]:
        """Return the people whose erasure began after the one numbered `seq`, in that order."""

    async def erase_scope(self, scope: str) -> None:
        """Delete the rest of a scope once its sessions, decisions and originals are deleted: facts and bare ids."""

    async def change_by_login(self, person: PersonRecord) -> bool:
        """Store the role, the team and the subject from a login; other changes made in the meantime stay.

        Return False, and change nothing, if the person is revoked, or has logged in as another subject.
        """

    async def keep_login(self, login: LoginRecord) -> None:
        """Write down a login, and delete some of those that expired before it began."""

    async def take_login(self, id_hash: bytes) -> LoginRecord | None:
        """Return a login and delete it: of several that take it, one gets it."""

    async def person_logged_in(self, id_hash: bytes, now: float) -> PersonRecord | None:
        """Return the person of this login; None if it expired, or if their token was revoked or replaced since."""

    async def admit(
        self,
        use: UsageKey,
        ranges: Sequence[UsageRange],
        decide: Callable[[Sequence[Spent]], bool],
        reserve: OpenRequest | None = None,
    ) -> Sequence[Spent]:
        """Return the usage of `ranges` before this request, which is counted if `decide` accepts that usage.

        `reserve` is then opened too. No two requests, on any servers, are decided with the same totals.
        """

    async def add_audit(self, entries: Sequence[AuditEntry]) -> None: ...

    async def audit(self, before: int, limit: int, since: float = 0.0) -> Sequence[tuple[int, AuditEntry]]:
        """Return entries since `since` before the one numbered `before`, each with its number, the newest first."""

    async def expire_audit(self, before: float) -> int:
        """Delete entries that are older; return how many they were, at most some thousands at once."""
