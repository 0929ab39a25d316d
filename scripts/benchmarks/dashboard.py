"""Live events to many viewers; the dashboard in a browser, before ten thousand requests and fifty events a second."""

import asyncio
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

from timing import median, p95, table

ROOT = Path(__file__).parents[2]
TIMES = 5
WATCHED_S = 30
VIEWERS = 20

SWITCH = """
async (view) => {
  const begun = performance.now();
  document.querySelector(`nav li a[href="#/${view}"]`).click();
  await new Promise((seen) => requestAnimationFrame(() => setTimeout(seen)));
  return performance.now() - begun;
}
"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


async def delays(home: Path) -> list[tuple[str, str]]:
    """How late twenty viewers receive four events, alone and beside one that stopped reading."""
    from tests.support.api.live import Audience, frozen_viewer, is_cut
    from tests.support.api.watching import watching, world

    async with world(home) as w, AsyncExitStack() as viewers:
        watchers = [await viewers.enter_async_context(watching(w.proxy.port)) for _ in range(VIEWERS)]
        await asyncio.gather(*(watcher.until("init") for watcher in watchers))
        audience = Audience(w.proxy.runtime.hub, watchers)
        alone = [await audience.hears_in() for _ in range(100)]
        frozen, beside = viewers.enter_context(frozen_viewer(w.proxy.port)), list[float]()
        while not is_cut(frozen):
            beside.append(await audience.hears_in())
    return [
        (f"events reach {VIEWERS} viewers in, 95th percentile", f"{1000 * p95(alone):.0f} ms"),
        ("the same beside a frozen viewer, until it is cut off", f"{1000 * p95(beside):.0f} ms"),
    ]


def main() -> None:
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as home:
        table("Live events", ("what", "figure"), asyncio.run(delays(Path(home))))
    from tests.support.browser import chromium, load
    from tests.support.browser.product import Product, started
    from tests.support.browser.provider import provider
    from tests.support.browser.window import Windows

    program = chromium.find()
    if program is None:
        print("\ndashboard: no Chromium here; scripts/browser says what to do")
        return

    def measure(windows: Windows, product: Product) -> list[tuple[str, str]]:
        paints: list[float] = []
        drawn: list[float] = []
        for _ in range(TIMES):
            with windows.opened(product.address) as window:
                page = load.opened(window)
                paints.append(float(page.evaluate(PAINT)))
                drawn.append(float(page.evaluate("performance.now()")))
        sizes: list[int] = []
        with windows.opened(product.address) as window:
            window.page.on("requestfinished", lambda request: sizes.append(request.sizes()["responseBodySize"]))
            page = load.opened(window)
            page.wait_for_timeout(1000)
            loaded = sum(sizes)
            with load.lively(product):
                page.wait_for_timeout(1000 * WATCHED_S // 3)
                before = load.heap(page)
                took = [float(page.evaluate(SWITCH, view)) for view in ("sessions", "live", "cuts", "live") * 5]
                page.wait_for_timeout(1000 * WATCHED_S * 2 // 3)
                after = load.heap(page)
        return [
            ("first paint, median of 5", f"{median(paints):.0f} ms"),
            ("first view drawn, median of 5", f"{median(drawn):.0f} ms"),
            ("page weight, compressed", f"{loaded / 1000:.0f} KB"),
            ("another view while 50 events a second come in, median", f"{median(took):.0f} ms"),
            ("the same, 95th percentile", f"{p95(took):.0f} ms"),
            (f"heap before and after {WATCHED_S * 2 // 3} s of that", f"{before:.1f} MB, {after:.1f} MB"),
        ]

    with tempfile.TemporaryDirectory() as home, provider() as told, Windows.of(program) as windows:
        with ThreadPoolExecutor(1) as aside:  # Playwright's loop runs in this thread
            aside.submit(asyncio.run, load.remember(Path(home))).result()
        with started(Path(home), told.toml()) as product:
            table("Dashboard, 10,000 requests in 200 sessions", ("what", "figure"), measure(windows, product))
