"""Originals and stores for tests to work with."""

import hashlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.errors import PruneIdNotFound
from kimi_proxy.core.markers import new_id
from kimi_proxy.features.chat.prompt_cache import ExplainedMiss
from kimi_proxy.features.metering import Metric, QuotaWindow
from kimi_proxy.services.store.protocols import Original, Originals, SessionRecord, SessionStore
from kimi_proxy.services.store.sqlite.database import Connect, connect
from kimi_proxy.services.store.sqlite.store import SqliteStore

TTL_S = 600.0
MAX_BYTES = 64 * 1024**2


def an_original(text: bytes = b"one\ntwo\n", scope: str = "local", key: bytes | None = None) -> Original:
    fingerprint = hashlib.sha256(text).digest() if key is None else key
    return Original(new_id("prn"), scope, fingerprint, text, b'{"goal":"x"}')


@asynccontextmanager
async def opened(
    home: Path,
    now: Callable[[], float] = time.time,
    ttl_s: float = TTL_S,
    max_bytes: int = MAX_BYTES,
    timeout_s: float = 30.0,  # a loaded machine may be slow; tests of timeouts say theirs
    connect: Connect = connect,
) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(
        home, ttl_s=ttl_s, max_bytes=max_bytes, timeout_s=timeout_s, now=now, connect=connect
    )
    try:
        yield store
    finally:
        await store.close()


async def reason(originals: Originals, id: str, scope: str = "local") -> str:
    with pytest.raises(PruneIdNotFound) as error:
        await originals.get(Caller(scope), id)
    return error.value.reason


def a_session(id: str = "ses_a", at: float = 100.0, **fields: str) -> SessionRecord:
    named = {"name": "", "title": "", "provider": "p", "model": "m"} | fields
    return SessionRecord(id, named["name"], named["title"], named["provider"], named["model"], at, at)


def a_metric(id: str = "req_1", session: str = "ses_a", at: float = 100.0) -> Metric:
    return Metric(
        id=id,
        session=session,
        at=at,
        provider="p",
        model="m",
        api="chat",
        tokens_estimated=90,
        tokens_saved=5,
        reasons=("below_threshold", "failures"),
        max_context=1000,
        status=200,
        outcome="ok",
        finish="stop",
        input_tokens=100,
        cached_tokens=40,
        output_tokens=7,
        cost_usd=0.25,
        first_token_ms=12,
        duration_ms=34,
        miss=ExplainedMiss("expired", 1200, 0.5, "after 700 s"),
        cache_life_s=300.0,
        observed_tokens=12,
        observed_usd=0.125,
        quota=(QuotaWindow("5h", 0.42, at + 18_000.0), QuotaWindow("7d", 0.18, None)),
    )


async def all_metrics(sessions: SessionStore, session: str | None = None) -> list[Metric]:
    return [metric for _, metric in await sessions.metrics(LOCAL, session, 0, 10_000)]
