"""What a store promises: an original that it has taken comes back byte for byte, or the caller is told why not."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Original:
    """A text as it was before anything was cut from it."""

    id: str
    scope: str
    key: bytes  # fingerprint of what was asked, so that the same question finds the same id
    text: bytes  # UTF-8, lone surrogates passed through
    about: bytes  # a small JSON note for whoever explains the cut later


@dataclass(frozen=True, slots=True)
class Usage:
    """How full a store is, and how it feels."""

    path: str
    state: str  # "ok", or "degraded: …" in words that a person can act on
    originals: int
    bytes_on_disk: int
    max_bytes: int
    oldest: float | None  # when the oldest original was kept, in seconds of wall time
    commits: int  # transactions written by this process; many originals may share one
    set_aside: tuple[str, ...]  # damaged files, left for a person to look at


class Store(Protocol):
    """Originals by scope and id. Whoever knows one scope learns nothing of another."""

    async def find(self, scope: str, key: bytes) -> str | None:
        """The newest live id for `key`. Giving an id out again counts as use."""

    async def keep(self, original: Original) -> None:
        """Return once `original` is on disk for good; StoreUnavailable if that can't be said in time.

        An id may be kept again for the same key and text: the newer note stands.
        """

    async def original(self, scope: str, id: str) -> Original:
        """What was kept under `id`; PruneIdNotFound tells unknown from expired. Counts as use."""

    async def live(self, scope: str, ids: Collection[str]) -> frozenset[str]:
        """Those of `ids` that are honoured. Naming them again counts as use."""

    async def usage(self) -> Usage:
        """Never fails: a sick store says so in `state`."""

    async def close(self) -> None: ...
