"""Nothing of a session that was deleted is left in memory, whether its requests were changed or only observed."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support import outputs
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.conversations import Assistant, Call, Item, Result, User, body
from tests.support.evil import Evil, Heard, Line, evil, http
from tests.support.fakes import Clock
from tests.support.model import Call as Called
from tests.support.model import Says
from tests.support.model import body as answer_body
from tests.support.objects import texts_with

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat import parse as parsed
from kimi_proxy.core.config import parse
from kimi_proxy.features.chat.compression import presets
from kimi_proxy.services.chat.requests import ChatRequest

CANARY = ("Canary", "That", "Was", "deleted")  # one word, so that caches of words are seen, too
RECALL = "own_1"
SETTINGS = "[record]\nenabled = true\n[sanitizer]\nbudget_ms = 60_000\nmode = "


def canary() -> str:
    return "".join(CANARY)


async def answers(heard: Heard, line: Line) -> None:
    """Say the canary; once, read back what was cut and call a tool of the client in the same answer."""
    request = parsed(heard.body, Wire.CHAT)
    marker = json.loads(heard.body)["messages"][-1]["content"].partition("prune_id=")[2][:20]
    says = Says(f"So, {canary()}.", tokens=(1000, 5))
    if marker and "recover_text" in request.tool_names and len(request.messages) < 8:
        calls = (Called(RECALL, "recover_text", {"id": marker}), Called("c2", "bash", {"command": canary()}))
        says = Says(canary(), calls)
    await line.send(http(answer_body(Wire.CHAT, says)))
    line.finish()  # else the connection's coroutine holds the request


def conversation(turns: int, is_answered: bool) -> list[Item]:
    items: list[Item] = [User(f"Find {canary()} in the log. @remember({canary()})")]
    for number in range(turns):
        rows = outputs.pytest_log(150, number).text.split("\n")
        rows[0] = rows[len(rows) // 2] = canary()
        items += [Assistant(canary(), (Call(f"c{number}", "bash", {"command": canary()}),))]
        items += [Result(f"c{number}", "\n".join(rows))]
        if number < turns - 1 or is_answered:
            items += [Assistant(f"So, {canary()}."), User(f"Next, {canary()}: " + "go on. " * 400)]
    return items


@asynccontextmanager
async def world(home: Path, mode: str) -> AsyncIterator[tuple[Runtime, Evil, Clock]]:
    clock = Clock(1_800_000_000.0)
    async with evil(answers) as provider:
        toml = f'{provider.toml()}{SETTINGS}"{mode}"\n[compression]\nask_provider = false\n'
        async with running(parse(toml, {}, home), thread_max_chars=10**9, now=clock) as runtime:
            yield runtime, provider, clock


async def send(runtime: Runtime, clock: Clock, turns: int, is_answered: bool) -> None:
    clock.advance(20)
    raw = body(Wire.CHAT, conversation(turns, is_answered))
    asked = ChatRequest(LOCAL, Wire.CHAT, raw, ((b"x-session-id", b"one"),))
    async with runtime.chat.answer(asked) as answer:
        async for _ in answer.pieces():
            pass
        assert answer.status == 200


MODES = pytest.mark.parametrize("mode", ["on", "observe"])


@MODES
async def test_after_a_deletion_no_word_of_a_person_s_sessions_is_in_memory(tmp_path: Path, mode: str):
    async with world(tmp_path, mode) as (runtime, provider, clock):
        for turns in range(6):
            await send(runtime, clock, turns, is_answered=False)
            await send(runtime, clock, turns, is_answered=True)
            if turns == 4 and mode == "on":
                usual, _ = presets(runtime.config.compression, runtime.config.compaction)
                await runtime.compressions.compress(LOCAL, "one", usual)
        with runtime.hub.join(LOCAL):  # a viewer that does not read its events
            await runtime.sessions.rename(LOCAL, "one", f"All about {canary()}")
            was_changed = any(b"prn_" in heard.body for heard in provider.heard)
            provider.heard.clear()
            before = await asyncio.to_thread(texts_with, CANARY)

            await runtime.sessions.delete_all(LOCAL)
            after = await asyncio.to_thread(texts_with, CANARY)

    assert was_changed is (mode == "on")
    assert len(before) > 20
    assert after == []


@MODES
async def test_nor_is_one_of_a_session_that_was_deleted_on_the_dashboard(tmp_path: Path, mode: str):
    """The server, its connections and its workers hold nothing either."""
    async with evil(answers) as provider, proxy(tmp_path, f'{provider.toml()}{SETTINGS}"{mode}"\n') as p:
        for turns in range(4):
            for is_answered in (False, True):
                await post(p, body(Wire.CHAT, conversation(turns, is_answered)))
        (session,) = (each["id"] for each in (await p.http.get("/api/sessions")).json()["sessions"])
        await look_at_everything(p, session)
        provider.heard.clear()
        before = await asyncio.to_thread(texts_with, CANARY)

        assert (await p.http.delete(f"/api/sessions/{session}")).status_code == 200
        after = await asyncio.to_thread(texts_with, CANARY)

    assert len(before) > 20
    assert after == []


async def look_at_everything(p: Proxy, session: str) -> None:
    """Ask as the dashboard and the hooks of a client do."""
    cuts = [each["id"] for each in (await p.http.get("/api/cuts")).json()["cuts"]]
    for path in (f"/api/sessions/{session}/context", "/api/export/json", *(f"/api/cuts/{id}" for id in cuts)):
        assert (await p.http.get(path)).status_code == 200
    prompt = {"hook_event_name": "UserPromptSubmit", "session_id": "one", "prompt": canary()}
    assert (await p.http.post("/api/hooks/claude", json=prompt)).status_code == 200


async def post(p: Proxy, raw: bytes) -> None:
    headers = {"content-type": "application/json", "x-session-id": "one"}
    answer = await p.http.post("/v1/chat/completions", content=raw, headers=headers)
    assert answer.status_code == 200
