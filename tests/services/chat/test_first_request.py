"""The first request of a conversation leaves without a look at the disk; what has to outlive a crash is on it soon."""

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.support.conversations import Item, User, body
from tests.support.evil import Heard, Line, evil, http
from tests.support.fakes import MemoryFacts
from tests.support.model import Says
from tests.support.model import body as answer_body

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.notes import Notes
from kimi_proxy.services.chat.requests import ChatRequest
from kimi_proxy.services.chat.session_lookup import MAX_STORED_KEYS, SessionsByAnswer, StoredKeys
from kimi_proxy.services.store.sqlite.store import store_path

in_process = partial(running, thread_max_chars=10**9)


async def answers(heard: Heard, line: Line) -> None:
    await line.send(http(answer_body(Wire.CHAT, Says("So."))))


async def ask(runtime: Runtime, *items: Item, session: str = "") -> None:
    more = {"metadata": {"session_id": session}} if session else {}
    incoming = ChatRequest(LOCAL, Wire.CHAT, body(Wire.CHAT, items, tools=("bash",), **more))
    async with runtime.chat.answer(incoming) as answer:
        _ = [piece async for piece in answer.rest] if answer.rest else []


async def test_a_first_request_is_answered_while_another_program_locks_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with evil(answers) as provider, in_process(parse(provider.toml(), {}, tmp_path)) as runtime:
        await ask(runtime, User("the first of this process reads what there was before"))
        await ask(runtime, User("go on"), session="a named one")
        await runtime.sessions.caught_up()
        caplog.clear()
        with closing(sqlite3.connect(store_path(tmp_path), isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            await ask(runtime, User("do it"))
            await ask(runtime, User("do it"), session="another named one")
        faults = [sample for metric in runtime.metrics.chat_faults.collect() for sample in metric.samples]

    waited = [record.message for record in caplog.records if record.name != "kimi_proxy.services.chat.models"]
    assert (len(provider.heard), waited, faults) == (4, [], [])


async def test_a_key_is_looked_for_on_disk_only_if_it_may_be_there():
    stored = MemoryFacts()
    earlier = SessionsByAnswer(stored)
    earlier.put(LOCAL, b"from an earlier process", Session("s-1"))
    await earlier.close()
    sessions = SessionsByAnswer(stored)

    assert await sessions.get(LOCAL, b"from an earlier process") == Session("s-1")
    assert await sessions.get(LOCAL, b"never seen") is None


def test_where_too_many_keys_are_on_disk_any_key_may_be():
    keys = StoredKeys({number.to_bytes(8, "big") for number in range(MAX_STORED_KEYS - 1)})
    assert b"never seen" not in keys
    keys.add(b"one more")
    assert b"never seen" in keys


async def test_conversations_that_begin_at_once_share_the_commit_for_our_tool():
    stored = MemoryFacts()
    facts = ChatFacts(Notes(stored))
    for number in range(5):
        facts.save_has_tool(LOCAL, bytes([number]) * 32)
        assert await facts.has_tool(LOCAL, bytes([number]) * 32)
    assert not stored.facts  # the requests leave meanwhile

    await facts.close()
    assert len(stored.facts) == 5
