"""The DeepInfra backend from question to answer, against a server on a real socket."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr
from tests.support.fakes import Clock, MemoryOriginals
from tests.support.proxy.reranker import stall
from tests.support.read_back import read_lines
from tests.support.services.workers import scripted as scripted_worker
from tests.support.texts import a_log, a_question
from tests.support.upstream import Heard, Script, http, scripted

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import PrunerSettings
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.prune import Question
from kimi_proxy.features.pruning import engine
from kimi_proxy.proxy.pruners import Reranker
from kimi_proxy.services.pruner import PruneAnswer, Pruner
from kimi_proxy.services.workers.pool import Workers

LOG = a_log(300)
LATE = [f"page{i * 7919 % 997}.css" for i in range(200, 240)]


def prefers_late(heard: Heard) -> bytes:
    """A reranker with a taste of its own: lines 201 to 240."""
    documents = json.loads(heard.body)["documents"]
    scores = [0.95 if any(name in line for name in LATE) else 0.01 for line in documents]
    return http(json.dumps({"scores": scores}).encode())


@asynccontextmanager
async def deepinfra(
    endpoint: str,
    key: str | None = "sk",
    workers: Workers | None = None,
    clock: Clock | None = None,
    store: MemoryOriginals | None = None,
    **settings: int,
) -> AsyncIterator[Pruner]:
    config = PrunerSettings.model_validate({"backend": "deepinfra", "deepinfra_endpoint_url": endpoint} | settings)
    workers = workers or Workers(limit=1, thread_max_chars=32 * 1024)
    reranker = Reranker(endpoint, SecretStr(key) if key else None)
    try:
        yield Pruner(config, store or MemoryOriginals(), workers, reranker, now=clock or Clock())
    finally:
        await reranker.close()
        await workers.close()


def stats_of(answer: PruneAnswer) -> JsonObject:
    return {name: value for name, value in answer.stats().items() if "deepinfra" in name}


async def test_the_rerankers_taste_decides_what_stays() -> None:
    question = a_question(LOG, max_prune_ratio=0.7)
    async with scripted(prefers_late) as server, deepinfra(server.url, deepinfra_max_docs=512) as pruner:
        answer = await pruner.prune(LOCAL, question)
    cut = {n for a in answer.pruned.annotations for n in range(a.cut.start, a.cut.end + 1)}
    assert answer.pruned.pruned_lines > 100
    assert not cut & set(range(201, 241))
    assert answer.pruned.warnings == ()
    assert not answer.pruned.used_fallback
    assert server.heard[0].message["queries"] == [question.goal]
    assert len(json.loads(server.heard[0].body)["documents"]) == 300


async def test_the_answer_tells_about_the_reranker_in_the_words_of_the_contract() -> None:
    async with scripted(prefers_late) as server, deepinfra(server.url, deepinfra_max_docs=512) as pruner:
        answer = await pruner.prune(LOCAL, a_question(LOG))
    stats = answer.stats()
    assert list(stats)[8:] == [
        "backend",
        "tokens_saved_est",
        "deepinfra_latency_ms",
        "deepinfra_docs_scored",
        "deepinfra_docs_total",
        "deepinfra_http_status",
        "deepinfra_cached",
        "cost_estimated_usd",
        "numbering",
    ]
    assert stats["backend"] == "deepinfra"
    assert isinstance(stats["deepinfra_latency_ms"], int)
    assert (stats["deepinfra_docs_scored"], stats["deepinfra_docs_total"]) == (300, 300)
    assert (stats["deepinfra_http_status"], stats["deepinfra_cached"]) == (200, False)
    assert stats["cost_estimated_usd"] == pytest.approx(answer.tokens_saved * 0.01 / 1_000_000)
    assert answer.tokens_saved > 0


async def test_lines_beyond_the_maximum_keep_their_local_score_and_the_answer_says_so() -> None:
    async with scripted(prefers_late) as server, deepinfra(server.url, deepinfra_max_docs=10) as pruner:
        answer = await pruner.prune(LOCAL, a_question(LOG))
    sent = json.loads(server.heard[0].body)["documents"]
    assert len(sent) == 10
    assert any("payment" in line for line in sent), "the best by local score are asked about"
    assert answer.pruned.warnings == ("deepinfra_docs_truncated",)
    assert (answer.stats()["deepinfra_docs_scored"], answer.stats()["deepinfra_docs_total"]) == (10, 300)
    assert answer.pruned.pruned_lines > 0
    assert not answer.pruned.used_fallback


async def test_blank_lines_are_never_sent() -> None:
    text = a_log(200).replace("\n", "\n\n  \n")
    async with scripted(prefers_late) as server, deepinfra(server.url, deepinfra_max_docs=512) as pruner:
        answer = await pruner.prune(LOCAL, a_question(text))
    assert all(line.strip() for line in json.loads(server.heard[0].body)["documents"])
    assert (answer.stats()["deepinfra_docs_scored"], answer.stats()["deepinfra_docs_total"]) == (200, 200)


@pytest.mark.parametrize("text", ["", " \n\n\t\n"])
async def test_a_text_without_words_calls_without_asking(text: str) -> None:
    async with scripted(stall) as server, deepinfra(server.url) as pruner:
        answer = await pruner.prune(LOCAL, a_question(text, min_keep_lines=0))
    assert server.heard == []
    assert answer.pruned.text == text
    assert (answer.pruned.warnings, answer.pruned.used_fallback) == (("nothing_worth_cutting",), False)


async def test_a_repeated_question_is_answered_from_the_cache_without_a_call() -> None:
    clock = Clock()
    async with scripted(prefers_late) as server, deepinfra(server.url, clock=clock, cache_ttl_s=30) as pruner:
        first = await pruner.prune(LOCAL, a_question(LOG))
        again = await pruner.prune(LOCAL, a_question(LOG))
        assert len(server.heard) == 1
        clock.advance(31)
        later = await pruner.prune(LOCAL, a_question(LOG))
        assert len(server.heard) == 2
    assert again.prune_id == first.prune_id == later.prune_id
    assert "cache_hit" in again.pruned.warnings
    assert again.stats()["deepinfra_cached"] is True
    assert again.stats()["deepinfra_latency_ms"] == 0
    assert again.pruned.text == first.pruned.text
    assert later.stats()["deepinfra_cached"] is False


FAILURES: dict[str, tuple[Script, str, int | None]] = {
    "401": (lambda heard: http(b'{"detail":"bad key"}', "401 Unauthorized"), "deepinfra_http_error", 401),
    "429": (lambda heard: http(b"", "429 Too Many Requests"), "deepinfra_http_error", 429),
    "500": (lambda heard: http(b"oops", "500 Internal Server Error"), "deepinfra_http_error", 500),
    "hangs up": (lambda heard: b"", "deepinfra_http_error", None),
    "not JSON": (lambda heard: http(b"<html>"), "deepinfra_parse_error", 200),
    "NaN": (lambda heard: http(b"[NaN]"), "deepinfra_parse_error", 200),
}


def is_heuristic(answer: PruneAnswer, question: Question, warning: str, status: int | None) -> bool:
    """What the local engine would have said, marked as a fallback."""
    assert answer.prune_id
    local = engine.prune(question, answer.prune_id)
    assert answer.pruned == local.with_warnings("deepinfra_error", warning, fallback=True)
    assert local.pruned_lines > 0
    assert answer.stats()["backend"] == "deepinfra"
    assert answer.stats()["deepinfra_docs_scored"] == 0
    assert answer.stats().get("deepinfra_http_status") == status
    assert answer.stats()["used_fallback"] is True
    return True


@pytest.mark.parametrize(("script", "warning", "status"), FAILURES.values(), ids=FAILURES.keys())
async def test_a_reranker_that_fails_leaves_the_work_to_the_local_engine(
    script: Script, warning: str, status: int | None
) -> None:
    question = a_question(LOG)
    async with scripted(script) as server, deepinfra(server.url) as pruner:
        assert is_heuristic(await pruner.prune(LOCAL, question), question, warning, status)
        # A failure is not remembered: the next attempt may succeed.
        assert "cache_hit" not in (await pruner.prune(LOCAL, question)).pruned.warnings
        assert len(server.heard) == 2


async def test_without_a_key_the_local_engine_does_it_and_nothing_is_sent() -> None:
    question = a_question(LOG)
    async with scripted(stall) as server, deepinfra(server.url, key=None) as pruner:
        assert is_heuristic(await pruner.prune(LOCAL, question), question, "deepinfra_config_error", None)
    assert server.heard == []


async def test_a_reranker_that_stalls_leaves_time_for_the_local_engine() -> None:
    question = a_question(LOG, timeout_ms=5000)
    async with scripted(stall) as server, deepinfra(server.url) as pruner:
        began = time.monotonic()
        answer = await pruner.prune(LOCAL, question)
        assert time.monotonic() - began < 50
    assert is_heuristic(answer, question, "deepinfra_http_error", None)


async def test_the_reranker_has_a_limit_of_its_own() -> None:
    question = a_question(LOG, timeout_ms=60_000)
    async with scripted(stall) as server, deepinfra(server.url, deepinfra_timeout_ms=200) as pruner:
        began = time.monotonic()
        answer = await pruner.prune(LOCAL, question)
        assert time.monotonic() - began < 50
    assert is_heuristic(answer, question, "deepinfra_http_error", None)


async def test_the_promises_hold_with_the_reranker_too() -> None:
    store = MemoryOriginals()
    async with scripted(prefers_late) as server, deepinfra(server.url, store=store, deepinfra_max_docs=20) as pruner:
        for ratio, floor in ((0.5, 1), (0.9, 100), (0.0, 0), (1.0, 300), (1.0, 301)):
            answer = await pruner.prune(LOCAL, a_question(LOG, max_prune_ratio=ratio, min_keep_lines=floor))
            kept = answer.pruned.original_lines - answer.pruned.pruned_lines
            assert answer.pruned.pruned_lines <= 300 * ratio
            assert kept >= min(floor, 300)
            assert answer.prune_id
            assert await read_lines(store, answer.prune_id, [(1, 300)]) == LOG


async def test_a_large_text_goes_through_the_reranker_in_a_child() -> None:
    question = a_question(a_log(5_000))
    async with scripted(prefers_late) as server, deepinfra(server.url) as pruner:
        answer = await pruner.prune(LOCAL, question)
    assert answer.pruned.warnings == ("deepinfra_docs_truncated",)
    assert answer.pruned.pruned_lines > 0


async def test_an_engine_that_dies_after_the_reranker_still_leaves_the_text_whole() -> None:
    workers = Workers(limit=1, thread_max_chars=0, command=scripted_worker("os._exit(1)"))
    async with scripted(prefers_late) as server, deepinfra(server.url, workers=workers) as pruner:
        answer = await pruner.prune(LOCAL, a_question(LOG))
    assert answer.pruned.text == LOG
    assert answer.pruned.warnings == ("internal_error",)
    assert answer.stats()["backend"] == "deepinfra"
    assert stats_of(answer)["deepinfra_docs_scored"] == 0
