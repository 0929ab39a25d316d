"""While a prompt cache lives, what was sent is sent again in the same bytes, whatever servers hold in memory."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.conversations import Assistant, Call, Item, Result, User, request
from tests.support.deep import IS_DEEP
from tests.support.fakes import MemoryDecisions, MemoryFacts, MemoryOriginals
from tests.support.services.chat.sanitizing import Clock

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.config.sections import SanitizerSettings as Settings
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.prompt_cache import SentPrefix
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target
from kimi_proxy.features.sanitizer.shorten import ShortenedText, Task, shorten
from kimi_proxy.services.chat.decisions import ChatDecisions
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.notes import Notes
from kimi_proxy.services.chat.prompt_cache import PromptCaches
from kimi_proxy.services.chat.sanitizer import Sanitizer
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store.protocols import DecisionRecord, FactKind, StoredEvent
from kimi_proxy.services.workers.pool import Workers

# Cuts at a new turn while the cache is warm are announced and paid for; `careful` makes none.
SETTINGS = Settings(policy="careful", budget_ms=60_000)
CACHED: dict[str, JsonValue] = {"cache_control": {"type": "ephemeral"}}
WARM_S, COLD_S = 60.0, 200_000.0
SERVERS = 3
NEWEST_KEPT = 24  # by `careful`, when the cache is cold


class Inline(Workers):
    async def shorten(self, task: Task, within_s: float, cpu_s: float) -> ShortenedText:
        return shorten(task)


class FailingDecisions(MemoryDecisions):
    """Decisions that can be out of reach for a while."""

    is_away = False

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("the disk does not answer")

    async def get(self, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        self._check()
        return await super().get(who, keys)

    async def add(
        self,
        who: Caller,
        new: Sequence[DecisionRecord],
        forget: Sequence[bytes] = (),
        replaces: Mapping[bytes, float] = MappingProxyType({}),
    ) -> Mapping[bytes, DecisionRecord]:
        self._check()
        return await super().add(who, new, forget, replaces)


class FailingFacts(MemoryFacts):
    """Facts of conversations that can be out of reach for a while."""

    is_away = False

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("the disk does not answer")

    async def get(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> Mapping[bytes, bytes]:
        self._check()
        return await super().get(who, kind, keys)

    async def put_if_absent(
        self, who: Caller, kind: FactKind, facts: Mapping[bytes, bytes], session: str | Mapping[bytes, str] = ""
    ) -> Mapping[bytes, bytes]:
        self._check()
        return await super().put_if_absent(who, kind, facts, session)


class SharedNotes:
    """What servers with one database know of the newest request of each conversation."""

    def __init__(self) -> None:
        self._notes: dict[bytes, tuple[SentPrefix, bytes, bool]] = {}

    async def note_sent(
        self, conversation: bytes, sent: SentPrefix, digest: bytes, if_unknown: bool, parent: bytes = b""
    ) -> tuple[bool, bytes]:
        if conversation not in self._notes:
            self._notes[conversation] = (sent, digest, if_unknown)
            return if_unknown, b""
        old, before, was_cold = self._notes[conversation]
        cold = not old.cold_after_s or sent.at - old.at > old.cold_after_s
        changed = bool(old.beginning) and sent.beginning not in (b"", old.beginning)
        cold = cold or (was_cold if before == digest else changed)
        self._notes[conversation] = (sent, digest, cold)
        return cold, before

    async def take_turn(self, name: str, per_minute: int) -> float:
        return 0.0

    def publish(self, event: StoredEvent) -> None:
        """Nobody listens."""

    async def follow(self, receive: object) -> None:
        """Nobody publishes."""


class Fleet:
    """Servers with one store, each with what it remembers of its own."""

    def __init__(self, servers: int) -> None:
        self.clock = Clock()
        self.originals, self.decisions, self.facts = MemoryOriginals(), FailingDecisions(), FailingFacts()
        self.notes = SharedNotes() if servers > 1 else None
        self.last: float | None = None
        self.workers = Inline()
        self.unwritten: dict[int, tuple[ChatDecisions, ChatFacts]] = {}
        self.servers = [self.new_server(at) for at in range(servers)]

    async def restart(self, at: int) -> None:
        """Start a server again, a second after its last request: by then all is written that does not wait."""
        await self.close(at)
        self.servers[at] = self.new_server(at)

    async def close(self, at: int) -> None:
        self.decisions.is_away = self.facts.is_away = False
        for each in self.unwritten[at]:
            await each.close()

    def new_server(self, at: int) -> Sanitizer:
        is_shared = self.notes is not None
        decisions = ChatDecisions(self.originals, self.decisions, is_shared=is_shared)
        facts = ChatFacts(Notes(self.facts, is_shared=is_shared))
        self.unwritten[at] = decisions, facts
        caches = PromptCaches(self.last_request, now=self.clock, replicas=self.notes)
        return Sanitizer(SETTINGS, "http://127.0.0.1:8000", decisions, facts, self.workers, Metrics(), caches)

    async def last_request(self, who: Caller, session: str) -> float | None:
        return self.last

    async def send(self, at: int, request: Request, is_away: bool) -> Request:
        draft = Draft(request, Target("kimi", "kimi-k2"), Session("s"), LOCAL)
        self.decisions.is_away = self.facts.is_away = is_away
        self.originals.illness = StoreUnavailable("the disk does not answer") if is_away else None
        try:
            return (await self.servers[at].change(draft)).request
        finally:
            self.last = self.clock.now


@dataclass(frozen=True)
class Step:
    rows: int  # of the new result
    seed: int
    is_cold: bool = False
    server: int = 0
    restarts: bool = False  # the server that answers has nothing in memory
    is_away: bool = False  # the store does not answer


STEPS = st.builds(
    Step,
    rows=st.sampled_from((1, 12, 25, 40, 60, 90, 400)),
    seed=st.integers(0, 5),
    is_cold=st.sampled_from((False, False, False, True)),
    server=st.integers(0, SERVERS - 1),
    restarts=st.booleans(),
    is_away=st.sampled_from((False, False, False, True)),
)
MANY = settings(max_examples=1_500 if IS_DEEP else 12, deadline=None)


def text(step: Step) -> str:
    return "\n".join(
        f"{row:4} {step.seed} value_{row} = lookup({row * step.seed}, 'of table {row}')" for row in range(step.rows)
    )


def beginning(request: Request) -> list[bytes]:
    """Return what a provider caches: the tools, and each message."""
    tools = bytes(request.members["tools"]) if "tools" in request.members else b""
    return [tools, *(request.body[message.start : message.end] for message in request.messages)]


async def follow(wire: Wire, steps: Sequence[Step], servers: int) -> int:
    """Send a conversation, and return how many of its warm prefixes were compared."""
    fleet, items, before, compared = Fleet(servers), list[Item](), list[bytes](), 0
    items.append(User("Mend the importer, please."))
    # Thirty results that nobody needs: at a cold moment the older ones are cut, short as they are.
    for number in range(NEWEST_KEPT + 6):
        items += [Assistant("", (Call(f"o{number}", "bash"),)), Result(f"o{number}", text(Step(30, number)))]
    for number, step in enumerate(steps):
        items += [Assistant("", (Call(f"c{number}", "bash"),)), Result(f"c{number}", text(step))]
        fleet.clock.now += COLD_S if step.is_cold else WARM_S
        at = step.server % servers
        # A server without its memory and without its store cannot know what was sent; one that has either can.
        is_away = step.is_away and servers == 1
        if step.restarts and not is_away:
            await fleet.restart(at)
        now = beginning(await fleet.send(at, request(wire, items, **CACHED), is_away))
        if before and not step.is_cold:
            assert now[: len(before)] == before, f"request {number} changed what was cached"
            compared += 1
        before = now
    for at in range(servers):
        await fleet.close(at)
    return compared


@MANY
@given(st.sampled_from(Wire), st.lists(STEPS, min_size=2, max_size=9))
def test_no_decision_once_sent_is_ever_unsent_by_one_server(wire: Wire, steps: list[Step]):
    asyncio.run(follow(wire, steps, servers=1))


@MANY
@given(st.sampled_from(Wire), st.lists(STEPS, min_size=2, max_size=9))
def test_no_decision_once_sent_is_ever_unsent_by_three_servers(wire: Wire, steps: list[Step]):
    asyncio.run(follow(wire, steps, servers=SERVERS))


def test_what_was_cut_when_the_cache_was_cold_stays_cut_when_it_is_warm():
    """The prefixes that are compared above are cut ones: short results come back in none of them."""

    async def send() -> list[int]:
        fleet, items, cuts = Fleet(1), list[Item]([User("Mend the importer, please.")]), list[int]()
        for number in range(NEWEST_KEPT + 10):
            items += [Assistant("", (Call(f"o{number}", "bash"),)), Result(f"o{number}", text(Step(30, number)))]
            fleet.clock.now += COLD_S if number == NEWEST_KEPT + 6 else WARM_S
            sent = beginning(await fleet.send(0, request(Wire.MESSAGES, items, **CACHED), is_away=False))
            cuts.append(sum(b"msk_" in message or b"prn_" in message for message in sent[1:]))
        await fleet.close(0)
        return cuts[-5:]

    assert asyncio.run(send()) == [0, *[7] * 4]
