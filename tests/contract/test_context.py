"""The commands and settings of active context management, with a fake provider and a session named 42."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from tests.support import outputs
from tests.support.api.compress import FULL, SUMMARY, conversation, words
from tests.support.api.compress import world as full_world
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.conversations import Assistant, Call, Item, Result, User, body
from tests.support.evil import answering, evil, http
from tests.support.processes import until
from tests.support.shell_lines import Example, Shell, problems

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.services.store.sqlite.store import store_path

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

LOG = outputs.pytest_log(300)
HASH = sha256(LOG.text.encode()).hexdigest()
MEMORY = "<mcp-memory>The importer is written in Rust.</mcp-memory>"
ITEMS: list[Item] = [User(f"{MEMORY} {LOG.goal}"), Assistant("", (Call("call_a1"),)), Result("call_a1", LOG.text)]
NAMED = {"content-type": "application/json", "x-session-id": "42"}

LOOKING = (
    Example("list what was masked", "curl http://localhost:8000/api/mask", {"masks": [{"why": "pruned"}]}),
    Example("read one back", f"curl http://localhost:8000/api/mask/{HASH}", {"text": LOG.text}),
    Example(
        "ask for what is not there",
        "curl http://localhost:8000/api/mask/abc123hash",
        {"error": {"code": "prune_id_not_found"}},
    ),
    Example(
        "savings",
        "curl http://localhost:8000/api/sanitizer/stats",
        {"enabled": True, "outputs": {"pruned": 1}},
    ),
    Example(
        "memory of a session",
        "curl http://localhost:8000/api/sessions/42/memory",
        {"memory_context": {"kinds": [{"kind": "mcp-memory", "segments": 1}]}, "history": [{}]},
    ),
    Example(
        "memory of all sessions",
        "curl http://localhost:8000/api/memory/stats",
        {"requests_with_memory": 1, "sessions_with_memory": 1, "kinds": [{"kind": "mcp-memory"}]},
    ),
    Example("health of a session", "curl http://localhost:8000/api/session/42/health", {"requests": 1}),
    Example(
        "save project memory",
        "curl -sS -H 'Content-Type: application/json' -d '{\"content\":\"Use tabs.\"}' "
        "http://localhost:8000/api/memory/save",
        {"content": "Use tabs.", "inject": False},
    ),
    Example(
        "compress too early",
        "curl -X POST http://localhost:8000/api/compress/42",
        {"error": "below_threshold", "threshold": 85},
    ),
)


async def chat(p: Proxy) -> None:
    """Send one request of session 42, and wait until it is in the store."""
    sent = await p.http.post("/v1/chat/completions", content=body(Wire.CHAT, ITEMS), headers=NAMED)
    assert sent.status_code == 200, sent.text
    await until(lambda: bool(rows(p.runtime.config.home, "SELECT 1 FROM memory_metrics")))


def rows(home: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(store_path(home))) as connection:
        return connection.execute(sql).fetchall()


async def test_each_example_shows_what_is_promised(tmp_path: Path):
    window = '[models.kimi-k2]\nprovider = "openai-evil"\nmax_context_size = 262144\n'
    async with (
        evil(answering(http(b'{"choices":[]}'))) as provider,
        proxy(tmp_path, provider.toml() + window + "[sanitizer]\nbudget_ms = 60000\n") as p,
    ):
        await chat(p)
        shell = Shell.of(tmp_path, {8000: p.port})
        answers = {each: await asyncio.to_thread(shell.ask, each.command) for each in LOOKING}

    assert problems(answers) == {}


COMPRESSING = (
    Example("simulate", "curl -X POST http://localhost:8000/api/compress/42/simulate", {"summary_by": "heuristic"}),
    Example("compress", "curl -X POST http://localhost:8000/api/compress/42", {"summary_by": "provider"}),
    Example("figures of a session", "curl http://localhost:8000/api/compress/42/stats", {"compressions": 1}),
    Example("figures of all sessions", "curl http://localhost:8000/api/compress/stats", {"compressions": 1}),
)


async def test_a_full_session_is_compressed_by_one_command(tmp_path: Path):
    async with full_world(tmp_path, Wire.CHAT) as here:
        whole = await here.send(conversation(FULL), **{"x-session-id": "42"})
        shell = Shell.of(tmp_path, {8000: here.p.port})
        answers = {each: await asyncio.to_thread(shell.ask, each.command) for each in COMPRESSING}
        compressed = await here.send(conversation(FULL), **{"x-session-id": "42"})

    assert problems(answers) == {}
    assert "Question 0" in words(whole)
    assert "Question 0" not in words(compressed)
    assert SUMMARY in words(compressed)
    assert len(compressed.messages) < len(whole.messages)


def test_the_settings_are_read_as_they_stand_there():
    config = parse(
        """[sanitizer]
enabled = true
threshold_tokens = 1000
preview_length = 200

[sanitizer.routing]
fallback_threshold = 0.90
heavy_duty_fallback = true

[compaction]
enabled = true
threshold_percentage = 80
max_preserved_messages = 2
""",
        {},
        Path(),
    )

    assert (config.sanitizer.threshold_tokens, config.sanitizer.preview_length) == (1000, 200)
    assert (config.sanitizer.routing.fallback_threshold, config.sanitizer.routing.heavy_duty_fallback) == (0.9, True)
    assert (config.compaction.threshold_percentage, config.compaction.max_preserved_messages) == (80, 2)


COLUMNS = {
    "compression_log": ("id", "session_id", "timestamp", "original_tokens", "compressed_tokens", "compression_ratio"),
    "masked_content": ("id", "content_hash", "original_content", "preview", "file_path", "created_at"),
    "sessions": ("memory_context",),
    "memory_metrics": ("memory_tokens", "chat_tokens", "memory_ratio"),
    "memory_segments": ("kind", "tokens"),
}


@pytest.mark.parametrize("table", COLUMNS)
async def test_the_tables_can_be_read_under_their_names(table: str, tmp_path: Path):
    async with proxy(tmp_path, ""):
        found = {name for _, name, *_ in rows(tmp_path, f"PRAGMA table_info({table})")}

    assert set(COLUMNS[table]) - found == set()
