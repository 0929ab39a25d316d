"""Keeping prompt caches warm, against a provider that caches by its own rules and keeps its own bill."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.support.cached_providers import Block, CachedProvider, Counts, anthropic
from tests.support.evil import Evil, Heard, Line, evil, http
from tests.support.fakes import Clock

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.chat.prompt_cache import KEPT_WARM, worthwhile_pings
from kimi_proxy.features.metering import Metric
from kimi_proxy.features.models.known import cache_rules
from kimi_proxy.services.chat.handler import ChatRequest
from kimi_proxy.services.runtime import Runtime, running

MODEL = "claude-opus-5"
PRICES = {"plain": 5.0, "read": 0.5, "write": 6.25, "hour": 10.0, "output": 25.0}
NAMES = {"plain": "input", "read": "cached", "write": "cache_write", "hour": "long_write", "output": "output"}
LONG = "You are a careful engineer who reads before writing. " * 3000  # about 27,000 tokens
KEY = (b"x-api-key", b"sk-ant-api03-x")


def body(*said: str, instructions: str = LONG, ttl: str = "", **more: object) -> bytes:
    """Return a request of Claude Code's kind: a mark at its end, and what it has said before."""
    mark: JsonObject = {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}
    messages: list[JsonObject] = []
    for at, text in enumerate(said):
        block: JsonObject = {"type": "text", "text": text}
        if at == len(said) - 1:
            block["cache_control"] = mark
        messages.append({"role": "assistant" if at % 2 else "user", "content": [block]})
    asked = {"model": MODEL, "max_tokens": 8000, "system": instructions, "messages": messages}
    return json.dumps({**asked, **more}).encode()


@dataclass
class World:
    runtime: Runtime
    provider: CachedProvider
    upstream: Evil
    clock: Clock
    pinged: asyncio.Event
    is_connected: bool = True
    wire: Wire = Wire.MESSAGES
    headers: tuple[tuple[bytes, bytes], ...] = (KEY,)

    @property
    def asked(self) -> list[JsonObject]:
        return [json.loads(heard.body) for heard in self.upstream.heard]

    @property
    def pings(self) -> list[JsonObject]:
        return [asked for asked in self.asked if asked["max_tokens"] == 1]

    async def ask(self, raw: bytes, session: str = "") -> None:
        named = ((b"x-session-id", session.encode()),) if session else ()
        request = ChatRequest(LOCAL, self.wire, raw, (*self.headers, *named), "", lambda: self.is_connected)
        async with self.runtime.chat.answer(request) as answer:
            assert answer.status == 200

    async def pause(self, seconds: float, step_s: float = 30.0) -> None:
        """Let time pass, with everything that falls due in it."""
        assert self.runtime.keep_warm is not None
        until = self.clock() + seconds
        while self.clock() < until:
            self.clock.advance(min(step_s, until - self.clock()))
            await self.runtime.keep_warm.ping_due()

    async def metrics(self) -> list[Metric]:
        found = [one async for page in self.runtime.sessions.metrics(LOCAL, None) for one in page]
        return sorted(found, key=lambda one: one.at)


@asynccontextmanager
async def a_world(
    tmp_path: Path,
    settings: str = "",
    cache: Callable[[CachedProvider, Sequence[Block]], Counts] = anthropic,
    clock: Clock | None = None,
    answer: Callable[[CachedProvider, Heard], bytes] | None = None,
    name: str = "anthropic-evil",
) -> AsyncIterator[World]:
    clock = clock or Clock(time.time())
    provider, pinged = CachedProvider(clock, cache, PRICES), asyncio.Event()

    async def script(heard: Heard, line: Line) -> None:
        if json.loads(heard.body)["max_tokens"] == 1:
            pinged.set()
        if answer is not None and (said := answer(provider, heard)):
            await line.send(said)
        else:
            await provider.answer(heard, line)

    async with evil(script) as upstream:
        priced = "".join(f"{NAMES[name]}_usd_per_million = {usd}\n" for name, usd in PRICES.items())
        model = f'[models."{MODEL}"]\nprovider = "{name}"\nmax_context_size = 1_000_000\n{priced}'
        toml = (
            f"{upstream.toml('anthropic').replace('anthropic-evil', name)}{model}[cache]\nkeep_warm = true\n{settings}"
        )
        async with running(parse(toml, {}, tmp_path), thread_max_chars=10**9, now=clock) as runtime:
            yield World(runtime, provider, upstream, clock, pinged)


async def test_a_pause_of_ten_minutes_stays_warm_and_the_user_reads_from_the_cache(tmp_path: Path):
    async with a_world(tmp_path) as world:
        await world.ask(body("Fix the importer."))
        await world.pause(600)
        await world.ask(body("Fix the importer.", "Done.", "Now the exporter."))
        first, *pings, last = world.asked

        assert [ping["max_tokens"] for ping in pings] == [1, 1]
        assert all({**ping, "max_tokens": 8000} == first for ping in pings)
        assert world.provider.entries
        metrics = await world.metrics()
    assert [one.outcome for one in metrics] == ["ok", KEPT_WARM, KEPT_WARM, "ok"]
    assert (metrics[-1].cached_tokens or 0) > 20_000
    assert last["messages"][0]["content"][0]["text"] == "Fix the importer."


async def test_at_most_two_pings_then_the_cache_expires_and_nothing_is_held(tmp_path: Path):
    async with a_world(tmp_path) as world:
        await world.ask(body("Fix the importer."))
        assert world.runtime.keep_warm is not None
        assert world.runtime.keep_warm.held_count == 1
        await world.pause(3600)
        assert len(world.pings) == 2
        assert world.runtime.keep_warm.held_count == 0
        await world.ask(body("Fix the importer.", "Done.", "Now the exporter."))
        metrics = await world.metrics()
    assert metrics[-1].cached_tokens == 0
    assert metrics[-1].miss is not None
    assert metrics[-1].miss.cause == "expired"


async def test_without_the_switch_nothing_is_sent_and_nothing_is_held(tmp_path: Path):
    async with a_world(tmp_path) as world:
        settings = world.runtime.config.cache.model_copy(update={"keep_warm": False})
        config = world.runtime.config.model_copy(update={"cache": settings})
        async with running(config, now=world.clock) as runtime:
            assert runtime.keep_warm is None


async def test_the_bill_is_what_the_account_says(tmp_path: Path):
    """Beside a client without us, whose caches expire in the pauses."""
    alone = CachedProvider(clock := Clock(time.time()), anthropic, PRICES)
    said = ["Fix the importer."]
    async with a_world(tmp_path, clock=clock) as world:
        for pause_s in (0, 500, 20, 700, 4000, 30):
            await world.pause(pause_s)
            alone.charge(json.loads(body(*said)), is_messages=True)
            await world.ask(body(*said))
            said += ["Done.", f"And then {len(said)}."]
        metrics = await world.metrics()
    accounts = [one.account for one in metrics if one.account]

    assert len([one for one in metrics if one.outcome == KEPT_WARM]) == len(world.pings) >= 4
    assert sum(one.cost_usd or 0 for one in metrics) == pytest.approx(world.provider.bill, rel=0.0001)
    assert sum(one.cost_before_usd or 0 for one in accounts) == pytest.approx(alone.bill, rel=0.01)
    saved = sum(one.net_saved_usd or 0 for one in accounts)
    assert saved == pytest.approx(alone.bill - world.provider.bill, rel=0.02)


async def test_pings_are_in_no_count_of_requests_or_tokens_but_in_the_money(tmp_path: Path):
    async with a_world(tmp_path) as world:
        await world.ask(body("Fix the importer."), session="one")
        before = await world.runtime.sessions.session(LOCAL, "one")
        await world.pause(600)
        after = await world.runtime.sessions.session(LOCAL, "one")
        (line,) = await world.runtime.store.sessions.accounts(LOCAL, 0.0)
        shown = await world.runtime.sessions.history(LOCAL, "one", 10)
        chats = world.runtime.metrics.text().decode()
    assert len(world.pings) == 2
    assert (after.requests, after.input_tokens, after.last_used) == (1, before.input_tokens, before.last_used)
    assert (line.requests, line.tokens_before) == (1, line.tokens_after)
    assert [one.outcome for one in shown] == ["ok"]
    assert after.cost_usd == pytest.approx(world.provider.bill, rel=0.0001)
    assert (line.net_saved_usd or 0) < 0
    assert 'kimi_proxy_keep_warm_pings_total{outcome="hit",provider="anthropic-evil"} 2.0' in chats
    assert 'kimi_proxy_chat_requests_total{outcome="ok",provider="anthropic-evil",status="200"} 1.0' in chats


async def test_a_short_conversation_is_not_kept(tmp_path: Path):
    async with a_world(tmp_path) as world:
        await world.ask(body("Fix the importer.", instructions="Be brief. " * 1000))
        await world.pause(600)
        assert world.pings == []


async def test_a_client_that_is_gone_gets_no_ping(tmp_path: Path):
    async with a_world(tmp_path) as world:
        await world.ask(body("Fix the importer."))
        world.is_connected = False
        await world.pause(600)
        assert world.pings == []
        assert world.runtime.keep_warm is not None
        assert world.runtime.keep_warm.held_count == 0


async def test_a_hook_or_a_status_line_says_that_the_client_lives(tmp_path: Path):
    async with a_world(tmp_path) as world:
        world.is_connected = False
        await world.ask(body("Fix the importer."), session="one")
        await world.pause(120)
        await world.runtime.hooks.answer(LOCAL, {"hook_event_name": "Stop", "session_id": "one"})
        await world.pause(900)
        assert len(world.pings) == 1  # what was heard once counts for one life of the cache


async def test_the_status_line_counts_down_to_the_end_of_a_cache_that_is_kept(tmp_path: Path):
    async with a_world(tmp_path) as world:
        world.is_connected = False
        await world.ask(body("Fix the importer."), session="one")
        await world.runtime.sessions.caught_up()
        await world.runtime.sessions.status_line(LOCAL, "one")
        await world.pause(290)
        assert len(world.pings) == 1
        await world.runtime.sessions.caught_up()
        shown = await world.runtime.sessions.status_line(LOCAL, "one")
    # It was refreshed 30 s before its end, 20 s ago.
    assert shown["cache_left_s"] == 280


async def test_the_process_of_kimi_proxy_run_says_so_as_well(tmp_path: Path):
    gone = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await gone.wait()
    async with a_world(tmp_path) as world:
        world.is_connected = False
        for number, expected in ((os.getpid(), 2), (gone.pid, 2)):
            world.headers = (KEY, (b"x-kimi-proxy-run", str(number).encode()))
            await world.ask(body("Fix the importer."))
            await world.pause(900)
            assert len(world.pings) == expected
        assert all("x-kimi-proxy-run" not in dict(heard.headers) for heard in world.upstream.heard)


@pytest.mark.parametrize("allowed", [False, True])
async def test_a_plan_is_never_used_unless_it_is_allowed_by_name(tmp_path: Path, allowed: bool):
    settings = 'keep_warm_plans = ["anthropic-evil"]\n' if allowed else ""
    async with a_world(tmp_path, settings) as world:
        world.headers = ((b"authorization", b"Bearer sk-ant-oat01-x"),)
        await world.ask(body("Fix the importer."))
        await world.pause(600)
        assert len(world.pings) == (2 if allowed else 0)


async def test_an_answer_that_counts_a_plan_s_quota_ends_it_too(tmp_path: Path):
    def answer(provider: CachedProvider, heard: Heard) -> bytes:
        said = json.dumps(provider.charge(json.loads(heard.body), is_messages=True)).encode()
        head, rest = http(said).split(b"\r\n", 1)
        return head + b"\r\nanthropic-ratelimit-unified-5h-utilization: 0.5\r\n" + rest

    async with a_world(tmp_path, answer=answer) as world:
        await world.ask(body("Fix the importer."))
        await world.pause(600)
        assert world.pings == []


async def test_what_the_client_signed_is_not_sent_again(tmp_path: Path):
    async with a_world(tmp_path, name="anthropic") as world:
        signed = [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=abc12;"}]
        raw = body("Fix the importer.", system=[*signed, {"type": "text", "text": LONG}])
        request = ChatRequest(LOCAL, Wire.MESSAGES, raw, (KEY,), "", lambda: True)
        async with world.runtime.chat.answer(request):
            pass
        await world.pause(600)
        assert world.pings == []


async def test_the_ceiling_of_a_day_holds_also_after_a_restart(tmp_path: Path):
    clock, day = Clock(time.time() // 86_400 * 86_400 + 43_200), "keep_warm_usd_per_day = 0.25\n"
    sent = 0
    for _ in range(2):
        async with a_world(tmp_path, day, clock=clock) as world:
            for number in range(3):
                await world.ask(body(f"Fix part {number}.", instructions=f"{number}. {LONG}"))
                await world.pause(600)
            costs = [one.cost_usd or 0 for one in await world.metrics() if one.outcome == KEPT_WARM]
            sent += len(world.pings)
    assert sent == len(costs) > 0
    assert sum(costs) <= 0.25
    # What a miss would cost is set aside before each, so that not even that exceeds it.
    assert sum(costs) > 0


async def test_a_thinking_budget_forbids_an_answer_of_one_token(tmp_path: Path):
    async with a_world(tmp_path) as world:
        await world.ask(body("Fix it.", thinking={"type": "enabled", "budget_tokens": 4000}))
        await world.pause(600)
        assert world.pings == []
        await world.ask(body("Fix this.", thinking={"type": "adaptive"}))
        await world.pause(400)
        assert [ping["thinking"] for ping in world.pings] == [{"type": "adaptive"}]


async def test_a_provider_that_refuses_a_ping_is_not_asked_again(tmp_path: Path):
    def answer(provider: CachedProvider, heard: Heard) -> bytes:
        is_ping = json.loads(heard.body)["max_tokens"] == 1
        return b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}" if is_ping else b""

    async with a_world(tmp_path, answer=answer) as world:
        await world.ask(body("Fix the importer."))
        await world.pause(3600)
        assert len(world.pings) == 1
        metrics = await world.metrics()
    assert [(one.outcome, one.status, one.cost_usd) for one in metrics][1:] == [(KEPT_WARM, 400, 0.0)]


async def test_an_hour_s_cache_is_kept_only_where_reading_is_cheap_enough(tmp_path: Path):
    """After an hour few come back: a tenth of the price for each ping is too much, a fortieth is not."""
    async with a_world(tmp_path) as world:
        await world.ask(body("Fix the importer.", ttl="1h"))
        await world.pause(7200, step_s=300)
        assert world.pings == []


async def test_a_deleted_session_and_a_stop_forget_what_is_held(tmp_path: Path):
    async with a_world(tmp_path) as world:
        keep_warm = world.runtime.keep_warm
        assert keep_warm is not None
        await world.ask(body("Fix the importer."), session="one")
        await world.ask(body("Fix the exporter."), session="two")
        assert keep_warm.held_count == 2
        await world.runtime.sessions.delete(LOCAL, ["one"])
        assert keep_warm.held_count == 1
    assert keep_warm.held_count == 0


async def test_a_sub_agent_that_has_ended_is_not_kept_while_its_session_waits(tmp_path: Path):
    def answer(provider: CachedProvider, heard: Heard) -> bytes:
        asked = json.loads(heard.body)
        said = provider.charge(asked, is_messages=True)
        is_main = "main" in asked["messages"][0]["content"][0]["text"]
        return http(json.dumps({**said, "stop_reason": "tool_use" if is_main else "end_turn"}).encode())

    async with a_world(tmp_path, answer=answer) as world:
        await world.ask(body("The main thread."), session="one")
        await world.ask(body("A helper.", instructions=f"Help. {LONG}"), session="one")
        await world.pause(300)
        assert [ping["messages"][0]["content"][0]["text"] for ping in world.pings] == ["The main thread."]


async def test_a_ping_is_sent_by_itself_when_its_time_comes(tmp_path: Path):
    """Nobody calls it: the clock of the process does."""
    async with a_world(tmp_path) as world:
        await world.ask(body("Fix the importer."))
        world.clock.advance(280)
        await world.ask(body("Something else.", instructions="Short."))  # wakes it
        assert world.runtime.keep_warm is not None
        async with asyncio.timeout(30):
            await world.pinged.wait()


@dataclass
class Ratio:
    read: float
    write: float
    life_s: float = 300.0
    expected: int = 0
    limit: int = 20


@pytest.mark.parametrize(
    "ratio",
    [
        Ratio(0.1, 1.25, expected=2),
        Ratio(0.05, 1.25, expected=3),
        Ratio(0.025, 1.25, expected=5),
        Ratio(0.1, 1.0, expected=1),
        Ratio(0.5, 1.0, expected=0),
        Ratio(0.1, 2.0, 3600, expected=0),
        Ratio(0.05, 2.0, 3600, expected=2),
        Ratio(0.05, 1.25, expected=2, limit=2),
    ],
    ids=str,
)
def test_how_often_a_ping_pays_follows_from_the_prices(ratio: Ratio):
    rules = replace(
        cache_rules("anthropic", MODEL, ""), read=ratio.read, write=ratio.write, life_s=ratio.life_s, is_refreshed=True
    )
    assert worthwhile_pings(rules, ratio.limit) == ratio.expected
