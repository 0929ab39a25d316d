"""A new conversation is told of the project, and told the same for as long as it lives."""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.conversations import SYSTEM, Assistant, Item, User, request
from tests.support.fakes import Clock, MemoryFacts
from tests.support.services.store.making import opened

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.config.sections import MemorySettings as Settings
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.chat.pipeline import Draft, run_stages
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.metering import Metric
from kimi_proxy.features.models import Target
from kimi_proxy.services.chat.memory import Memories, ProjectMemory
from kimi_proxy.services.chat.notes import Notes
from kimi_proxy.services.store.protocols import FactKind
from kimi_proxy.services.store.sqlite.store import SqliteStore

ON = Settings(inject=True)
FIRST: list[Item] = [User("fix it")]
LATER: list[Item] = [*FIRST, Assistant("done"), User("thanks")]
BLOCK = '<mcp-memory source="project">\ntabs, not spaces\n</mcp-memory>'


class World:
    def __init__(self, memory: ProjectMemory, store: SqliteStore) -> None:
        self.memory = memory
        self.store = store

    async def send(self, items: list[Item], session: str = "ses_1", wire: Wire = Wire.MESSAGES) -> Draft:
        def failed(name: str, error: Exception) -> None:
            raise error

        draft = Draft(request(wire, items), Target("p", "m"), Session(session), LOCAL)
        return await run_stages(draft, (self.memory.change,), failed)


def memories(home: Path, store: SqliteStore, now: Clock | None = None) -> Memories:
    return Memories(store.project_memory, home, 65_536, now or Clock(), user_home=lambda: home / "user")


@asynccontextmanager
async def world(home: Path, settings: Settings = ON) -> AsyncIterator[World]:
    async with opened(home) as store:
        clock = Clock(1_800_000_000.0)
        yield World(ProjectMemory(memories(home, store, clock), settings, Notes(store.facts), store.sessions), store)


def told(asked: Request) -> list[str]:
    return [part.text for part in asked.system]


@pytest.mark.parametrize("wire", Wire)
async def test_a_new_conversation_is_told_by_the_system_wherever_the_api_puts_it(tmp_path: Path, wire: Wire):
    async with world(tmp_path) as w:
        await w.memory.save(LOCAL, "tabs, not spaces")
        first, later = await w.send(FIRST, wire=wire), await w.send(LATER, wire=wire)

    assert told(first.request) == told(later.request) == [f"{SYSTEM}\n\n{BLOCK}"]
    assert [note.event for note in (*first.notes, *later.notes)] == ["memory_injected"]


async def test_it_stays_the_same_after_an_edit_a_restart_and_when_it_is_switched_off(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.memory.save(LOCAL, "tabs, not spaces")
        first = await w.send(FIRST)
        await w.memory.save(LOCAL, "spaces, not tabs")
        edited, other = await w.send(LATER), await w.send(FIRST, "ses_2")
    async with world(tmp_path) as w:
        restarted = await w.send(LATER)
    async with world(tmp_path, Settings(inject=False)) as w:
        off, new = await w.send(LATER), await w.send(FIRST, "ses_3")

    assert {draft.request.body for draft in (edited, restarted, off)} == {edited.request.body}
    assert told(first.request) == told(off.request) == [f"{SYSTEM}\n\n{BLOCK}"]
    assert "spaces, not tabs" in told(other.request)[0]
    assert told(new.request) == [SYSTEM]


async def test_a_conversation_that_began_without_it_goes_on_without_it(tmp_path: Path):
    async with world(tmp_path) as w:
        without = await w.send(FIRST)
        await w.memory.save(LOCAL, "tabs, not spaces")
        in_the_middle, later = await w.send(LATER, "ses_2"), await w.send(LATER)
        again = await w.send(FIRST)
    async with world(tmp_path) as w:
        restarted = await w.send(FIRST)

    for draft in (without, in_the_middle, later, again, restarted):
        assert told(draft.request) == [SYSTEM]


async def test_a_session_with_requests_behind_it_is_not_new(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.memory.save(LOCAL, "tabs, not spaces")
        await w.store.sessions.write((), [Metric("req_1", "ses_1", 1.0, "p", "m", "chat", 1, 0, (), None)])
        draft = await w.send(FIRST)

    assert told(draft.request) == [SYSTEM]


async def test_it_is_off_unless_somebody_switches_it_on(tmp_path: Path):
    async with world(tmp_path, Settings()) as w:
        await w.memory.save(LOCAL, "tabs, not spaces")
        before = await w.send(FIRST)
        w.memory.is_on = True
        after = await w.send(FIRST, "ses_2")

    assert told(before.request) == [SYSTEM]
    assert len(told(after.request)[0]) > len(SYSTEM)


async def test_what_stands_in_the_memory_cannot_end_its_block(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.memory.save(LOCAL, "a</mcp-memory>b<MCP-memory>")
        draft = await w.send(FIRST)

    assert told(draft.request)[0].endswith("\na< /mcp-memory>b< MCP-memory>\n</mcp-memory>")


async def test_what_is_no_text_is_told_as_json(tmp_path: Path):
    async with world(tmp_path) as w:
        shown = await w.memory.save(LOCAL, {"style": "tabs"})
        draft = await w.send(FIRST)

    assert shown["content"] == {"style": "tabs"}
    assert '\n{"style":"tabs"}\n' in told(draft.request)[0]


async def test_a_broken_file_is_told_and_nothing_is_injected(tmp_path: Path):
    (tmp_path / "project_memory.json").write_bytes(b"{")
    async with world(tmp_path) as w:
        shown, draft = await w.memory.load(LOCAL), await w.send(FIRST)

    assert "not JSON" in str(shown["trouble"])
    assert told(draft.request) == [SYSTEM]


class SickFacts(MemoryFacts):
    """Says of the first fact that it could not be written, though it is."""

    def __init__(self, store: SqliteStore) -> None:
        super().__init__()
        self._stored = store.facts
        self.is_sick = True

    async def get(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> Mapping[bytes, bytes]:
        return await self._stored.get(who, kind, keys)

    async def put_if_absent(
        self, who: Caller, kind: FactKind, facts: Mapping[bytes, bytes], session: str | Mapping[bytes, str] = ""
    ) -> Mapping[bytes, bytes]:
        known = await self._stored.put_if_absent(who, kind, facts, session)
        if self.is_sick:
            raise StoreUnavailable("the disk has not answered in time")
        return known

    async def delete(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> None:
        await self._stored.delete(who, kind, keys)


async def test_who_began_without_because_the_disk_was_slow_goes_on_without(tmp_path: Path):
    async with world(tmp_path) as w:
        stored = SickFacts(w.store)
        slow = World(ProjectMemory(memories(tmp_path, w.store), ON, Notes(stored), w.store.sessions), w.store)
        await slow.memory.save(LOCAL, "tabs, not spaces")
        first = await slow.send(FIRST)
        stored.is_sick = False
        later, other = await slow.send(LATER), await slow.send(FIRST, "ses_2")
    async with world(tmp_path) as w:
        restarted = await w.send(LATER)

    for draft in (first, later, restarted):
        assert told(draft.request) == [SYSTEM]
    assert told(other.request) == [f"{SYSTEM}\n\n{BLOCK}"]
