"""Memory over HTTP: weighed in every request, kept for the project, told to new conversations."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.api.watching import MODEL, World, completion, models, watching, world
from tests.support.evil import answering, evil, http

from kimi_proxy.core import json, tokens
from kimi_proxy.core.json import JsonValue
from kimi_proxy.services.store.sqlite.store import store_path

BLOCK = "<mcp-memory>la clé est verte</mcp-memory>"
RECALL = "@recall(le port)"
INJECT = "[memory]\ninject = true\n"


async def test_the_memory_of_a_session_is_told_request_by_request(tmp_path: Path):
    async with world(tmp_path) as w, watching(w.proxy.port) as watcher:
        await w.ask("hello", name="mine")
        await w.ask("hello", "hi", f"{BLOCK} and {RECALL}", name="mine")
        await w.sessions(2)
        await watcher.until("memory_metrics_update", 2)
        memory, stats = await w.get("/api/sessions/mine/memory"), await w.get("/api/memory/stats")
        last = await w.get("/api/sessions/mine/memory?limit=1")

    counted = [tokens.count(BLOCK), tokens.count(RECALL)]
    first, second = memory["history"]
    assert (first["memory_tokens"], second["memory_tokens"]) == (0, sum(counted))
    assert last["history"] == [second]
    assert memory["memory_context"] == {
        "memory_tokens": sum(counted),
        "memory_ratio": second["memory_ratio"],
        "kinds": [
            {"kind": "mcp-memory", "segments": 1, "tokens": counted[0], "preview": BLOCK},
            {"kind": "@recall", "segments": 1, "tokens": counted[1], "preview": RECALL},
        ],
    }
    told = watcher.said("memory_metrics_update")[1]
    assert told["composition"] == second["composition"]
    assert BLOCK not in str(watcher.events)  # nobody's words are in an event
    assert (stats["requests"], stats["requests_with_memory"], stats["sessions_with_memory"]) == (2, 1, 1)
    assert (stats["memory_tokens"], [each["kind"] for each in stats["kinds"]]) == (
        sum(counted),
        ["mcp-memory", "@recall"],
    )


async def test_the_tables_have_the_names_that_were_promised(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask(BLOCK, name="mine")
        await w.ask(BLOCK, "hi", "again", name="mine")
        await w.sessions(2)
    with closing(sqlite3.connect(store_path(tmp_path))) as connection:
        metrics = connection.execute("SELECT memory_tokens, chat_tokens, memory_ratio FROM memory_metrics").fetchall()
        same = connection.execute("SELECT memory_tokens, chat_tokens, memory_ratio FROM metrics").fetchall()
        segments = connection.execute("SELECT kind, segments, tokens, preview FROM memory_segments").fetchall()
        (context,) = connection.execute("SELECT memory_context FROM sessions").fetchone()

    assert metrics == same
    assert len(metrics) == 2
    assert metrics[0][2] == round(metrics[0][0] / (metrics[0][0] + metrics[0][1]), 4)
    assert segments == [("mcp-memory", 1, tokens.count(BLOCK), BLOCK)]  # what does not change is written once
    assert BLOCK in context


async def test_a_session_that_is_deleted_takes_its_memory_along(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask(BLOCK, name="mine")
        await w.ask(BLOCK, name="yours")
        await w.sessions(2)
        await w.proxy.http.delete("/api/sessions/mine")
        left = (await w.get("/api/memory/stats"))["sessions_with_memory"]
        await w.proxy.http.request("DELETE", "/api/sessions", json={"all": True})
        stats = await w.get("/api/memory/stats")

    assert (left, stats["sessions_with_memory"], stats["kinds"]) == (1, 0, [])


async def test_an_unknown_session_and_a_strange_limit_are_refused(tmp_path: Path):
    async with world(tmp_path) as w:
        unknown = await w.proxy.http.get("/api/sessions/nobody/memory")
        await w.ask("hi", name="mine")
        strange = await w.proxy.http.get("/api/sessions/mine/memory?limit=0")

    assert (unknown.status_code, strange.status_code) == (404, 400)


async def test_the_map_and_the_live_view_show_one_percentage(tmp_path: Path):
    async with world(tmp_path) as w, watching(w.proxy.port) as watcher:
        await w.ask("hi " * 300, name="mine")
        await watcher.until("metric_updated")
        context = await w.get("/api/sessions/mine/context")

    metric = watcher.said("metric_updated")[0]["metric"]
    assert isinstance(metric, dict)
    assert metric["input_tokens"] != metric["tokens_estimated"]
    assert (context["tokens"], context["percent"]) == (metric["input_tokens"], metric["percent"])


async def test_health_shows_what_fills_the_window_and_where(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("hi", "ho", BLOCK, name="mine")
        await w.sessions(1)
        health = await w.get("/api/session/mine/health")
        made = await w.proxy.http.post("/api/sessions", json={"title": "empty"})
        empty = await w.get(f"/api/session/{made.json()['id']}/health")

    composition, slices = health["composition"], health["distribution"]
    assert isinstance(composition, dict)
    assert isinstance(slices, list)
    assert composition["memory"] == tokens.count(BLOCK)
    assert len(slices) == 20
    assert {kind: sum(each[kind] for each in slices) for kind in composition} == composition
    assert health["attention_sink"] == {
        "is_sunk": False,
        "system_tokens": 0,
        "buried_tokens": 0,
        "distance": None,
        "threshold": 0.5,
        "reinjected": False,
    }
    assert (empty["composition"], empty["distribution"], empty["attention_sink"]) == (None, None, None)


def a_long_chat(turns: int) -> list[JsonValue]:
    said: list[JsonValue] = [{"role": "system", "content": "Answer in one word."}]
    for turn in range(turns):
        said += [
            {"role": "user", "content": f"question {turn} " + "word " * 40},
            {"role": "assistant", "content": f"answer {turn}"},
        ]
    return [*said, {"role": "user", "content": "and now?"}]


async def ask(p: Proxy, messages: list[JsonValue], model: str = MODEL) -> None:
    body = {"model": model, "messages": messages}
    answer = await p.http.post("/v1/chat/completions", json=body, headers={"x-session-id": "mine"})
    assert answer.status_code == 200, answer.text


async def test_buried_instructions_raise_an_alert_once_and_again_after_they_came_up(tmp_path: Path):
    async with world(tmp_path) as w, watching(w.proxy.port) as watcher:
        for turns in (2, 12, 13, 2, 14):
            await ask(w.proxy, a_long_chat(turns))
        await w.sessions(5)
        await watcher.until("metric_updated", 5)
        sunk = (await w.get("/api/session/mine/health"))["attention_sink"]

    first, second = watcher.said("attention_sink_alert")
    assert first["percent"] > 50
    assert first["buried_tokens"] == first["system_tokens"] > 0
    assert isinstance(sunk, dict)
    assert (sunk["is_sunk"], sunk["distance"]) == (True, second["distance"])


async def test_instructions_that_are_repeated_raise_none(tmp_path: Path):
    async with evil(answering(http(completion()))) as provider:
        toml = provider.toml() + models() + "[reinjection]\nenabled = true\n"
        async with proxy(tmp_path, toml) as p, watching(p.port) as watcher:
            await ask(p, a_long_chat(12))
            await watcher.until("metric_updated")
            health = await World(p, provider).get("/api/session/mine/health")

    assert watcher.said("attention_sink_alert") == []
    (told,) = watcher.said("instructions_reinjected")
    assert told["tokens"] > 0
    assert isinstance(health["attention_sink"], dict)
    assert (health["attention_sink"]["is_sunk"], health["attention_sink"]["reinjected"]) == (False, True)
    sent = json.decode(provider.heard[0].body)
    assert isinstance(sent, dict)
    assert "Answer in one word." in sent["messages"][-1]["content"]


async def test_project_memory_is_saved_loaded_and_told_in_the_bytes_that_leave(tmp_path: Path):
    async with evil(answering(http(completion()))) as provider:
        async with proxy(tmp_path, provider.toml() + models() + INJECT) as p:
            nothing = (await p.http.get("/api/memory/load")).json()
            saved = (await p.http.post("/api/memory/save", json={"content": "tabs, not spaces"})).json()
            loaded = (await p.http.get("/api/memory/load")).json()
            await ask(p, [{"role": "user", "content": "hi"}])
        async with proxy(tmp_path, provider.toml() + models() + INJECT) as p:
            await p.http.post("/api/memory/save", json={"content": "spaces, not tabs"})
            await ask(p, a_long_chat(1)[1:])

    assert (nothing["content"], nothing["tokens"], nothing["inject"]) == ("", 0, True)
    assert saved == loaded
    assert loaded["content"] == "tabs, not spaces"
    systems = [json.decode(heard.body)["messages"][0] for heard in provider.heard]
    told = '<mcp-memory source="project">\ntabs, not spaces\n</mcp-memory>'
    assert systems == [{"role": "system", "content": told}] * 2


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"{",
        b"{}",
        b'{"content": "a", "more": 1}',
        b'{"content": "' + b"x" * 70_000 + b'"}',
        b'{"content": {"notes": ["half \\ud83e of a fox"]}}',
    ],
)
async def test_nonsense_is_not_saved(tmp_path: Path, content: bytes):
    async with proxy(tmp_path, "") as p:
        headers = {"content-type": "application/json"}
        refused = await p.http.post("/api/memory/save", content=content, headers=headers)
        loaded = (await p.http.get("/api/memory/load")).json()

    assert (refused.status_code, loaded["content"]) == (400, "")


TO_LARGE = '[sanitizer.routing]\nfallback_models = ["openai-evil/large"]\n'


async def test_routing_is_remembered_across_a_restart_and_its_window_is_the_one_that_counts(tmp_path: Path):
    async with evil(answering(http(completion()))) as provider:
        large = '[models."openai-evil/large"]\nprovider = "openai-evil"\nmax_context_size = 4000\n' + TO_LARGE
        toml = provider.toml() + models() + large
        async with proxy(tmp_path, toml) as p, watching(p.port) as watcher:
            await ask(p, a_long_chat(20))
            await watcher.until("metric_updated")
            health = await World(p, provider).get("/api/session/mine/health")
        async with proxy(tmp_path, toml) as p:
            await ask(p, a_long_chat(16))

    sent = [json.decode(heard.body)["model"] for heard in provider.heard]
    (routed,) = watcher.said("model_routed")
    assert sent == ["large", "large"]
    assert (routed["from"], routed["to"], routed["new"]) == (MODEL, "openai-evil/large", True)
    assert (health["model"], health["max_context"], health["percent"]) == ("openai-evil/large", 4000, 22.5)
    assert watcher.said("context_alert") == []


async def test_alerts_go_by_the_window_of_the_model_that_answered(tmp_path: Path):
    async with evil(answering(http(completion(prompt=3300)))) as provider:
        large = '[models."openai-evil/large"]\nprovider = "openai-evil"\nmax_context_size = 4000\n' + TO_LARGE
        async with proxy(tmp_path, provider.toml() + models() + large) as p, watching(p.port) as watcher:
            await ask(p, a_long_chat(20))
            await watcher.until("context_alert")

    (alert,) = watcher.said("context_alert")
    assert (alert["level"], alert["percent"], alert["max_context"]) == ("caution", 82.5, 4000)
