"""Counts in the logs of agents are told as they are written, and beat ours while they are fresh."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.processes import until

from kimi_proxy.addons.log_watcher.log_watcher import MAX_CONVERSATIONS, LogWatcher
from kimi_proxy.addons.log_watcher.settings import LogWatcherSettings as Settings
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target

USAGE = '{"role": "_usage", "token_count": %d}\n'
LOGGED = "2026-07-16 10:00:00.123 | DEBUG | kimi_cli - Updating token count in context: %d\n"
BLOCK = """\
        Request had the following token counts:
        - contextLength: 600
        - tools: ~300
        - system message: ~%d
"""


class Heard:
    def __init__(self) -> None:
        self.counts: list[tuple[JsonValue, JsonValue, JsonValue]] = []

    def publish(self, who: Caller, event: str, fields: Mapping[str, JsonValue]) -> None:
        assert event == "log_count"
        self.counts.append((fields["source"], fields["session_id"], fields["tokens"]))

    async def until(self, *count: JsonValue) -> None:
        await until(lambda: count in self.counts)


class World:
    def __init__(self, home: Path) -> None:
        self.core, self.kimi, self.sessions = home / "core.log", home / "kimi.log", home / "sessions"
        self.cn, self.code = home / "cn.log", home / "code"
        self.heard = Heard()

    def wire(self, id: str) -> Path:
        path = self.code / "wd_project" / id / "agents" / "main" / "wire.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def context(self, id: str) -> Path:
        path = self.sessions / "hash" / id / "context.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @asynccontextmanager
    async def watching(self, enabled: bool = True) -> AsyncIterator[LogWatcher]:
        settings = Settings(
            enabled=enabled,
            continue_log=str(self.core),
            continue_cli_log=str(self.cn),
            kimi_code_sessions=str(self.code),
            kimi_log=str(self.kimi),
            kimi_sessions=str(self.sessions),
            poll_ms=20,
        )
        watcher = LogWatcher(settings, self.heard.publish)
        try:
            yield watcher
        finally:
            await watcher.close()

    async def until_watched(self) -> None:
        """The first look, at what is there before, is over."""
        n = 0
        while not self.heard.counts:
            n += 1
            add(self.kimi, LOGGED % n)
            await asyncio.sleep(0.03)
            assert n < 500
        self.heard.counts.clear()


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def open_files() -> list[str]:
    return [str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]


def talk(watcher: LogWatcher, session: str, key: str = "") -> None:
    body = b'{"model": "m", "prompt_cache_key": "%s", "messages": []}' % key.encode()
    draft = Draft(parse(body, Wire.CHAT), Target("p", "m"), Session(session), LOCAL)
    watcher.on_start(draft, draft)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_every_source_is_told(world: World):
    add(world.core, BLOCK % 1)
    add(world.context("before"), USAGE % 2)
    async with world.watching():
        await world.until_watched()
        add(world.core, BLOCK % 500)
        add(world.kimi, LOGGED % 501)
        add(world.context("before"), USAGE % 502)
        add(world.cn, 'x [debug]: Context usage check {"inputTokens":503,"contextLimit":9000}\n')
        add(world.wire("session_1"), '{"type":"token_counting.measured","tokens":504}\n')
        expected = (
            ("continue", 800),
            ("kimi_log", 501),
            ("kimi_context", 502),
            ("continue_cli", 503),
            ("kimi_code", 504),
        )
        for source, tokens in expected:
            await world.heard.until(source, None, tokens)

    assert [tokens for _, _, tokens in world.heard.counts if tokens in (301, 2)] == []


async def test_a_conversation_that_begins_later_is_found_and_known_by_the_key_of_its_requests(world: World):
    async with world.watching() as watcher:
        await world.until_watched()
        talk(watcher, "ses_a", "7e2c")
        talk(watcher, "ses_b")
        add(world.context("7e2c"), USAGE % 42)
        await world.heard.until("kimi_context", "ses_a", 42)

        found = watcher.newer_count(None, "ses_a")
        assert found is not None
        assert (found.tokens, watcher.newer_count(None, "ses_b")) == (42, None)


async def test_files_may_be_moved_away_and_cut_under_it(world: World):
    add(world.kimi, "begin\n")
    async with world.watching():
        await world.until_watched()
        for turn in range(1, 6):
            world.kimi.rename(world.kimi.with_suffix(f".{turn}"))
            add(world.kimi, LOGGED % (1_000 + turn))
            await world.heard.until("kimi_log", None, 1_000 + turn)
            os.truncate(world.kimi, 0)
            add(world.kimi, LOGGED % (2_000 + turn))
            await world.heard.until("kimi_log", None, 2_000 + turn)


async def test_it_watches_no_more_conversations_than_it_can(world: World):
    async with world.watching():
        await world.until_watched()
        for n in range(MAX_CONVERSATIONS + 4):
            add(world.context(f"c{n}"), USAGE % n)
            os.utime(world.context(f"c{n}"), (n, n))
        await world.heard.until("kimi_context", None, MAX_CONVERSATIONS + 3)
        files = await asyncio.to_thread(open_files)
        assert sum(file.endswith("context.jsonl") for file in files) == MAX_CONVERSATIONS


async def test_switched_off_it_opens_no_file(world: World):
    async with world.watching(enabled=False) as watcher:
        talk(watcher, "ses_a", "7e2c")
        add(world.kimi, LOGGED % 5)
        await asyncio.sleep(0.1)

    assert world.heard.counts == []
