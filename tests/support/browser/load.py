"""A long history, and a lively day: for the tests of load and for `scripts/bench dashboard`."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from playwright.sync_api import Page, expect
from tests.support.browser.product import Product
from tests.support.browser.provider import MODEL, WINDOW, say
from tests.support.browser.window import Window

from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store.protocols import SessionRecord
from kimi_proxy.services.store.sqlite.store import SqliteStore

REQUESTS = 10_000
SESSIONS = 200
PER_SECOND = 25  # requests; each is two events


async def remember(home: Path) -> None:
    """A history such as a month of work leaves."""
    store = await SqliteStore.open(home, ttl_s=86_400, max_bytes=10**9, timeout_s=60)
    now = time.time()
    ids = [f"ses_{number:016d}" for number in range(SESSIONS)]
    sessions = [SessionRecord(id, f"agent-{id[-4:]}", "", "local", MODEL, now, now) for id in ids]
    metrics = [
        Metric(
            id=f"req_{number:016d}",
            session=ids[number % SESSIONS],
            at=now - REQUESTS + number,
            provider="local",
            model=MODEL,
            api="chat",
            tokens_estimated=number % WINDOW,
            tokens_saved=number % 500,
            reasons=(),
            max_context=WINDOW,
            status=200,
            outcome="ok",
            input_tokens=number % WINDOW,
            cached_tokens=0,
            output_tokens=10,
            cost_usd=0.001,
            first_token_ms=100,
            duration_ms=900,
        )
        for number in range(REQUESTS)
    ]
    for start in range(0, REQUESTS, 1000):
        await store.sessions.write(sessions if start == 0 else [], metrics[start : start + 1000])
    await store.close()


@contextmanager
def lively(product: Product) -> Iterator[None]:
    """Requests of some agents, `PER_SECOND` of them, until the test has seen enough."""
    is_over = Event()

    def work(agent: int) -> None:
        turn = 0
        while not is_over.wait(4 / PER_SECOND):
            turn += 1
            say(product, f"{agent}: and now {turn}?", session=f"lively-{agent}")

    with ThreadPoolExecutor(4) as agents:
        try:
            working = [agents.submit(work, agent) for agent in range(4)]
            yield
        finally:
            is_over.set()
    for done in working:
        done.result()


def heap(page: Page) -> float:
    """Megabytes that are in use once all that can go is gone."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used: float = session.send("Runtime.getHeapUsage")["usedSize"] / 1e6
    session.detach()
    return used


def opened(window: Window) -> Page:
    page = window.open("live").page
    expect(page.get_by_role("meter")).to_be_visible()
    expect(page.locator(".live-requests tbody tr").first).to_be_visible()
    return page
