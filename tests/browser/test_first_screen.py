"""The first screen before a provider that does what the test says: filling up, failing, leaving, coming back."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event, Thread

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect
from tests.support.browser.product import Product, started
from tests.support.browser.provider import Provider, provider, say
from tests.support.browser.window import SharedWindow, Window, Windows
from tests.support.deep import deep, too
from tests.support.processes import within

REQUESTS = "Live requests"


@pytest.fixture(scope="module")
def told() -> Iterator[Provider]:
    with provider() as told:
        yield told


@pytest.fixture(scope="module")
def product(windows: Windows, told: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with started(tmp_path_factory.mktemp("live"), told.toml()) as product:
        yield product


@pytest.fixture(scope="module")
def screen(windows: Windows, product: Product) -> Iterator[SharedWindow]:
    with closing(SharedWindow(lambda: windows.opened(product.address))) as shared:
        yield shared


@pytest.fixture
def live(screen: SharedWindow, told: Provider) -> Iterator[Window]:
    told.tokens, told.status = 100, 200
    with screen.lent() as window:
        yield window


@pytest.fixture
def unused(windows: Windows, product: Product, told: Provider) -> Iterator[Window]:
    """A window for a test that takes hold of its socket."""
    told.tokens, told.status = 100, 200
    with windows.opened(product.address) as window:
        yield window


def pinned(window: Window, product: Product, session: str) -> Window:
    """The first screen with this session, whichever is the busiest."""
    return chosen(window.open("live"), product, session)


def chosen(window: Window, product: Product, session: str) -> Window:
    """The screen that is open, with this session."""
    id = product.get(f"/api/sessions/{session}")["id"]
    window.page.get_by_label("Session", exact=True).select_option(str(id))
    return window


def test_a_newcomer_is_told_what_to_do(windows: Windows, tmp_path: Path):
    with started(tmp_path, "") as empty, windows.opened(empty.address) as window:
        page = window.open("live").page

        expect(page.get_by_text("No requests yet")).to_be_visible()
        expect(page.get_by_text("No provider key is set.")).to_be_visible()
        expect(page.get_by_text(f"ANTHROPIC_BASE_URL={empty.address} claude")).to_be_visible()
        expect(page.get_by_text(f"OPENAI_BASE_URL={empty.address}/v1")).to_be_visible()
        expect(page.get_by_text("kimi-proxy init claude --proxy")).to_be_visible()
        expect(page.get_by_text("In a clone, the command is .venv/bin/kimi-proxy")).to_be_visible()
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.locator(".command", has_text="kimi-proxy demo").get_by_role("button", name="Copy").click()
        expect(page.get_by_text("Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == "kimi-proxy demo"
        page.get_by_role("link", name="Try it on a text of your own").click()
        expect(page.get_by_role("heading", name="Playground")).to_be_visible()
        expect(window.open("cuts").page.get_by_text("kimi-proxy init claude --proxy")).to_be_visible()


def test_money_comes_first_with_what_saving_cost(live: Window, product: Product):
    say(product, "how much?", session="paid")
    pinned(live, product, "paid")
    card = live.card("Saved")

    for period in ("Today", "This week", "This month"):
        found = card.locator(".money-period", has_text=period)
        expect(found.locator(".live-big")).to_contain_text("$")
        expect(found).to_contain_text("Overhead")
        expect(found).to_contain_text("Cache losses")
    first = live.page.locator("main .card").first
    assert first.get_attribute("aria-label") == "Saved"


def test_savings_of_a_range_of_days_are_shown_by_model_and_project(live: Window, product: Product):
    say(product, "which days?", session="ranged")
    page = pinned(live, product, "ranged").page
    card = live.card("Savings by model and project")

    expect(card.get_by_role("table", name="Model").locator("tbody tr")).to_have_count(1)
    expect(card.get_by_role("table", name="Project")).to_contain_text("not reported by the agent")
    page.get_by_label("From").fill("2020-01-01")
    page.get_by_label("to", exact=True).fill("2020-01-31")
    expect(card.get_by_text("No requests in this period.")).to_have_count(2)


def test_a_single_request_is_drawn_with_an_axis(live: Window, product: Product):
    say(product, "alone", session="single")
    page = pinned(live, product, "single").page
    expect(live.card("Tokens per request").locator("canvas")).to_be_visible()

    drawn = page.evaluate(
        """() => { const canvas = document.querySelector(".live-chart canvas");
             const below = Math.round(canvas.height * 0.9), all = canvas.getContext("2d");
             const axis = all.getImageData(0, below, canvas.width, canvas.height - below).data;
             return axis.some((value) => value > 0); }"""
    )
    assert drawn


@pytest.mark.parametrize("size", [(1280, 800), too((1440, 900)), too((3840, 2160))])
def test_the_four_questions_are_answered_without_scrolling(
    windows: Windows, product: Product, told: Provider, size: tuple[int, int]
):
    told.tokens, told.status = 9_600, 200
    say(product, "is there room?", session="asked")
    with windows.opened(product.address, size=size) as window:
        page = pinned(window, product, "asked").page
        answers = [
            page.get_by_role("meter"),
            page.locator(".legend"),
            page.locator(".live-big"),
            page.locator(".banner"),
        ]
        for answer in answers:
            expect(answer.first).to_be_visible()
            box = answer.first.bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= size[1]


def test_the_gauge_and_the_parts_are_those_of_the_newest_request(live: Window, product: Product, told: Provider):
    told.tokens = 4_200
    say(product, "how full is it?", session="measured")
    page = pinned(live, product, "measured").page
    metrics = product.get("/api/sessions/measured/metrics?limit=1")["metrics"]
    assert isinstance(metrics, list)

    expect(page.get_by_role("meter")).to_have_attribute("aria-valuenow", "42")
    expect(page.locator(".live-under")).to_have_text("4,200 of 10 k tokens · 5,800 free")
    for part in ("System", "Memory", "Tools", "Chat"):
        row = live.card("What fills it").locator(".legend-row", has_text=part)
        expect(row.locator(".legend-value")).to_have_text(f"{metrics[0][f'{part.lower()}_tokens']:,}")


def test_tokens_and_cost_are_drawn(live: Window, product: Product):
    for turn in range(3):
        say(product, f"draw {turn}", session="drawn")
    page = pinned(live, product, "drawn").page

    for title in ("Tokens per request", "Cumulative cost"):
        expect(live.card(title).locator("canvas")).to_be_visible()
        expect(live.card(title).locator(".chart-key", has_text="Real")).to_be_visible()
    expect(live.card("Tokens per request").locator(".chart-key", has_text="Estimated")).to_be_visible()
    expect(live.card("Cumulative cost").locator(".chart-key", has_text="Estimated")).to_have_count(0)
    expect(live.card("Cumulative cost").locator(".chart-key", has_text="Real")).to_contain_text("$0.00034")
    painted = page.evaluate(
        """[...document.querySelectorAll("canvas")].map((canvas) =>
             canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0))"""
    )
    assert painted == [True, True]


def test_the_cost_of_a_request_that_ends_after_a_later_one_is_drawn_too(live: Window, product: Product, told: Provider):
    assert say(product, "before", session="crossed") == 200
    pinned(live, product, "crossed")
    free, told.may_answer = told.may_answer, Event()
    held, before = told.may_answer, len(told.asked)
    asking = Thread(target=say, args=(product, "slow"), kwargs={"session": "crossed"})
    asking.start()
    rows = live.card(REQUESTS).locator("tbody tr", has_text="crossed")
    cost = live.card("Cumulative cost").locator(".chart-key", has_text="Real")
    try:
        expect(rows.locator(".badge.running")).to_have_count(1)
        assert within(60, lambda: len(told.asked) > before)
        told.may_answer = free
        assert say(product, "quick", session="crossed") == 200
        expect(cost).to_contain_text("$0.00023")
    finally:
        told.may_answer = free
        held.set()
        asking.join(60)

    expect(cost).to_contain_text("$0.00034")


def test_a_request_is_seen_while_it_streams_and_when_it_is_done(live: Window, product: Product, told: Provider):
    live.open("live")
    told.may_answer.clear()
    asking = Thread(target=say, args=(product, "how long is a piece of string?"), kwargs={"session": "streamed"})
    asking.start()
    row = live.card(REQUESTS).locator("tbody tr", has_text="streamed")
    try:
        expect(row.locator(".badge.running")).to_have_text("streaming")
    finally:
        told.may_answer.set()
        asking.join(60)

    expect(row.locator(".badge.ok")).to_have_text("done")


def test_requests_stay_in_place_while_somebody_points_at_them(live: Window, product: Product):
    say(product, "first", session="pointed-at")
    page = live.open("live").page
    rows = live.card(REQUESTS).locator("tbody tr")
    rows.first.hover()
    before = rows.count()
    say(product, "second", session="pointed-at")
    expect(page.get_by_text("paused while you hover")).to_be_visible()
    expect(live.card("Context window")).to_be_visible()
    assert rows.count() == before

    page.locator("h1").hover()
    expect(rows).to_have_count(before + 1)


def unfold(page: Page) -> None:
    """Show every alert, of which the worst is shown at once."""
    others = page.locator(".banners > .fold:not([open]) > summary")
    if others.count():
        others.click()


NOW = "Make room with the red button “Compress now”, or with kimi-proxy compress ses_"
LEVELS = (
    (8_000, "caution", "From 85% on, make room with the red button “Compress now”, or with kimi-proxy compress ses_"),
    (8_800, "caution", NOW),
    (9_000, "warning", NOW),
    (9_500, "critical", NOW),
)


def test_a_window_that_fills_up_is_told_with_what_to_do(live: Window, product: Product, told: Provider):
    page = live.open("live").page
    for tokens, level, what in LEVELS:
        told.tokens = tokens
        say(product, f"fill {tokens}", session=f"full-{tokens}")
        chosen(live, product, f"full-{tokens}")

        banner = page.locator(f".banner.{level}", has_text=f"The context window is {tokens // 100}% full.").filter(
            has_text=what
        )
        expect(banner).to_contain_text(f"The context window is {tokens // 100}% full.")
        expect(page.locator(f".gauge.{level}")).to_be_visible()
        unfold(page)
        banner.get_by_role("link", name="Compression").click()
        expect(page.get_by_role("heading", name="Compress this session")).to_be_visible()
        page.locator('nav li a[href="#/live"]').click()


def test_the_red_button_is_there_from_the_threshold_of_the_settings_on(
    windows: Windows, told: Provider, tmp_path: Path
):
    toml = told.toml() + "[compression]\nthreshold_percentage = 60\n"
    with started(tmp_path, toml) as product, windows.opened(product.address) as window:
        told.tokens, told.status = 6_500, 200
        say(product, "sixty", session="sixty")
        page = pinned(window, product, "sixty").page

        expect(window.card("Context window").get_by_role("button", name="Compress now")).to_be_visible()
        expect(page.locator(".gauge.ok")).to_be_visible()


def test_79_9_percent_is_not_80(live: Window, product: Product, told: Provider):
    told.tokens = 7_990
    say(product, "nearly", session="nearly")
    page = pinned(live, product, "nearly").page

    expect(page.locator(".gauge-number")).to_have_text("79%")
    expect(page.locator(".gauge.ok")).to_be_visible()


@deep("the same notice as for one's own session, which always runs")
def test_other_sessions_that_fill_up_or_fail_are_told_too(windows: Windows, told: Provider, tmp_path: Path):
    with started(tmp_path, told.toml()) as product, windows.opened(product.address) as window:
        told.tokens, told.status = 100, 200
        say(product, "fine", session="calm")
        page = pinned(window, product, "calm").page
        expect(page.locator(".banner.ok")).to_contain_text("Everything is fine.")
        told.tokens = 9_700
        say(product, "full", session="another")
        told.status = 500
        say(product, "fails", session="third")

        expect(page.get_by_text("another: the context window is 97% full.")).to_be_visible()
        page.get_by_text("1 more alert").click()
        expect(page.get_by_text("1 request of another session failed.")).to_be_visible()
        expect(page.locator(".banner.ok")).to_have_count(0)


FAILURES = (
    (401, "rejected the key"),
    (404, "does not know this model"),
    (429, "limiting requests"),
    (500, "try again"),
)


def test_a_request_that_failed_is_told_with_what_to_do(live: Window, product: Product, told: Provider):
    page = live.open("live").page
    for status, what in FAILURES:
        told.status = status
        say(product, f"please {status}", session=f"failed-{status}")
        chosen(live, product, f"failed-{status}")

        banner = page.locator(".banner.critical", has_text=f"The last request failed: refused ({status})")
        expect(banner).to_contain_text(what)


@deep("the same notice as for a request that fails, which always runs")
def test_a_provider_that_is_not_there_is_told(windows: Windows, tmp_path: Path):
    with provider() as gone:
        toml = gone.toml()
    with started(tmp_path, toml) as product, windows.opened(product.address) as window:
        say(product, "anybody?", session="alone")
        page = pinned(window, product, "alone").page

        banner = page.locator(".banner.critical", has_text="The last request failed: unreachable")
        expect(banner).to_contain_text("Check the network and the provider's base_url")


def test_a_sanitizer_that_is_off_is_told(live: Window, product: Product):
    say(product, "hello", session="calm")
    product.ask("POST", "/api/sanitizer/toggle", {"enabled": False})
    try:
        expect(pinned(live, product, "calm").page.get_by_text("The sanitizer is off.")).to_be_attached()
    finally:
        product.ask("POST", "/api/sanitizer/toggle", {"enabled": True})


@deep("it stops a server of its own, which takes seconds")
def test_a_server_that_is_gone_is_told(windows: Windows, tmp_path: Path):
    with ExitStack() as running:
        product = running.enter_context(started(tmp_path, ""))
        with windows.opened(product.address) as window:
            page = window.open("live").page
            expect(page.locator(".state.live")).to_be_visible()
            running.close()

            expect(page.locator(".banner.critical")).to_contain_text("Connection to kimi-proxy lost.")
            window.faults.clear()  # the browser tells too that nobody answers


def test_after_a_break_the_page_goes_on_where_it_left(unused: Window, product: Product):
    sockets: list[WebSocketRoute] = []

    def pass_on(socket: WebSocketRoute) -> None:
        sockets.append(socket)
        socket.connect_to_server()

    unused.page.route_web_socket("**/ws*", pass_on)
    say(product, "before", session="broken")
    page = pinned(unused, product, "broken").page
    row = unused.card(REQUESTS).locator("tbody tr", has_text="broken")
    expect(row).to_have_count(1)
    sockets[0].close(code=1012)
    say(product, "meanwhile", session="broken")

    expect(row).to_have_count(2)
    expect(page.locator(".state.live")).to_be_visible()
    assert "?since=" in sockets[1].url


@deep("it needs a server of its own; tests/api/test_live.py shows the gap itself")
def test_after_a_gap_the_page_begins_again(unused: Window, product: Product):
    sockets: list[WebSocketRoute] = []

    def pass_on(socket: WebSocketRoute) -> None:
        sockets.append(socket)
        socket.connect_to_server()

    unused.page.route_web_socket("**/ws*", pass_on)
    say(product, "whole", session="gapped")
    page = pinned(unused, product, "gapped").page
    sockets[0].send('{"type": "gap", "seq": 1, "missed": 300}')
    say(product, "again", session="gapped")

    expect(unused.card(REQUESTS).locator("tbody tr", has_text="gapped")).to_have_count(2)
    expect(page.locator(".state.live")).to_be_visible()
    assert "?since=" not in sockets[1].url


def test_a_new_title_and_a_deletion_are_seen_by_everybody(live: Window, product: Product):
    for name in ("another", "to-be-named"):
        say(product, "hello", session=name)
    page = pinned(live, product, "to-be-named").page
    product.ask("PATCH", "/api/sessions/to-be-named", {"title": "The parser"})
    expect(page.get_by_label("Session", exact=True).locator("option:checked")).to_have_text("The parser")
    product.ask("DELETE", "/api/sessions/to-be-named")

    expect(live.card(REQUESTS).locator("tbody tr", has_text="The parser")).to_have_count(0)
    expect(page.get_by_label("Session", exact=True).locator("option:checked")).to_contain_text("Busiest:")


def test_what_kimi_proxy_did_is_told_in_a_sentence(live: Window, product: Product):
    say(product, "hello", session="calm")
    page = pinned(live, product, "calm").page
    product.ask("PATCH", "/api/settings", {"sanitizer.enabled": False})
    try:
        expect(live.card("Activity")).to_contain_text("A setting was changed")
        expect(page.get_by_text("The sanitizer is off.")).to_be_attached()
    finally:
        product.ask("PATCH", "/api/settings", {"sanitizer.enabled": True})
    expect(page.get_by_text("The sanitizer is off.")).to_have_count(0)


def test_the_view_follows_the_busiest_until_one_is_pinned(live: Window, product: Product):
    for name, times in (("idle", 1), ("busy", 6)):
        for turn in range(times):
            say(product, f"{name} {turn}", session=name)
    picker = live.open("live").page.get_by_label("Session", exact=True)
    expect(picker.locator("option:checked")).to_contain_text("Busiest:")

    picker.select_option(label="idle")
    live.page.reload()
    expect(picker.locator("option:checked")).to_have_text("idle")
    live.button("Follow the busiest session again").click()
    expect(picker.locator("option:checked")).to_contain_text("Busiest:")


def test_choosing_a_session_changes_nothing_in_the_traffic(live: Window, product: Product, told: Provider):
    say(product, "one", session="chosen")
    pinned(live, product, "chosen")
    say(product, "two", session="unchosen")
    say(product, "three of nobody in particular")

    counts = {name: product.get(f"/api/sessions/{name}")["requests"] for name in ("chosen", "unchosen")}
    assert counts == {"chosen": 1, "unchosen": 1}
    assert told.asked[-1]["messages"] == [{"role": "user", "content": "three of nobody in particular"}]


@deep("it opens every view once more for each width")
@pytest.mark.parametrize("width", [320, too(390), too(768)])
def test_it_fits_on_small_screens(windows: Windows, product: Product, width: int):
    with windows.opened(product.address, size=(width, 740)) as window:
        page = window.open("live").page
        expect(page.get_by_role("meter")).to_be_visible()

        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_everything_on_a_phone_can_be_touched_and_no_table_is_cut_off(windows: Windows, product: Product):
    say(product, "small", session="touched")
    with windows.opened(product.address, size=(390, 844)) as window:
        page = pinned(window, product, "touched").page
        expect(window.card(REQUESTS).locator("tbody tr").first).to_be_visible()
        for view in ("live", "sessions"):
            page.locator(f'nav li a[href="#/{view}"]').click()
            expect(page.get_by_role("heading", name=view.title(), level=1)).to_be_visible()
            expect(page.locator("tbody tr").first).to_be_visible()
            small = page.evaluate(
                """[...document.querySelectorAll("main :is(button, select, input, summary, td a)")]
                     .filter((each) => each.checkVisibility())
                     .map((each) => [each.outerHTML.slice(0, 80), each.getBoundingClientRect()])
                     .filter(([, box]) => box.width < 24 || box.height < 24).map(([text]) => text)"""
            )
            assert small == []
            frames = page.evaluate(
                """[...document.querySelectorAll(".table-frame")]
                     .filter((each) => each.scrollWidth > each.clientWidth + 1).length"""
            )
            assert frames == 0
        for label in ("Session", "Model", "Money saved"):
            expect(page.locator("tbody tr").first.locator(f'td[data-label="{label}"]')).to_be_visible()


PAINTED = """const paint = CanvasRenderingContext2D.prototype.fillText;
window.painted = [];
CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
  window.painted.push(text);
  paint.call(this, text, ...where);
};"""


def test_a_single_request_has_its_own_minute_under_the_chart(windows: Windows, product: Product):
    say(product, "alone", session="alone")
    with windows.opened(product.address) as window:
        window.page.add_init_script(PAINTED)
        page = pinned(window, product, "alone").page
        page.wait_for_function("painted.some((text) => /^\\d\\d:\\d\\d:\\d\\d$/.test(text))")
        times = page.evaluate("painted.filter((text) => /^\\d\\d:\\d\\d:\\d\\d$/.test(text))")

    assert len(set(times)) > 1, times


def test_the_list_of_requests_fits_on_a_phone_while_it_pauses(windows: Windows, product: Product):
    say(product, "phone", session="phone")
    with windows.opened(product.address, locale="fr-FR", size=(390, 844)) as window:
        page = pinned(window, product, "phone").page
        page.locator(".live-requests tbody tr").first.hover()
        expect(page.get_by_text("en pause pendant le survol")).to_be_visible()

        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_sessions_are_picked_only_where_one_is_shown(live: Window, product: Product):
    say(product, "which?", session="picked")
    page = pinned(live, product, "picked").page
    page.locator('nav li a[href="#/settings"]').click()
    expect(page.get_by_role("heading", name="Settings", level=1)).to_be_visible()

    expect(page.locator(".picker")).to_have_count(0)
