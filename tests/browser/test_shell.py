"""The frame around the views: languages, themes, the keyboard, the token, and views that are not there."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.support.browser.product import Product, started
from tests.support.browser.window import Window, Windows
from tests.support.deep import deep, too

VIEWS = ("live", "sessions", "map", "cuts", "compression", "playground", "servers", "settings")
TOKEN = "a-token/that+is-long-enough"


@pytest.fixture(scope="module")
def product(windows: Windows, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with started(tmp_path_factory.mktemp("shell"), "") as product:
        yield product


@pytest.fixture(scope="module")
def guarded(windows: Windows, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with started(tmp_path_factory.mktemp("guarded"), "", KIMI_PROXY_TOKEN=TOKEN) as product:
        yield product


@pytest.fixture
def shell(windows: Windows, product: Product) -> Iterator[Window]:
    with windows.opened(product.address) as window:
        yield window


def ground(page: Page) -> str:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


@deep("a detail of the frame around all views, which each test in the browser opens")
@pytest.mark.parametrize("locale", [too("en-GB"), "fr-CA", too("de-DE")])
def test_every_view_opens_in_the_language_of_the_browser(windows: Windows, product: Product, locale: str):
    language = "fr" if locale.startswith("fr") else "en"
    with windows.opened(product.address, locale=locale) as window:
        for view in VIEWS:
            page = window.open(view).page
            expect(page.locator("html")).to_have_attribute("lang", language)
            expect(page.locator(f'nav li a[href="#/{view}"]')).to_have_attribute("aria-current", "page")
            title = page.locator("h1").inner_text()
            assert page.title() == f"{title} · kimi-proxy"


def test_a_language_that_was_chosen_stays_chosen(shell: Window):
    page = shell.open("sessions").page
    page.get_by_label("Language").select_option("fr")
    expect(page.get_by_role("heading", name="Toutes les sessions")).to_be_visible()

    page.reload()
    expect(page.get_by_role("heading", name="Toutes les sessions")).to_be_visible()
    page.get_by_label("Langue").select_option("en")
    expect(page.get_by_role("heading", name="All sessions")).to_be_visible()


@deep("a detail of the frame around all views, which each test in the browser opens")
def test_a_theme_that_was_chosen_stays_chosen_and_never_flashes(shell: Window):
    page = shell.open("live").page
    light = ground(page)
    page.get_by_label("Theme").select_option("dark")
    dark = ground(page)
    assert dark != light

    page.add_init_script(
        """new MutationObserver(() => {
             if (!document.body || window.firstGround) return;
             window.firstGround = getComputedStyle(document.body).backgroundColor;
           }).observe(document, {childList: true, subtree: true});"""
    )
    page.reload()
    expect(page.locator("h1")).to_be_visible()
    assert page.evaluate("window.firstGround") in (dark, "rgba(0, 0, 0, 0)")
    assert ground(page) == dark


@deep("a detail of the frame around all views, which each test in the browser opens")
def test_the_system_theme_is_followed_as_it_changes(shell: Window):
    page = shell.open("live").page
    light = ground(page)
    page.emulate_media(color_scheme="dark")

    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert ground(page) != light


def test_the_keyboard_reaches_everything_and_can_skip_the_navigation(shell: Window):
    page = shell.open("live").page
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    assert page.url.endswith("#/live")

    page.get_by_text("Skip to the content").focus()
    for _ in range(3):  # the brand, Live, Sessions
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="All sessions")).to_be_visible()


@deep("a detail of the frame around all views, which each test in the browser opens")
def test_an_address_that_leads_nowhere_shows_the_first_view(shell: Window):
    for path in ("nowhere", "%E0%A4%A", "../../etc/passwd", "live/%00"):
        shell.page.goto(f"{shell.address}/#/{path}")
        expect(shell.page.locator('nav li a[href="#/live"]')).to_have_attribute("aria-current", "page")


def _replace_view(page: Page, name: str, body: str) -> None:
    """Let a view's module be something else."""
    page.route(f"**/dashboard/views/{name}.js", lambda route: route.fulfill(content_type="text/javascript", body=body))


@deep("a detail of the frame around all views, which each test in the browser opens")
def test_a_view_that_is_not_there_says_so_and_the_others_go_on(shell: Window):
    page = shell.page
    _replace_view(page, "playground", "throw new Error('it is not there');")
    page.goto(f"{shell.address}/#/playground")

    expect(page.get_by_text("This view is not available in this version.")).to_be_visible()
    page.get_by_role("link", name="Sessions").click()
    expect(page.get_by_role("heading", name="All sessions")).to_be_visible()


def test_a_view_with_a_fault_says_so_and_the_others_go_on(shell: Window):
    page = shell.page
    _replace_view(page, "settings", 'export function View() { throw new Error("a fault"); }')
    page.goto(f"{shell.address}/#/settings")

    expect(page.get_by_text("This view failed: a fault")).to_be_visible()
    page.get_by_role("link", name="Sessions").click()
    expect(page.get_by_role("heading", name="All sessions")).to_be_visible()
    shell.faults.clear()


@deep("a detail of the frame around all views, which each test in the browser opens")
def test_a_route_that_the_server_lacks_is_told(shell: Window):
    missing = {"error": {"code": "not_found", "message": "there is nothing at this path"}}
    shell.page.route("**/api/mcp/servers", lambda route: route.fulfill(status=404, json=missing))

    expect(shell.open("servers").page.get_by_text("Not available on this server.")).to_be_visible()


def test_a_server_with_a_token_asks_for_it_and_opens(windows: Windows, guarded: Product):
    with windows.opened(guarded.address) as window:
        page = window.page
        page.goto(guarded.address)
        dialog = page.get_by_role("dialog", name="This server requires a token")
        dialog.get_by_label("Token").fill("wrong")
        dialog.get_by_role("button", name="Enter").click()
        expect(dialog.get_by_role("alert")).to_have_text("The server rejected the token.")

        dialog.get_by_label("Token").fill(TOKEN)
        dialog.get_by_role("button", name="Enter").click()
        expect(page.locator(".state.live")).to_be_visible()
        expect(dialog).to_have_count(0)
        window.open("sessions")
        with page.expect_download() as download:
            window.button("CSV").click()
        assert download.value.path().read_text("utf-8").startswith("id,session_id")
        window.faults.clear()  # a socket that is refused is told to the console


@deep("a detail of the frame around all views, which each test in the browser opens")
def test_a_text_is_copied_also_where_the_browser_has_no_clipboard_for_pages(windows: Windows, shop: Product):
    with windows.opened(shop.address) as window:
        page = window.page
        page.add_init_script("delete Navigator.prototype.clipboard")
        window.open("map")
        page.locator(".message-row button").first.click()
        window.button("Copy").first.click()

        expect(page.get_by_text("Copied")).to_be_visible()
        expect(page.locator("textarea")).to_have_count(0)


@deep("a detail of the frame around all views, which each test in the browser opens")
def test_the_question_for_the_token_cannot_be_waved_away(windows: Windows, guarded: Product):
    with windows.opened(guarded.address) as window:
        page = window.page
        page.goto(guarded.address)
        dialog = page.get_by_role("dialog", name="This server requires a token")
        expect(dialog).to_be_visible()
        for _ in range(3):  # a browser lets a page refuse this only once
            page.keyboard.press("Escape")
        expect(dialog).to_be_visible()

        # No header can carry this one, so that the server never sees it.
        dialog.get_by_label("Token").fill("“a-token”")
        dialog.get_by_role("button", name="Enter").click()
        expect(dialog.get_by_role("alert")).to_have_text("The server rejected the token.")
        dialog.get_by_label("Token").fill(TOKEN)
        dialog.get_by_role("button", name="Enter").click()
        expect(page.locator(".state.live")).to_be_visible()
        window.faults.clear()  # a socket that is refused is told to the console


@deep("a detail of the frame around all views, which each test in the browser opens")
def test_a_view_that_was_never_opened_opens_while_the_server_is_away(shell: Window):
    page = shell.open("sessions").page
    page.route("**/dashboard/**", lambda route: route.abort())
    page.evaluate("location.hash = '#/servers'")

    expect(page.get_by_role("heading", name="MCP servers")).to_be_visible()


@deep("a detail of the frame around all views, which each test in the browser opens")
def test_a_text_that_cannot_be_copied_is_told(shell: Window):
    page = shell.open("playground").page
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); }")
    shell.button("Copy as curl").click()

    expect(page.get_by_text("Copy failed")).to_be_visible()


@deep("a detail of the frame around all views, which each test in the browser opens")
def test_a_dialog_stays_when_a_selection_ends_outside_of_it(windows: Windows, shop: Product):
    with windows.opened(shop.address) as window:
        page = window.open("sessions").page
        page.get_by_role("button", name="Rename").first.click()
        field = page.get_by_role("textbox", name="Title", exact=True)
        field.fill("a title of some length")
        place = field.bounding_box()
        assert place is not None
        page.mouse.move(place["x"] + 60, place["y"] + place["height"] / 2)
        page.mouse.down()
        page.mouse.move(4, 4)
        page.mouse.up()
        expect(field).to_have_value("a title of some length")

        page.mouse.click(4, 4)
        expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("locale", [too("en-GB"), "fr-FR"])
def test_every_view_fits_on_the_smallest_phone(windows: Windows, shop: Product, locale: str):
    with windows.opened(shop.address, locale=locale, size=(320, 640)) as window:
        wide = {}
        for view in VIEWS:
            page = window.open(view).page
            page.wait_for_load_state("networkidle")
            page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
            wide[view] = page.evaluate("document.documentElement.scrollWidth")

        assert {view: width for view, width in wide.items() if width > 320} == {}


@deep("a detail of the frame around all views, which each test in the browser opens")
def test_an_answer_that_is_not_kimi_proxys_is_no_answer(windows: Windows, shop: Product):
    with windows.opened(shop.address) as window:
        page = window.page
        page.route(
            "**/api/**", lambda route: route.fulfill(content_type="text/html", body="<h1>Log in to the net</h1>")
        )
        for view in ("sessions", "map", "cuts", "servers", "settings"):
            page.goto(f"{window.address}/#/{view}")
            expect(page.get_by_text("kimi-proxy is not responding.")).to_be_visible()
        window.open("live")
