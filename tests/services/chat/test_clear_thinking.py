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
from kimi_proxy.features.chat.prompt_cache import keeps_last_turn
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
    home: Path,
    setting: bool | str = True,
    clock: Clock | None = None,
    model: str = MODEL,
    settings: str = "",
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
        models = f'[models."{model}"]\nprovider = "anthropic-evil"\nmax_context_size = 1_000_000\n{priced}'
        toml = f"{upstream.toml('anthropic')}{models}[cache]\nclear_thinking = {json.dumps(setting)}\n{settings}"
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


async def test_thinking_goes_too_when_the_client_changed_its_prompt_before_all_of_it(tmp_path: Path):
    changed = {"system": "Be long. " * 800}
    async with a_world(tmp_path) as world:
        for turns in (1, 2, 3):
            await world.ask(body(turns))
        await world.ask(body(4, **changed))
        await world.ask(body(5, **changed))

    assert world.kept == [None, None, None, 1, 2]
    first, second, third = world.provider.prompts[2:]
    assert second[: len(first)] != first  # by the client
    assert third[: len(second)] == second


async def test_thinking_stays_where_some_of_it_is_still_cached(tmp_path: Path):
    raw = json.loads(body(4))
    raw["messages"][8]["content"][0]["text"] = "Question 2, in other words"
    async with a_world(tmp_path) as world:
        for turns in (1, 2, 3):
            await world.ask(body(turns))
        await world.ask(json.dumps(raw).encode())

    assert world.kept == [None] * 4


async def test_only_clients_that_know_the_edit_and_think_are_helped(tmp_path: Path):
    async with a_world(tmp_path / "off", setting=False) as world:
        await world.ask(body(4))
        assert world.kept == [None]
    async with a_world(tmp_path / "on") as world:
        await world.ask(body(4), headers=())
        await world.ask(body(4, thinking={"type": "disabled"}), 900)
        assert world.kept == [None, None]


PLAN = (b"anthropic-beta", b"oauth-2025-04-20,context-management-2025-06-27")


@pytest.mark.parametrize(
    ("model", "headers", "kept"),
    [
        ("claude-sonnet-4-5-20250929", BETA, 1),
        ("claude-sonnet-4-5-20250929", PLAN, None),
        ("claude-opus-5", BETA, None),
    ],
)
async def test_by_default_it_goes_for_api_keys_where_the_provider_itself_keeps_one_turn(
    tmp_path: Path, model: str, headers: tuple[bytes, bytes], kept: int | None
):
    async with a_world(tmp_path, setting="auto", model=model) as world:
        await world.ask(body(4, model=model), headers=(headers,))

    assert world.kept == [kept]


def test_of_which_models_the_provider_keeps_one_turn_is_known():
    last = ("claude-3-7-sonnet-20250219", "claude-opus-4-1", "claude-sonnet-4-20250514", "claude-haiku-4-5-20251001")
    every = ("claude-opus-4-5-20251101", "claude-sonnet-4-6", "claude-opus-5", "claude-haiku-5-5", "claude-fable-5-1")

    assert all(map(keeps_last_turn, last))
    assert not any(map(keeps_last_turn, every))


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
