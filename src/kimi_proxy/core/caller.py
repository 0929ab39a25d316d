"""The caller: the person who sends a request, and the scope of all data stored for them.

The guard creates this value for every request; from there it is an explicit argument down to the store's SQL.
"""

from dataclasses import dataclass, field, replace

LOCAL_SCOPE = "local"
OBSERVED = "observed/"  # how the scope begins of what would have been remembered; nothing of it is stored
PERSON_SCOPE = "person/"  # how the scope of one person begins; the person's id follows


@dataclass(frozen=True, slots=True)
class Caller:
    """A person, by name and id, and the scopes they may read. Their own texts are stored in the first.

    A name can be given to another person later; an id cannot, so rows belong to ids.
    """

    scope: str = LOCAL_SCOPE
    person: str = ""
    team: str = ""
    is_admin: bool = False
    also_reads: tuple[str, ...] = ()
    # The hash of the token or login with which they call; the same person may have several.
    credential: bytes = field(default=b"", compare=False, repr=False)
    person_id: str = ""  # empty on a server without a team

    @property
    def scopes(self) -> tuple[str, ...]:
        """Return every scope whose texts this person may read."""
        return (self.scope, *self.also_reads)

    @property
    def observed(self) -> "Caller":
        """The same person for a request that is only observed: what would have been remembered is kept apart."""
        return replace(self, scope=f"{OBSERVED}{self.scope}", also_reads=self.scopes)

    @property
    def is_observed(self) -> bool:
        return self.scope.startswith(OBSERVED)

    @property
    def real(self) -> "Caller":
        """The person as the store knows them."""
        if not self.is_observed:
            return self
        return replace(self, scope=self.scope.removeprefix(OBSERVED), also_reads=self.also_reads[1:])

    @property
    def counts(self) -> tuple[str, ...] | None:
        """Return every scope whose figures this person may see; None for all of them."""
        return None if self.is_admin else self.scopes


def person_scope(person_id: str) -> str:
    """Return the scope of one person's own rows."""
    return f"{PERSON_SCOPE}{person_id}"


def team_scope(team: str) -> str:
    """Return the scope of the rows that a team shares."""
    return f"team/{team}"


LOCAL = Caller(is_admin=True)  # the one person of a server without a team
ANONYMOUS = Caller("", is_admin=False)  # of a request that needs no token in a team; nothing is stored for it
