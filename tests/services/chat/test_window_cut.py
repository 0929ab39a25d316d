"""Inside one long turn old results are cut once where the client would compact its window otherwise."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.cached_providers import CachedProvider, anthropic
from tests.support.evil import Evil, evil
from tests.support.fakes import Clock

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.core.json import JsonObject
from kimi_proxy.services.chat.handler import ChatRequest

MODEL, WINDOW = "claude-opus-5", 40_000
PRICES = {"plain": 5.0, "read": 0.5, "write": 6.25, "hour": 10.0, "output": 25.0}
NAMES = {"plain": "input", "read": "cached", "write": "cache_write", "hour": "long_write", "output": "output"}
# Some 850 tokens each: too short to be cut when they enter.
RESULT = "\n".join(f"worker {{}} took job {at} from the queue and put it back" for at in range(60))


def steps(count: int) -> list[JsonObject]:
    """Return one turn in which so many tools were called."""
    made: list[JsonObject] = [{"role": "user", "content": "Find out which worker stops, and why."}]
    for at in range(count):
        call = {"type": "tool_use", "id": f"c{at}", "name": "Bash", "input": {"command": f"./queue {at}"}}
        result = {"type": "tool_result", "tool_use_id": f"c{at}", "content": RESULT.format(*[at] * 60)}
        made += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return made


def body(messages: list[JsonObject]) -> bytes:
    *others, last = messages
    content = last["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    marked = {**last, "content": [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]}
    tools = [{"name": "Bash", "input_schema": {"type": "object"}}]
    return json.dumps({"model": MODEL, "max_tokens": 100, "tools": tools, "messages": [*others, marked]}).encode()


@dataclass
class World:
    runtime: Runtime
    provider: CachedProvider
    upstream: Evil
    clock: Clock

    async def ask(self, messages: list[JsonObject]) -> None:
        self.clock.advance(20.0)
        async with self.runtime.chat.answer(ChatRequest(LOCAL, Wire.MESSAGES, body(messages), ())) as answer:
            assert answer.status == 200

    @property
    def broken(self) -> list[int]:
        """Return the requests whose beginning was not sent as the one before ended."""
        prompts = self.provider.prompts
        return [at for at in range(1, len(prompts)) if prompts[at][: len(prompts[at - 1])] != prompts[at - 1]]


@asynccontextmanager
async def a_world(home: Path, clock: Clock, policy: str = "default") -> AsyncIterator[World]:
    provider = CachedProvider(clock, anthropic, PRICES)
    async with evil(provider.answer) as upstream:
        priced = "".join(f"{NAMES[name]}_usd_per_million = {usd}\n" for name, usd in PRICES.items())
        model = f'[models."{MODEL}"]\nprovider = "anthropic-evil"\nmax_context_size = {WINDOW}\n{priced}'
        toml = f'{upstream.toml("anthropic")}{model}[sanitizer]\nbudget_ms = 60000\npolicy = "{policy}"\n'
        async with running(parse(toml, {}, home), thread_max_chars=10**9, now=clock) as runtime:
            yield World(runtime, provider, upstream, clock)


async def test_before_a_window_is_compacted_in_mid_turn_old_results_are_cut_once_and_counted_apart(tmp_path: Path):
    clock = Clock(time.time())
    async with a_world(tmp_path, clock) as world:
        for count in range(1, 48):
            await world.ask(steps(count))
        first = [*world.broken]
        told = await world.runtime.sanitizer.stats(LOCAL)
        metrics = [one async for page in world.runtime.sessions.metrics(LOCAL, None) for one in page]
    sizes = [sum(len(text) for text in prompt) for prompt in world.provider.prompts]
    async with a_world(tmp_path, clock) as again:
        for count in (48, 49):
            await again.ask(steps(count))

    assert len(first) == 1
    assert sizes[first[0]] < 0.5 * sizes[first[0] - 1]
    assert told["since_start"]["window_cuts"] == 1
    lost = [one.account.cache_lost_tokens for one in metrics if one.account]
    assert lost[first[0]] > 1_000
    assert sum(1 for tokens in lost if tokens) == 1
    # A restart allows no second one, and the next request repeats the bytes.
    assert again.broken == []


async def test_careful_never_cuts_what_is_cached(tmp_path: Path):
    async with a_world(tmp_path, Clock(time.time()), policy="careful") as world:
        for count in range(1, 34):
            await world.ask(steps(count))

    assert world.broken == []
