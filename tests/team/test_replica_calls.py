"""Calls between servers that share a store, whose events a list carries here."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.services.store.making import opened

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.errors import CompressionRefused, NothingSeen, StoreUnavailable
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.chat.prompt_cache import SentPrefix
from kimi_proxy.services.store.protocols import FactStore, StoredEvent
from kimi_proxy.team.calls import QUESTION, ReplicaCalls, Work

ADA = Caller("person/ada", "ada", "platform", is_admin=True, also_reads=("team/platform",))


class Bus:
    """Passes what one server publishes on to the others, or keeps it if the line is down."""

    def __init__(self) -> None:
        self.servers: list[ReplicaCalls] = []
        self.kept: list[StoredEvent] = []
        self.is_down = False

    def line(self) -> "Line":
        return Line(self)


class Line:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def publish(self, event: StoredEvent) -> None:
        if self._bus.is_down:
            self._bus.kept.append(event)
            return
        for server in self._bus.servers:
            asyncio.get_running_loop().call_soon(server.receive, event)

    async def note_sent(
        self, conversation: bytes, sent: SentPrefix, digest: bytes, if_unknown: bool, parent: bytes = b""
    ) -> tuple[bool, bytes]:
        raise NotImplementedError

    async def take_turn(self, name: str, per_minute: int) -> float:
        raise NotImplementedError

    async def follow(self, receive: Callable[[StoredEvent], None]) -> None:
        raise NotImplementedError


def a_server(bus: Bus, facts: FactStore, work: Work, *sessions: str, taken_s: float = 60.0) -> ReplicaCalls:
    made = ReplicaCalls(bus.line(), facts, {"greet": work}, lambda who, session: session in sessions, 60.0, taken_s)
    bus.servers.append(made)
    return made


async def no_work(who: Caller, session: str) -> JsonObject:
    raise AssertionError("this server has no such session")


async def test_one_of_the_servers_that_have_a_session_answers_as_who_asked(tmp_path: Path) -> None:
    done: list[tuple[str, Caller]] = []

    async def greet(who: Caller, session: str) -> JsonObject:
        done.append((session, who))
        return {"hello": session}

    bus = Bus()
    async with opened(tmp_path) as store:
        asking = a_server(bus, store.facts, no_work)
        for _ in range(3):
            a_server(bus, store.facts, greet, "ses_a")
        assert await asking.ask(ADA, "greet", "ses_a") == {"hello": "ses_a"}
        for server in bus.servers:
            await server.close()

    # What an admin may see of others is figures: another server gives no more than to a member.
    assert done == [("ses_a", Caller(ADA.scope, "ada", "platform", is_admin=False, also_reads=ADA.also_reads))]


@pytest.mark.parametrize("error", [CompressionRefused("kept_by_provider", "begin a new one"), StoreUnavailable("full")])
async def test_what_another_server_raises_is_raised_here(tmp_path: Path, error: Exception) -> None:
    async def fail(who: Caller, session: str) -> JsonObject:
        raise error

    bus = Bus()
    async with opened(tmp_path) as store:
        asking = a_server(bus, store.facts, no_work)
        a_server(bus, store.facts, fail, "ses_a")
        with pytest.raises(type(error), match=str(error)) as raised:
            await asking.ask(LOCAL, "greet", "ses_a")

    assert getattr(raised.value, "reason", None) == getattr(error, "reason", None)


async def test_a_question_that_comes_too_late_is_not_answered_any_more(tmp_path: Path) -> None:
    """Who asked was refused meanwhile: a compression that began now would surprise them."""
    done: list[str] = []

    async def greet(who: Caller, session: str) -> JsonObject:
        done.append(session)
        return {}

    bus = Bus()
    async with opened(tmp_path) as store:
        asking = a_server(bus, store.facts, no_work, taken_s=0.05)
        late = a_server(bus, store.facts, greet, "ses_a")
        bus.is_down = True
        with pytest.raises(NothingSeen):
            await asking.ask(LOCAL, "greet", "ses_a")
        (question,) = bus.kept
        assert (question.name, late.receive(question)) == (QUESTION, True)
        await asyncio.sleep(0)
        await store.facts.put_if_absent(LOCAL, "tool", {b"later": b""})  # one after the other
        await asyncio.sleep(0.05)
        await late.close()

    assert (done, bus.kept) == ([], [question])


async def test_an_event_that_is_no_call_is_left_to_others(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        server = a_server(Bus(), store.facts, no_work)
        assert not server.receive(StoredEvent("metric_updated", 1.0, {"call": "x"}))
