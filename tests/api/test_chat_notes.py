"""What is noted of chat requests, whatever becomes of them, in each of the three APIs."""

import asyncio
import json
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from tests.support.api.proxy_world import proxy
from tests.support.api.watching import models, watching, world
from tests.support.evil import Heard, Line, Script, answering, evil, http, streaming
from tests.support.processes import until

from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.services.store.sqlite.store import SqliteStore

DELTA = b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"model":"m","choices":[],"usage":{"prompt_tokens":70,"completion_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"
HI: JsonObject = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}

ANTHROPIC = {
    "type": "message",
    "model": "m",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "cache_read_input_tokens": 60, "output_tokens": 4},
}
RESPONSE = {
    "model": "m",
    "status": "completed",
    "usage": {"input_tokens": 70, "input_tokens_details": {"cached_tokens": 60}, "output_tokens": 4},
}


async def noted(home: Path, script: Script, kind: str, path: str, body: JsonObject) -> JsonObject:
    """What was noted of one request."""
    async with evil(script) as provider, proxy(home, provider.toml(kind)) as p, watching(p.port) as watcher:
        await watcher.until("init")
        with suppress(httpx.RemoteProtocolError):
            await p.http.post(path, json={"model": "m", **body})
        (event,) = await watcher.until("metric_updated")
    metric = event["metric"]
    assert isinstance(metric, dict)
    return metric


def some(metric: JsonObject, *names: str) -> tuple[JsonValue, ...]:
    return tuple(metric[name] for name in names)


@pytest.mark.parametrize(
    ("kind", "path", "body", "answer", "api"),
    [
        ("anthropic", "/v1/messages", HI, ANTHROPIC, "messages"),
        ("openai", "/v1/responses", {"input": "hi"}, RESPONSE, "responses"),
    ],
)
async def test_each_api_is_metered_in_the_same_words(
    tmp_path: Path, kind: str, path: str, body: JsonObject, answer: JsonObject, api: str
):
    metric = await noted(tmp_path, answering(http(json.dumps(answer).encode())), kind, path, body)

    assert some(metric, "api", "input_tokens", "cached_tokens", "output_tokens") == (api, 70, 60, 4)
    assert some(metric, "status", "outcome") == (200, "ok")


async def test_a_stream_is_metered_by_a_count_that_its_client_never_sees(tmp_path: Path):
    script = streaming(DELTA, USAGE, DONE)
    async with evil(script) as provider, proxy(tmp_path, provider.toml()) as p, watching(p.port) as watcher:
        answer = await p.http.post("/v1/chat/completions", json={"model": "m", "stream": True, **HI})
        (event,) = await watcher.until("metric_updated")

    assert b"usage" not in answer.content
    assert isinstance(event["metric"], dict)
    assert some(event["metric"], "input_tokens", "output_tokens", "counted_by", "finish") == (70, 3, "provider", "stop")


async def test_a_provider_that_refuses_is_noted_with_its_status(tmp_path: Path):
    refusal = http(b'{"error": {"message": "slow down"}}', "429 Too Many Requests")
    metric = await noted(tmp_path, answering(refusal), "openai", "/v1/chat/completions", HI)

    assert some(metric, "status", "counted_by", "cost_usd", "input_tokens") == (429, "estimate", None, None)


async def test_a_provider_that_breaks_off_is_noted(tmp_path: Path):
    async def script(heard: Heard, line: Line) -> None:
        await line.stream(DELTA, ends=False)
        line.reset()

    metric = await noted(tmp_path, script, "openai", "/v1/chat/completions", {"stream": True, **HI})

    assert some(metric, "status", "outcome") == (200, "upstream_disconnected")


async def test_a_client_that_hangs_up_is_noted_with_the_estimate(tmp_path: Path):
    async def script(heard: Heard, line: Line) -> None:
        await line.stream(DELTA, ends=False)
        await line.until_left()

    async with evil(script) as provider, proxy(tmp_path, provider.toml()) as p, watching(p.port) as watcher:
        body = {"model": "m", "stream": True, **HI}
        async with p.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            await anext(answer.aiter_raw())
        (event,) = await watcher.until("metric_updated")

    assert isinstance(event["metric"], dict)
    assert some(event["metric"], "outcome", "counted_by", "tokens") == ("client_gone", "estimate", 5)


async def test_a_request_to_nobody_begins_no_session(tmp_path: Path):
    async with proxy(tmp_path, "") as p:
        refused = await p.http.post("/v1/chat/completions", json={"model": "m", **HI})
        sessions = (await p.http.get("/api/sessions")).json()["sessions"]

    assert (refused.status_code, sessions) == (400, [])


async def test_a_request_that_may_not_leave_yet_is_noted_too(tmp_path: Path):
    async with world(tmp_path, "requests_per_minute = 1\n" + models()) as w, watching(w.proxy.port) as watcher:
        await w.ask("hi")
        body = {"model": "m", **HI}
        refused = await w.proxy.http.post("/v1/chat/completions", json=body)
        events = await watcher.until("metric_updated", 2)

    assert refused.status_code == 429
    outcomes = [each["metric"]["outcome"] for each in events if isinstance(each["metric"], dict)]
    assert outcomes == ["ok", "rate_limited"]


async def test_counting_tokens_is_no_request(tmp_path: Path):
    script = answering(http(b'{"input_tokens": 5}'))
    async with evil(script) as provider, proxy(tmp_path, provider.toml("anthropic")) as p:
        counted = await p.http.post("/v1/messages/count_tokens", json={"model": "m", **HI})
        sessions = (await p.http.get("/api/sessions")).json()["sessions"]

    assert (counted.status_code, sessions) == (200, [])


async def test_a_busy_disk_keeps_no_request_waiting(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("warm up")
        store = w.proxy.runtime.store
        assert isinstance(store, SqliteStore)
        entered, leave = threading.Event(), threading.Event()

        def hog(connection: object, moment: object) -> None:
            """Hold the only thread that writes."""
            entered.set()
            leave.wait(60)

        hogging = asyncio.create_task(store.sessions.database.write(hog))
        await until(entered.is_set)
        began = time.monotonic()
        for turn in range(20):
            await w.ask(f"hi {turn}")
        took = time.monotonic() - began
        leave.set()
        await asyncio.gather(hogging, return_exceptions=True)
        assert len(await w.sessions(21)) == 21
    assert took < 50
