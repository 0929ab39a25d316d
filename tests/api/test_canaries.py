"""What people say, what tools say and what keys are: none of it is seen where nobody asked for it."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.api.watching import MODEL, Watcher, World, models, watching, world
from tests.support.deep import too
from tests.support.texts import a_log, a_question

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.services.store.sqlite.store import store_path

SECRETS = {
    place: f"CANARY{place.upper()}7f3a"
    for place in ("system", "user", "assistant", "tool", "arguments", "tools", "key", "bearer", "unknown", "goal")
}
OURS = ("sessions", "metrics", "compression_log")


def a_conversation(turn: int) -> JsonObject:
    """The first sixty characters that a person says are the session's title, and shown as such."""
    call = {"id": "c", "function": {"name": "bash", "arguments": f'{{"command": "{SECRETS["arguments"]}"}}'}}
    messages: list[JsonValue] = [
        {"role": "system", "content": SECRETS["system"]},
        {
            "role": "user",
            "content": f"Why does the build of the shop fail since this morning, {turn}? {SECRETS['user']}",
        },
        {"role": "assistant", "content": SECRETS["assistant"], "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": f"{SECRETS['tool']}\n{a_log(400)}\n{SECRETS['tool']}"},
        {"role": "user", "content": "and now?"},
    ]
    tool = {"type": "function", "function": {"name": "bash", "description": SECRETS["tools"], "parameters": {}}}
    return {"model": MODEL, "messages": messages, "tools": [tool], "note": SECRETS["unknown"]}


async def talk(w: World, watcher: Watcher, requests: int) -> None:
    headers = {"authorization": f"Bearer {SECRETS['bearer']}", "x-api-key": SECRETS["bearer"]}
    for turn in range(requests):
        body = a_conversation(turn % 7)
        # Some are refused, by us or by the provider.
        if turn % 5 == 4:
            body["messages"] = SECRETS["user"]
        await w.proxy.http.post("/v1/chat/completions", json=body, headers=headers)
    await w.proxy.http.post("/v1/chat/completions", content=f'{{"model": "{SECRETS["user"]}', headers=headers)
    await w.proxy.runtime.pruner.prune(LOCAL, a_question(f"{SECRETS['tool']}\n{a_log(300)}", SECRETS["goal"]))
    await w.proxy.rpc(
        "pruner", {"jsonrpc": "2.0", "id": 1, "method": SECRETS["user"], "params": {"x": SECRETS["tool"]}}
    )
    await watcher.until("metric_updated", requests)
    await watcher.until("prune_event")
    await watcher.until("gateway_event")


def hits(text: str) -> set[str]:
    return {place for place, secret in SECRETS.items() if secret in text}


@pytest.mark.parametrize("sanitizer", ["true", too("false")])
async def test_no_canary_is_seen_in_events_logs_answers_or_tables(
    tmp_path: Path, sanitizer: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    toml = 'api_key = "${EVIL_KEY}"\n' + models() + f"[sanitizer]\nenabled = {sanitizer}\n"
    async with world(tmp_path, toml, EVIL_KEY=SECRETS["key"]) as w, watching(w.proxy.port) as watcher:
        await watcher.until("init")
        await talk(w, watcher, 60)
        await w.sessions(60)
        shown = [(await w.proxy.http.get(path)).text for path in ("/api/sessions?limit=500", "/api/providers")]
        shown += [(await w.proxy.http.get(path)).text for path in ("/api/export/csv", "/api/models", "/api/rate-limit")]
        async with watching(w.proxy.port) as late:
            await late.until("init")
    assert {"metric", "metric_updated", "prune_event", "gateway_event"} <= set(watcher.types)
    assert ("sanitizer_event" in watcher.types) == (sanitizer == "true")
    assert hits("\n".join((*watcher.frames, *late.frames))) == set()
    assert hits("\n".join(shown)) == set()
    # What a field of a log record holds counts as logged.
    assert hits("\n".join(str(vars(record)) for record in caplog.records)) == set()
    assert hits(tables(store_path(tmp_path))) == set()


def tables(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        rows = [row for table in OURS for row in connection.execute(f"SELECT * FROM {table}")]
    assert len(rows) >= 60
    return "\n".join(map(str, rows))


async def test_without_originals_no_canary_is_in_the_file(tmp_path: Path):
    # A history that exceeds the window would be kept as an original, with a preview of it.
    toml = models() + "[sanitizer]\nenabled = false\n[compression]\nrescue = false\n"
    async with world(tmp_path, toml) as w:
        for turn in range(20):
            answer = await w.proxy.http.post("/v1/chat/completions", json=a_conversation(turn))
            assert answer.status_code == 200
        await w.sessions(20)
    found = b"".join(each.read_bytes() for each in store_path(tmp_path).parent.iterdir() if each.is_file())
    assert b"ses_" in found
    assert hits(found.decode("latin-1")) == set()
