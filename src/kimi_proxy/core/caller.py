"""The caller: the person who sends a request, and the scope of all data stored for them.

The guard creates this value for every request; from there it is an explicit argument down to the store's SQL.
"""

from dataclasses import dataclass, field

LOCAL_SCOPE = "local"


@dataclass(frozen=True, slots=True)
class Caller:
    """A person, by name, and the scopes they may read. Their own texts are stored in the first."""

    scope: str = LOCAL_SCOPE
    person: str = ""
    team: str = ""
    is_admin: bool = True
    also_reads: tuple[str, ...] = ()
    # The hash of the token or login with which they call; the same person may have several.
    credential: bytes = field(default=b"", compare=False, repr=False)

    @property
    def scopes(self) -> tuple[str, ...]:
        """Return every scope whose texts this person may read."""
        return (self.scope, *self.also_reads)

    @property
    def counts(self) -> tuple[str, ...] | None:
        """Return every scope whose figures this person may see; None for all of them."""
        return None if self.is_admin else self.scopes


LOCAL = Caller()  # the one person of a server without a team
ANONYMOUS = Caller("", is_admin=False)  # of a request that needs no token in a team; nothing is stored for it
