"""A long history and a lively day: the page stays light and small. How quick it is, `scripts/bench dashboard` says."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import expect
from tests.support.browser.load import heap, lively, opened, remember
from tests.support.browser.product import Product, started
from tests.support.browser.provider import Provider, provider, say
from tests.support.browser.window import Windows
from tests.support.deep import IS_DEEP, deep

from kimi_proxy.api.dashboard import FOLDER, preloads

WATCHED_S = 600 if IS_DEEP else 6
MAX_PAGE_BYTES = 125_000


pytestmark = pytest.mark.timeout(WATCHED_S + 600)


@pytest.fixture(scope="module")
def told() -> Iterator[Provider]:
    with provider() as told:
        yield told


@pytest.fixture(scope="module")
def product(windows: Windows, told: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    home = tmp_path_factory.mktemp("load")
    with ThreadPoolExecutor(1) as aside:  # Playwright's loop runs in this thread
        aside.submit(asyncio.run, remember(home)).result(120)
    with started(home, told.toml()) as product:
        yield product


def test_the_page_is_light(windows: Windows, product: Product):
    sizes: list[int] = []
    scripts: set[str] = set()
    with windows.opened(product.address) as window:
        window.page.on("requestfinished", lambda request: sizes.append(request.sizes()["responseBodySize"]))
        window.page.on("request", lambda request: scripts.add(request.url.partition("/dashboard/")[2]))
        page = opened(window)
        expect(page.locator("canvas").first).to_be_visible()

    assert sum(sizes) <= MAX_PAGE_BYTES
    # What the page does not list is found late, one import after another.
    modules = {name for name in scripts if name.endswith((".js", ".mjs"))} - {"early.js", "vendor/uplot.mjs"}
    assert modules == set(preloads(FOLDER))


@deep("thousands of events or messages, in a browser: 10 s and more")
def test_views_open_while_fifty_events_a_second_come_in(windows: Windows, product: Product):
    with windows.opened(product.address) as window, lively(product):
        page = opened(window)
        expect(page.locator(".live-requests tbody tr", has_text="lively").nth(10)).to_be_visible()
        for view in ("sessions", "map", "compression", "live"):
            page.locator(f'nav li a[href="#/{view}"]').click()
            expect(page.locator(f'nav li a[href="#/{view}"]')).to_have_attribute("aria-current", "page")
            expect(page.locator("main .view")).to_be_visible()


@deep("thousands of events or messages, in a browser: 10 s and more")
def test_what_the_page_holds_does_not_grow(windows: Windows, product: Product):
    with windows.opened(product.address) as window:
        page = opened(window)
        with lively(product):
            page.wait_for_timeout(WATCHED_S * 250)
            before = heap(page), page.locator("*").count()
            page.wait_for_timeout(WATCHED_S * 750)
            after = heap(page), page.locator("*").count()

    assert after[0] <= before[0] + 3, (before, after)
    assert after[1] <= before[1] + 200, (before, after)
    assert after[1] < 3_000


@deep("thousands of events or messages, in a browser: 10 s and more")
def test_all_sessions_can_be_reached_a_page_at_a_time(windows: Windows, product: Product):
    with windows.opened(product.address) as window:
        page = window.open("sessions").page
        rows = page.locator("tbody tr")
        expect(rows.nth(99)).to_be_visible()
        shown = rows.count()
        window.button("Show more").click()
        expect(rows.nth(shown)).to_be_visible()
        page.get_by_role("searchbox").fill("agent-0007")
        expect(rows).to_have_count(1)


@deep("thousands of events or messages, in a browser: 10 s and more")
def test_a_conversation_of_thousands_of_messages_is_drawn_in_part(windows: Windows, product: Product):
    assert say(product, *(f"message {number}" for number in range(3001)), session="long") == 200
    id = str(product.get("/api/sessions/long")["id"])
    with windows.opened(product.address) as window:
        page = window.open("live").page
        page.get_by_label("Session", exact=True).select_option(id)
        page.locator('nav li a[href="#/map"]').click()
        expect(page.get_by_role("heading", name="3,001 messages")).to_be_visible()
        assert page.locator("*").count() < 3_000

        page.locator(".windowed").evaluate("(list) => { list.scrollTop = list.scrollHeight; }")
        page.get_by_role("button", name="message 3000").click()
        expect(page.get_by_role("dialog").locator("pre")).to_have_text("message 3000")


@deep("thousands of events or messages, in a browser: 10 s and more")
def test_whoever_leaves_a_view_before_its_charts_have_come_breaks_nothing(windows: Windows, product: Product):
    with windows.opened(product.address) as window:
        opened(window).evaluate(
            """async (times) => {
                 for (let n = 0; n < times; n++) {
                   location.hash = n % 2 ? "#/live" : "#/sessions";
                   await new Promise((seen) => (n % 3 ? requestAnimationFrame(seen) : setTimeout(seen, n % 20)));
                 }
               }""",
            120 if IS_DEEP else 40,
        )
