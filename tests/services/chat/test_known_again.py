"""A conversation is known again when its client changes its reminders, forks it, or resumes it under another id."""

import json
import re
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pytest
from tests.support import outputs
from tests.support.conversations import Assistant, Call, Item, Result, User, body, results
from tests.support.evil import Evil, Heard, Line, evil, http
from tests.support.fakes import Clock
from tests.support.model import Says
from tests.support.model import body as answer_body

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.chat.wires import wire_of_path
from kimi_proxy.core.config import parse
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.chat.compression import presets
from kimi_proxy.features.chat.sessions import LOCAL_IDS
from kimi_proxy.services.chat.requests import ChatRequest
from kimi_proxy.services.store.sqlite.store import store_path

PAUSE_S = 20.0
PRUNED = re.compile(r"prn_[0-9a-z]{16}")
NOW = 1_800_000_000.0
SETTINGS = "[sanitizer]\nbudget_ms = 60_000\n"


async def answers(heard: Heard, line: Line) -> None:
    wire = wire_of_path(heard.target.partition("?")[0])
    assert wire is not None
    await line.send(http(answer_body(wire, Says("So."))))


@dataclass
class World:
    """A proxy that is started again and again over the same store, and what its provider was sent."""

    home: Path
    provider: Evil
    clock: Clock = field(default_factory=lambda: Clock(NOW))
    settings: str = SETTINGS

    @asynccontextmanager
    async def proxy(self) -> AsyncIterator[Runtime]:
        toml = f"{self.provider.toml('anthropic')}{self.settings}"
        async with running(parse(toml, {}, self.home), thread_max_chars=10**9, now=self.clock) as runtime:
            yield runtime

    @property
    def sent(self) -> Request:
        return Request(Wire.MESSAGES, self.provider.heard[-1].body)


@asynccontextmanager
async def world(home: Path, settings: str = "") -> AsyncIterator[World]:
    async with evil(answers) as provider:
        yield World(home, provider, settings=SETTINGS + settings)


async def ask(
    here: World,
    runtime: Runtime,
    items: Sequence[Item],
    reminder: str = "Monday",
    session: str = "one",
    agent: str = "",
) -> Request:
    """Send a request as Claude Code does, and return it as it left."""
    here.clock.advance(PAUSE_S)
    headers = [(b"x-claude-code-session-id", session.encode())]
    headers += [(b"x-claude-code-agent-id", agent.encode())] if agent else []
    asked = ChatRequest(LOCAL, Wire.MESSAGES, claude_body(items, reminder), tuple(headers))
    async with runtime.chat.answer(asked) as answer:
        async for _ in answer.pieces():
            pass
        assert answer.status == 200
    await runtime.sessions.caught_up()
    return here.sent


def claude_body(items: Sequence[Item], reminder: str) -> bytes:
    made: JsonObject = json.loads(body(Wire.MESSAGES, items))
    messages: list[JsonObject] = made["messages"]  # type: ignore[assignment]
    said = messages[0]["content"]
    reminded = {"type": "text", "text": f"<system-reminder>\nToday is {reminder}.\n</system-reminder>\n"}
    messages[0]["content"] = [reminded, {"type": "text", "text": said, "cache_control": {"type": "ephemeral"}}]
    return json.dumps(made).encode()


def log(number: int) -> str:
    return outputs.pytest_log(150, number).text


def run(turns: int, first: int = 0, ids: str = "toolu_{}", words: str = "Find the test that fails.") -> list[Item]:
    """A conversation after that many calls, each with a long result of its own."""
    items: list[Item] = [User(words)]
    for number in range(turns):
        id = ids.format(first + number)
        items += [Assistant("", (Call(id, "bash", {"command": f"pytest {number}"}),)), Result(id, log(first + number))]
    return items


def is_cut(text: str) -> bool:
    return "⟦PRUNÉ" in text


def messages(request: Request) -> list[bytes]:
    """The messages as they left, without the one that holds the reminder."""
    return [request.body[message.start : message.end] for message in request.messages[1:]]


async def test_a_changed_reminder_leaves_the_tool_and_every_cut_as_they_were(tmp_path: Path):
    async with world(tmp_path) as here, here.proxy() as runtime:
        for turns in range(3):
            before = await ask(here, runtime, run(turns))
        after = await ask(here, runtime, run(3), "Tuesday")
        later = await ask(here, runtime, run(4), "Tuesday")

    assert "recover_text" in before.tool_names and after.tool_names == before.tool_names == later.tool_names
    assert all(map(is_cut, results(before).values()))
    assert all(map(is_cut, results(after).values())), "those of before, and the new one"
    assert results(after).items() <= results(later).items()


async def test_so_it_is_after_a_restart(tmp_path: Path):
    async with world(tmp_path) as here:
        async with here.proxy() as runtime:
            for turns in range(4):
                before = await ask(here, runtime, run(turns))
        async with here.proxy() as runtime:
            again = await ask(here, runtime, run(3), "Tuesday")
            later = await ask(here, runtime, run(4), "Tuesday")

    assert again.tool_names == before.tool_names == later.tool_names
    assert results(again) == results(before)
    assert is_cut(results(later)["toolu_3"])


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_fork_goes_on_as_its_parent_did(tmp_path: Path, restarts: bool):
    async with world(tmp_path) as here:
        async with here.proxy() as runtime:
            for turns in range(4):
                parent = await ask(here, runtime, run(turns))
            fork = (
                None
                if restarts
                else await ask(here, runtime, [*run(3), Assistant("So."), User("Go on.")], session="two")
            )
        if fork is None:
            async with here.proxy() as runtime:
                fork = await ask(here, runtime, [*run(3), Assistant("So."), User("Go on.")], session="two")

    assert fork.tool_names == parent.tool_names
    assert messages(fork)[: len(messages(parent))] == messages(parent), "the provider has this cached"


async def test_a_fork_leaves_its_parent_alone(tmp_path: Path):
    async with world(tmp_path) as here, here.proxy() as runtime:
        for turns in range(4):
            parent = await ask(here, runtime, run(turns))
        fork = await ask(here, runtime, [*run(3), *run(1, first=7)[1:]], session="two")
        await runtime.sessions.delete(LOCAL, ["two"])
        again = await ask(here, runtime, [*run(3), Assistant("So."), User("Go on.")])
        kept = await originals(runtime)

    assert is_cut(results(fork)["toolu_7"])
    assert again.tool_names == parent.tool_names and messages(again)[: len(messages(parent))] == messages(parent)
    assert kept == {log(number) for number in range(3)}, "the fork's own is gone with it"


async def originals(runtime: Runtime) -> set[str]:
    ids = [mask["id"] for mask in await runtime.sanitizer.masks(LOCAL, 100)]
    return {(await runtime.store.originals.get(LOCAL, id)).text.decode() for id in ids}


async def test_a_fork_outlives_its_parent(tmp_path: Path):
    async with world(tmp_path) as here:
        async with here.proxy() as runtime:
            for turns in range(4):
                await ask(here, runtime, run(turns))
            fork = await ask(here, runtime, [*run(3), Assistant("So."), User("Go on.")], session="two")
            await runtime.sessions.delete(LOCAL, ["one"])
            kept = await originals(runtime)
        async with here.proxy() as runtime:
            again = await ask(here, runtime, [*run(3), Assistant("So."), User("Go on.")], session="two")

    assert kept == {log(number) for number in range(3)}
    assert messages(again) == messages(fork) and again.tool_names == fork.tool_names


async def test_a_fork_of_a_fork_is_known_by_what_only_the_fork_has(tmp_path: Path):
    own: list[Item] = [*run(3), *run(1, first=7)[1:]]
    async with world(tmp_path) as here, here.proxy() as runtime:
        for turns in range(4):
            await ask(here, runtime, run(turns))
        fork = await ask(here, runtime, own, session="two")
        await ask(here, runtime, run(5))
        again = await ask(here, runtime, [*own, Assistant("So."), User("Go on.")], session="three")

    assert is_cut(results(fork)["toolu_7"])
    assert messages(again)[: len(messages(fork))] == messages(fork)


async def test_a_fork_begins_with_the_project_memory_of_its_parent(tmp_path: Path):
    async with world(tmp_path, "[memory]\ninject = true\n") as here, here.proxy() as runtime:
        await runtime.project_memory.save(LOCAL, "The tests need a database.")
        for turns in range(4):
            parent = await ask(here, runtime, run(turns))
        await runtime.project_memory.save(LOCAL, "They need none any more.")
        fork = await ask(here, runtime, run(3), session="two")

    assert b"The tests need a database." in parent.body and fork.body == parent.body


async def test_a_fork_has_the_summary_of_its_parent_and_undoes_only_its_own(tmp_path: Path):
    """Compression replaces old exchanges: without a copy, the fork would be long again."""
    chat: list[Item] = [User("Find the test that fails.")]
    for number in range(8):
        words = f"Step {number}. " + "All of this has been said before. " * 60
        chat += [*run(1, first=number)[1:], Assistant(words), User(f"Next: {number}.")]
    async with world(tmp_path) as here, here.proxy() as runtime:
        usual, _ = presets(runtime.config.compression, runtime.config.compaction)
        await ask(here, runtime, chat[:1])
        await ask(here, runtime, chat)
        await runtime.compressions.compress(LOCAL, "one", usual)
        parent = await ask(here, runtime, chat)
        fork = await ask(here, runtime, chat, session="two")
        await runtime.compressions.undo(LOCAL, "two")
        undone = await ask(here, runtime, chat, session="two")
        again = await ask(here, runtime, chat)

    assert b"KIMI_PROXY_HISTORY_SUMMARIZED" in parent.body
    assert fork.body == parent.body == again.body
    assert b"KIMI_PROXY_HISTORY_SUMMARIZED" not in undone.body


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_sub_agent_that_is_given_the_first_words_of_its_parent_is_another(tmp_path: Path, restarts: bool):
    async with world(tmp_path) as here:
        async with here.proxy() as runtime:
            for turns in range(4):
                parent = await ask(here, runtime, run(turns))
            for turns in range(3):
                sub = await ask(here, runtime, run(turns, first=5), agent="a-1")
            again = await ask(here, runtime, [*run(3), Assistant("So."), User("Go on.")])
        if restarts:
            async with here.proxy() as runtime:
                later = await ask(here, runtime, run(2, first=5), agent="a-1")
            assert later.body == sub.body

    assert ids(parent).isdisjoint(ids(sub)) and all(map(is_cut, results(sub).values()))
    assert messages(again)[: len(messages(parent))] == messages(parent)


@pytest.mark.parametrize("keeps_end", [False, True])
async def test_a_compaction_begins_anew_and_keeps_what_it_repeats(tmp_path: Path, keeps_end: bool):
    """Claude Code keeps its last answer after the summary, some clients their last results."""
    summary = User("This session is being continued from a previous conversation that ran out of context: 1. …")
    end = run(4)[5:] if keeps_end else []
    compacted: list[Item] = [summary, Assistant("So."), *end, User("Go on.")]
    async with world(tmp_path) as here:
        async with here.proxy() as runtime:
            for turns in range(5):
                before = await ask(here, runtime, run(turns))
            after = await ask(here, runtime, compacted)
            later = await ask(here, runtime, [*compacted, *run(1, first=7)[1:]])
        async with here.proxy() as runtime:
            again = await ask(here, runtime, [*compacted, *run(1, first=7)[1:], Assistant("So."), User("On.")])

    assert "recover_text" in after.tool_names and after.tool_names == later.tool_names == again.tool_names
    assert is_cut(results(later)["toolu_7"])
    assert results(after).items() <= results(before).items()
    assert messages(again)[: len(messages(later))] == messages(later)


async def test_what_an_older_version_decided_is_repeated(tmp_path: Path):
    """It named a conversation by its first message with the reminders, and decisions without the session."""
    async with world(tmp_path) as here:
        async with here.proxy() as runtime:
            for turns in range(3):
                before = await ask(here, runtime, run(turns))
        make_old(tmp_path, before, "Monday")
        async with here.proxy() as runtime:
            after = await ask(here, runtime, run(3))
        async with here.proxy() as runtime:
            later = await ask(here, runtime, run(4), "Tuesday")

    assert after.tool_names == before.tool_names == later.tool_names
    assert messages(after)[: len(messages(before))] == messages(before)
    assert messages(later)[: len(messages(after))] == messages(after)
    assert is_cut(results(after)["toolu_2"]) and is_cut(results(later)["toolu_3"])


def make_old(home: Path, sent: Request, reminder: str) -> None:
    """Give rows of the store the keys that they had, and take away those that were not there."""
    first = f'"<system-reminder>\\nToday is {reminder}.\\n</system-reminder>\\n""Find the test that fails."'
    words = sha256(first.encode()).digest()
    session = LOCAL_IDS.session_named("one").id
    place = sha256(session.encode() + b"\0" + words).digest()
    tool = sha256(b"\0".join((b"tool", place.hex().encode()))).digest()
    with closing(sqlite3.connect(store_path(home))) as connection:
        assert connection.execute("DELETE FROM fact WHERE kind = 'conversation'").rowcount
        assert connection.execute("UPDATE fact SET key = ? WHERE kind = 'tool'", (tool,)).rowcount == 1
        rows = connection.execute("SELECT seq FROM decision ORDER BY seq").fetchall()
        assert len(rows) == len(results(sent))
        for (seq,), number in zip(rows, range(2), strict=True):
            key = words + bytes(4) + sha256(log(number).encode()).digest() + f"toolu_{number}".encode()
            connection.execute("UPDATE decision SET place = ? WHERE seq = ?", (sha256(key).digest(), seq))
        connection.commit()


async def test_a_client_that_numbers_its_calls_takes_over_nothing_of_another_conversation(tmp_path: Path):
    """Each conversation has a call 1, and some of their results are the same."""
    async with world(tmp_path) as here, here.proxy() as runtime:
        for turns in range(4):
            one = await ask(here, runtime, run(turns, ids="call_{}"))
        other = [*run(2, ids="call_{}")[:3], *run(3, first=3, ids="call_{}")[1:]]
        for at, text in enumerate(("", log(11), log(12), log(13))):
            if at:
                other[2 * at] = Result(f"call_{at - 1}", text)
        other[2] = Result("call_0", log(0))
        two = await ask(here, runtime, other, session="two")

    assert ids(one) and ids(one).isdisjoint(ids(two))


def ids(request: Request) -> set[str]:
    return set(PRUNED.findall(request.body.decode()))
