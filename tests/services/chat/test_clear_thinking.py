"""Old thinking goes when the prompt cache is cold, by the provider's own edit, and stays gone while it is warm."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.cached_providers import CachedProvider, anthropic, counted
from tests.support.evil import Evil, Heard, Line, evil, http
from tests.support.fakes import Clock

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Request, Wire, edit
from kimi_proxy.core.config import parse
from kimi_proxy.core.json import JsonObject
from kimi_proxy.services.chat.requests import ChatRequest

MODEL = "claude-opus-5"
PRICES = {"plain": 5.0, "read": 0.5, "write": 6.25, "hour": 10.0, "output": 25.0}
NAMES = {"plain": "input", "read": "cached", "write": "cache_write", "hour": "long_write", "output": "output"}
BETA = (b"anthropic-beta", b"context-management-2025-06-27,interleaved-thinking-2025-05-14")
THINKING: JsonObject = {"type": "adaptive"}
EDIT = "clear_thinking_20251015"


def turn(number: int) -> list[JsonObject]:
    """Return what the user says, and an answer with thinking before a call and after its result."""
    thoughts = [
        {"type": "thinking", "thinking": f"{number} " + "hm " * 400, "signature": f"s{number}{at}"} for at in "ab"
    ]
    call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": f"{number}.py"}}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "short"}
    return [
        {"role": "user", "content": [{"type": "text", "text": f"Question {number}"}]},
        {"role": "assistant", "content": [thoughts[0], call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [thoughts[1], {"type": "text", "text": f"Answer {number}"}]},
    ]


def body(turns: int, **more: object) -> bytes:
    """Return the request after so many turns."""
    last: JsonObject = {"type": "text", "text": f"Question {turns}", "cache_control": {"type": "ephemeral"}}
    messages = [*(message for number in range(turns) for message in turn(number)), {"role": "user", "content": [last]}]
    asked = {
        "model": MODEL,
        "max_tokens": 8000,
        "system": "Be brief. " * 800,
        "thinking": THINKING,
        "messages": messages,
    }
    return json.dumps({**asked, **more}).encode()


def without_old_thinking(asked: JsonObject) -> tuple[JsonObject, int]:
    """Do what Anthropic's page says: of turns with thinking only the newest keep it. Return what that removed."""
    edits = asked.get("context_management", {}).get("edits", [])
    keep = next((one["keep"] for one in edits if one["type"] == EDIT), "all")
    if keep == "all":
        return asked, 0
    turns: list[list[JsonObject]] = []
    for message in asked["messages"]:
        if message["role"] == "user" and all(block["type"] != "tool_result" for block in message["content"]):
            turns.append([])
        turns[-1].append(message)
    thinking = [one for one in turns if any(block["type"] == "thinking" for each in one for block in each["content"])]
    removed = 0
    for message in (message for one in thinking[: len(thinking) - keep["value"]] for message in one):
        gone = [block for block in message["content"] if block["type"] == "thinking"]
        removed += sum(counted(f"assistant: {block['thinking']}") for block in gone)
        message["content"] = [block for block in message["content"] if block["type"] != "thinking"]
    return asked, removed


@dataclass
class World:
    runtime: Runtime
    provider: CachedProvider
    upstream: Evil
    clock: Clock

    async def ask(self, raw: bytes, pause_s: float = 20.0, headers: tuple[tuple[bytes, bytes], ...] = (BETA,)) -> None:
        self.clock.advance(pause_s)
        async with self.runtime.chat.answer(ChatRequest(LOCAL, Wire.MESSAGES, raw, headers)) as answer:
            assert answer.status == 200

    @property
    def kept(self) -> list[object]:
        """Return how many turns each request keeps, None where it has no edit."""
        edits = [json.loads(heard.body).get("context_management", {}).get("edits", []) for heard in self.upstream.heard]
        return [next((one["keep"]["value"] for one in found if one["type"] == EDIT), None) for found in edits]


@asynccontextmanager
async def a_world(
    home: Path, is_on: bool = True, clock: Clock | None = None, settings: str = ""
) -> AsyncIterator[World]:
    clock = clock or Clock(time.time())
    provider = CachedProvider(clock, anthropic, PRICES)

    async def script(heard: Heard, line: Line) -> None:
        asked, removed = without_old_thinking(json.loads(heard.body))
        applied = {"applied_edits": [{"type": EDIT, "cleared_input_tokens": removed}] if removed else []}
        said = {**provider.charge(asked, is_messages=True), "context_management": applied}
        await line.send(http(json.dumps(said).encode()))

    async with evil(script) as upstream:
        priced = "".join(f"{NAMES[name]}_usd_per_million = {usd}\n" for name, usd in PRICES.items())
        model = f'[models."{MODEL}"]\nprovider = "anthropic-evil"\nmax_context_size = 1_000_000\n{priced}'
        toml = f"{upstream.toml('anthropic')}{model}[cache]\nclear_thinking = {str(is_on).lower()}\n{settings}"
        async with running(parse(toml, {}, home), thread_max_chars=10**9, now=clock) as runtime:
            yield World(runtime, provider, upstream, clock)


async def test_thinking_goes_at_a_cold_moment_and_no_other_goes_while_the_cache_is_warm(tmp_path: Path):
    async with a_world(tmp_path) as world:
        for turns, pause_s in ((1, 20), (2, 20), (3, 20), (4, 900), (5, 20), (6, 20), (7, 900), (8, 20)):
            await world.ask(body(turns), pause_s)
        metrics = [one async for page in world.runtime.sessions.metrics(LOCAL, None) for one in page]

    # At the fourth request three turns are cleared; then one more turn is kept with each.
    assert world.kept == [None, None, None, 1, 2, 3, 1, 2]
    prompts = world.provider.prompts
    changed = [at for at in range(1, 8) if prompts[at][: len(prompts[at - 1])] != prompts[at - 1]]
    assert changed == [3, 6]
    # What it saves is in the account: written once less, and read less often.
    saved = [one.account.net_saved_usd or 0 for one in metrics if one.account]
    assert saved[3] > 0.01
    assert all(usd > 0.0005 for usd in saved[4:6])


async def test_what_is_cleared_stays_so_after_a_restart(tmp_path: Path):
    clock = Clock(time.time())
    async with a_world(tmp_path, clock=clock) as world:
        await world.ask(body(3))
        await world.ask(body(4), 900)
    async with a_world(tmp_path, clock=clock) as again:
        await again.ask(body(5))
        assert again.kept == [2]


async def test_none_goes_from_a_conversation_that_is_only_observed(tmp_path: Path):
    """Neither at a cold moment nor later: what would have been cleared is not written down as cleared."""
    async with a_world(tmp_path, settings='[sanitizer]\nmode = "observe"\n') as world:
        bodies = [body(turns) for turns in range(1, 6)]
        for raw, pause_s in zip(bodies, (20, 20, 900, 20, 900), strict=True):
            await world.ask(raw, pause_s)

    assert [heard.body for heard in world.upstream.heard] == bodies


async def test_off_by_default_and_only_for_clients_that_know_the_edit(tmp_path: Path):
    async with a_world(tmp_path / "off", is_on=False) as world:
        await world.ask(body(4))
        assert world.kept == [None]
    async with a_world(tmp_path / "on") as world:
        await world.ask(body(4), headers=())
        await world.ask(body(4, thinking={"type": "disabled"}), 900)
        assert world.kept == [None, None]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, [EDIT]),
        ({"edits": [{"type": EDIT, "keep": "all"}]}, [EDIT]),
        ({"edits": [{"type": "clear_tool_uses_20250919"}]}, [EDIT, "clear_tool_uses_20250919"]),
        ({"edits": [{"type": EDIT, "keep": {"type": "thinking_turns", "value": 2}}]}, None),
        ({"edits": []}, None),
    ],
)
def test_a_client_s_own_edits_stay_and_its_choice_is_respected(own: JsonObject | None, expected: list[str] | None):
    more = {"context_management": own} if own else {}
    came = Request(Wire.MESSAGES, body(3, **more))
    left = edit.with_thinking_cleared(came, 1)

    if expected is None:
        assert left is came
        return
    edits = json.loads(left.body)["context_management"]["edits"]
    assert [one["type"] for one in edits] == expected
    assert edits[0]["keep"] == {"type": "thinking_turns", "value": 1}
    assert json.loads(left.body)["messages"] == json.loads(came.body)["messages"]
