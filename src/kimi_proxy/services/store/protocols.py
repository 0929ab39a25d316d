"""The contract of a store: its protocols, and the values that cross them. Nothing here depends on a database.

Every method raises StoreUnavailable if the store cannot answer in time; when a write returns, its data is on disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol

from kimi_proxy.core.caller import LOCAL_SCOPE, Caller
from kimi_proxy.core.json import JsonValue

if TYPE_CHECKING:  # a command that reads one original does not load what counts requests
    from kimi_proxy.features.accounting import SavingsLine
    from kimi_proxy.features.chat.prompt_cache import SentPrefix
    from kimi_proxy.features.metering import Metric
    from kimi_proxy.services.store.usage import UsageTables


class AuditNote(Protocol):
    """Called for each action of a person on stored texts: the action, the id that it applies to, and its outcome."""

    def __call__(self, who: Caller, action: str, subject: str, *, outcome: str = "ok") -> None: ...


NEWEST = 2**62  # as `before`: from the newest original on

# Project memory, routes, the sessions of answers, our tool in a conversation's tools, the real ids of responses,
# pending recall results, names for other gateways, claimed calls, windows in which room was made, tools on demand, days
# on which tools were called, and refused recalls, and conversations with their tool results, as hashes.
FactKind = Literal[
    "memory",
    "routed",
    "answered",
    "tool",
    "renamed",
    "open",
    "owed",
    "handed_over",
    "claimed",
    "thinking",
    "window",
    "deferred",
    "tool_use",
    "recall_refused",
    "conversation",
]

# Where a page of sessions starts: after the one with this last use and id.
Cursor = tuple[float, str]


@dataclass(frozen=True, slots=True)
class Original:
    """The text before anything was cut from it."""

    id: str
    scope: str
    key: bytes  # fingerprint of the question, so that the same question finds the same id
    text: bytes  # UTF-8, lone surrogates passed through
    about: bytes  # a small JSON note from which the cut can be explained later
    # The id of the person it is kept for, whose data may have been erased; it is not stored.
    person: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """The decision about a part of a conversation. `shown` is the text sent in its place; None if it was sent uncut."""

    key: bytes  # fingerprint of the part's position and its text
    why: str
    shown: bytes | None = None
    original_ids: tuple[str, ...] = ()  # the first is that of the part itself
    preview: str = ""
    session: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    created: float = 0.0
    last_used: float = 0.0


@dataclass(frozen=True, slots=True)
class ListedOriginal:
    """An original without its text, and the decision it was kept for, if there is one."""

    seq: int  # newer ones have a higher
    id: str
    about: bytes
    created: float
    last_used: float
    decision: DecisionRecord | None  # without `shown`


@dataclass(frozen=True, slots=True)
class StoredText:
    """The text of an original, None if it is damaged, with its position in insertion order."""

    seq: int
    id: str
    about: bytes
    text: bytes | None


@dataclass(frozen=True, slots=True)
class DecisionTotals:
    """The number of decisions for each reason, and the tokens of those that cut something."""

    outputs: Mapping[str, int]
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True)
class CompressionRecord:
    """One compression. `message` is sent to the model, `summary` is the part of it that was written for it."""

    id: str
    session: str
    at: float
    original_tokens: int
    compressed_tokens: int
    cut: int
    kept: tuple[int, ...]
    fingerprint: bytes
    message: str
    summary: str
    original: str  # the id of the removed messages
    summary_by: str
    kind: str  # compression or compaction
    is_automatic: bool
    undone: float | None = None


@dataclass(frozen=True, slots=True)
class CompressionTotals:
    compressions: int
    undone: int
    original_tokens: int
    compressed_tokens: int


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session, and the sum of its requests; counts are the providers', savings are estimated."""

    id: str
    name: str
    title: str
    provider: str
    model: str
    created: float
    last_used: float
    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    tokens_saved: int = 0
    cost_usd: float | None = None  # as far as prices are known
    cost_before_usd: float | None = None
    net_saved_tokens: int = 0
    net_saved_usd: float | None = None
    parent: str = ""  # the session that it helps, as a sub-agent or with requests on the side
    directory: str = ""  # the agent's working directory, if it reports one
    scope: str = LOCAL_SCOPE  # whose it is
    person: str = ""  # the id of who began it
    team: str = ""
    person_name: str = ""  # read from the table of people


@dataclass(frozen=True, slots=True)
class SessionTotals:
    sessions: int
    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    tokens_saved: int
    cost_usd: float | None  # as far as prices are known
    cost_before_usd: float | None
    net_saved_tokens: int
    net_saved_usd: float | None


@dataclass(frozen=True, slots=True)
class MemoryKind:
    """The memory of one kind, by the newest request of each session that had some."""

    kind: str
    sessions: int
    segments: int
    tokens: int


@dataclass(frozen=True, slots=True)
class MemoryTotals:
    """The sums over all requests whose context was measured."""

    requests: int
    with_memory: int
    sessions: int  # that had memory
    system_tokens: int
    memory_tokens: int
    tools_tokens: int
    chat_tokens: int
    kinds: tuple[MemoryKind, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """Connections to a database; a file has none."""

    size: int = 0
    idle: int = 0
    waiting: int = 0  # calls that wait for one


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """The fill level of a store, and whether it works."""

    path: str
    state: str  # "ok", or "degraded: …" in words that a person can act on
    originals: int
    bytes_on_disk: int
    max_bytes: int
    oldest: float | None  # when the oldest original was kept, in seconds of wall time
    commits: int  # transactions with originals written by this process; many originals may share one
    set_aside: tuple[str, ...]  # damaged files, left for a person to look at
    pool: PoolUsage = PoolUsage()

    def without_places(self) -> StoreUsage:
        """Return it as members of a team may see it: without addresses, paths and the words of a system."""
        return replace(self, path="", state=self.state.partition(":")[0], set_aside=())


class Originals(Protocol):
    """Originals by person and id; an id of another person is as unknown as one that was never given out."""

    async def find(self, who: Caller, key: bytes) -> str | None:
        """Return the newest live id for `key`. Giving an id out again counts as use."""

    async def find_hash(self, who: Caller, digest: bytes) -> str | None:
        """Return the newest live id of a person's own text with this SHA-256. Counts as use."""

    async def keep(self, original: Original) -> None:
        """Commit `original`. An id may be kept again for the same key and text: the newer note replaces the older."""

    async def get(self, who: Caller, id: str) -> Original:
        """Return the text stored under `id`, byte for byte. Counts as use.

        Raise PruneIdNotFound, whose reason is "unknown" or "expired".
        """

    async def live(self, who: Caller, ids: Collection[str]) -> frozenset[str]:
        """Return those of `ids` that can be recovered. Counts as use."""

    async def note(self, who: Caller, id: str) -> bytes | None:
        """Return the note of the original `id`; None if there is none. Does not count as use."""

    async def page(self, who: Caller, before: int, limit: int) -> Sequence[ListedOriginal]:
        """Return the originals before the one numbered `before`, newest first. Does not count as use."""

    async def texts(
        self, who: Caller, before: int, limit: int, ids: Collection[str] | None = None
    ) -> Sequence[StoredText]:
        """Return the texts of the same originals, without those that are damaged. Does not count as use."""

    async def of_sessions(self, who: Caller, sessions: Collection[str] | None) -> frozenset[str]:
        """Return the ids of originals whose note names one of these sessions, or any (None). Does not count as use."""

    async def of_person(self, who: Caller, person_id: str) -> Mapping[str, str]:
        """Return the originals that a team which shares keeps for a person, each with its session or ""."""

    async def delete(self, who: Caller, ids: Collection[str]) -> frozenset[str]:
        """Delete originals, whose ids answer "expired" from then on; return those that there were."""


class Decisions(Protocol):
    """Decisions about parts of conversations, by person and key, and about the histories of sessions."""

    async def get(self, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        """Return the decisions for `keys`, as far as there are any. Counts as use."""

    async def times(self, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, float]:
        """Return when the decisions for `keys` were made, by which a server sees that another one replaced them.

        Does not count as use.
        """

    async def add(
        self,
        who: Caller,
        new: Sequence[DecisionRecord],
        forget: Sequence[bytes] = (),
        replaces: Mapping[bytes, float] = MappingProxyType({}),
    ) -> Mapping[bytes, DecisionRecord]:
        """Delete the decisions in `forget`, add `new`, and return the resulting decisions for their keys.

        An existing decision stays: the first one wins. A decision is replaced by one in `replaces` only if it is still
        the one from that time.
        """

    async def of_original(self, who: Caller, id: str) -> DecisionRecord | None:
        """Return the decision for the part stored under `id`."""

    async def page(self, who: Caller, after: int, limit: int) -> Sequence[tuple[int, DecisionRecord]]:
        """Return decisions in the order in which they were made, each with its number, from `after` on.

        Does not count as use.
        """

    async def sole_originals(
        self, who: Caller, sessions: Collection[str] | None, also: Collection[str] = ()
    ) -> frozenset[str]:
        """Return the originals that only these sessions use, or all that sessions use (None).

        They are those of decisions and compressions, and `also`; an original that another session uses is not in it.
        """

    async def forget_sessions(self, who: Caller, sessions: Collection[str] | None) -> int:
        """Delete the decisions of these sessions, or all that the person has (None); return how many there were."""

    async def totals(self, who: Caller) -> DecisionTotals: ...

    async def add_compression(self, who: Caller, made: CompressionRecord, after: str | None = None) -> bool:
        """Add a compression and return True; return False if another one than `after` is active: the first one wins."""

    async def compressions(self, who: Caller, session: str, limit: int = 20) -> Sequence[CompressionRecord]:
        """Return the newest of a session, newest first."""

    async def compressed_sessions(self, who: Caller) -> frozenset[str]:
        """Return the ids of all sessions that were ever compressed."""

    async def undo_compression(self, who: Caller, id: str, at: float) -> None: ...

    async def compression_totals(self, who: Caller, session: str | None = None) -> CompressionTotals: ...


@dataclass(frozen=True, slots=True)
class StoredFact:
    kind: str
    session: str  # with which it is deleted; empty if it is of none
    value: bytes | None  # None if it is damaged on disk


class FactStore(Protocol):
    """Small facts of conversations, by person, kind and key. They expire when they are not used any more."""

    async def get(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> Mapping[bytes, bytes]:
        """Return the facts for `keys`, as far as there are any. Counts as use."""

    async def read(
        self, who: Caller, wanted: Mapping[FactKind, Collection[bytes]]
    ) -> Mapping[FactKind, Mapping[bytes, bytes]]:
        """Return facts of several kinds at once, as far as there are any. Counts as use."""

    async def put_if_absent(
        self, who: Caller, kind: FactKind, facts: Mapping[bytes, bytes], session: str | Mapping[bytes, str] = ""
    ) -> Mapping[bytes, bytes]:
        """Add facts, and return what there is for their keys then: the first one stays.

        Those that go with a session name it; `session` may have another one for each key.
        """

    async def delete(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> None: ...

    async def forget_sessions(self, who: Caller, sessions: Collection[str] | None) -> None:
        """Delete the facts of these sessions, or of all (None)."""

    async def page(self, who: Caller, after: int, limit: int) -> Sequence[tuple[int, StoredFact]]:
        """Return facts after the one numbered `after`, each with its number."""

    async def keys(self, who: Caller, kind: FactKind, limit: int) -> Sequence[bytes]:
        """Return at most `limit` keys. Does not count as use."""


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """The project memory of one person."""

    content: bytes  # JSON
    updated: float | None  # None if that is not known


class MemoryStore(Protocol):
    """Project memory, one for each person; on a server without a team there is one."""

    async def load(self, who: Caller) -> StoredMemory | None: ...

    async def save(self, who: Caller, memory: StoredMemory, *, replaces: bool = True) -> None:
        """Store the memory of a person, in place of what there was; without `replaces`, only if there was none."""

    async def people(self) -> frozenset[str]:
        """Return the ids of everyone who has some."""

    async def delete(self, person: str) -> None:
        """Delete the memory of the person of this id."""


@dataclass(frozen=True, slots=True)
class NewestRequest:
    """The newest request of a session that is on disk."""

    at: float
    noted_at: float | None = None  # in the account, which may be a moment behind
    was_observed: bool = False
    cache_life_s: float | None = None


class SessionStore(Protocol):
    """Sessions, their requests, and the savings and costs of these.

    Admins see everyone's figures, but no titles or texts of other people.
    """

    async def secret(self) -> bytes:
        """Return the key of the ids of sessions: made once, the same for every server that has this store."""

    async def own_ids(self, who: Caller, ids: Collection[str]) -> frozenset[str]:
        """Return those of `ids` that are sessions in the person's scope."""

    async def write(self, sessions: Sequence[SessionRecord], metrics: Sequence[Metric]) -> None:
        """Write all of it or nothing; writing the same data twice has no effect.

        Each row contains its owner. A row that would change a session in another scope has no effect there.
        """

    async def get(self, who: Caller, id: str) -> SessionRecord | None: ...

    async def newest(self, who: Caller, limit: int, after: Cursor | None = None) -> Sequence[SessionRecord]:
        """Return sessions, the last used first."""

    async def newest_ids(self, limit: int) -> Sequence[tuple[str, str]]:
        """Return scope and id of everyone's newest sessions, by which a server knows those that began before it."""

    async def search(self, who: Caller, words: str, limit: int) -> Sequence[SessionRecord]:
        """Return those whose title, name, id, model or provider holds `words`, the last used first.

        Of others not even an admin may learn whether a title holds some words.
        """

    async def count(self, who: Caller) -> int: ...

    async def totals(self, who: Caller) -> SessionTotals: ...

    async def memory_totals(self, who: Caller) -> MemoryTotals: ...

    async def newest_context(self, who: Caller, session: str) -> tuple[JsonValue, JsonValue]:
        """Return the memory and the layout of the newest request of a session, each None if it was not measured."""

    async def rename(self, who: Caller, id: str, title: str) -> bool:
        """Return False if there is no such session."""

    async def delete(self, who: Caller, ids: Sequence[str]) -> Sequence[str]:
        """Delete sessions with their requests and compressions; return the ids of those that there were."""

    async def delete_all(self, who: Caller) -> Sequence[str]: ...

    async def ids_of_person(self, person: str) -> Sequence[tuple[str, str]]:
        """Return scope and id of every session of the person of this id, also of those that they share with a team."""

    async def newest_metric(self, who: Caller, session: str) -> Metric | None: ...

    async def newest_request(self, who: Caller, session: str) -> NewestRequest | None:
        """Return when the newest request of a session left, and whether it was only observed."""

    async def newest_metrics(self, who: Caller, limit: int, session: str | None = None) -> Sequence[Metric]:
        """Return the requests of one session or of all, the newest last."""

    async def metrics(self, who: Caller, session: str | None, after: int, limit: int) -> Sequence[tuple[int, Metric]]:
        """Return requests in the order in which they were written, each with its number, from `after` on."""

    async def accounts(
        self, who: Caller, since: float, session: str | None = None, until: float = math.inf
    ) -> Sequence[SavingsLine]:
        """Return what requests from `since` to before `until` saved and cost, by session and model."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as one server published it for the viewers of all."""

    name: str
    at: float
    fields: Mapping[str, object]
    scope: str = LOCAL_SCOPE  # of the caller whose request it is about
    person_id: str = ""  # of that caller


class Replicas(Protocol):
    """State that servers on one database share."""

    async def note_sent(
        self, conversation: bytes, sent: SentPrefix, digest: bytes, if_unknown: bool, parent: bytes = b""
    ) -> tuple[bool, bytes]:
        """Record the newest request of a conversation; return whether the provider's prompt cache has surely lost it.

        The digest of the previous request is returned too, empty if there was none. Whether the cache is cold depends
        on that request, whichever server sent it. Equal requests, by their digest, within the cache's lifetime get the
        same answer: all of them are cut, or none. If there was no request before, that of `parent`, which this
        conversation continues, decides; `if_unknown` is the answer if there was none either.
        """

    async def take_turn(self, name: str, per_minute: int) -> float:
        """Count a request, if all servers together may make one now; return the seconds to wait if not, else 0."""

    def publish(self, event: StoredEvent) -> None:
        """Pass an event on to the other servers soon. Never blocks or raises; while the database is away it is lost."""

    async def follow(self, receive: Callable[[StoredEvent], None]) -> None:
        """Call `receive` with every event of the other servers, reconnecting forever."""


class Store(Protocol):
    @property
    def replicas(self) -> Replicas | None:
        """None if no other server has this store."""

    @property
    def originals(self) -> Originals: ...
    @property
    def decisions(self) -> Decisions: ...
    @property
    def facts(self) -> FactStore: ...
    @property
    def project_memory(self) -> MemoryStore: ...
    @property
    def sessions(self) -> SessionStore: ...
    @property
    def usage_by_day(self) -> UsageTables: ...

    def audit_by(self, note: AuditNote) -> None:
        """Have `note` called whenever a person recovers, searches, exports, compresses or deletes something."""

    async def usage(self) -> StoreUsage:
        """Never raises: a store that does not work reports it in `state`."""

    async def close(self) -> None: ...
