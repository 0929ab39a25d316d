"""What the server says is told in the viewer's language, by its code; words that nobody knows stay the server's own."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Page, expect
from tests.support.browser.product import Product, started
from tests.support.browser.provider import Provider, provider, say
from tests.support.browser.window import Window, Windows
from tests.support.deep import too

BROKEN = f"""
[mcp.servers.broken]
command = {str(sys.executable)!r}
args = ["-c", "import sys; sys.exit('no configuration here')"]
"""


@dataclass(frozen=True)
class Language:
    """What is told, in the words of one language."""

    locale: str
    nothing: str
    simulate: str
    too_short: str
    server: str
    server_failed: str
    said: str
    switch: str
    problem: str
    gone: str


ENGLISH = Language(
    locale="en-GB",
    nothing="nothing in it was long enough to be worth cutting.",
    simulate="Simulate",
    too_short="Failed: the history before the last exchanges is too short to compress",
    server="Last failure: the upstream server cannot be reached.",
    server_failed="broken failed: the upstream server cannot be reached",
    said="Server message",
    switch="Shorten long tool results",
    problem="The configuration file contains an invalid setting: fix it first.",
    gone="Failed: this session no longer exists",
)
FRENCH = Language(
    locale="fr-FR",
    nothing="rien n’y était assez long pour être coupé.",
    simulate="Simuler",
    too_short="Échec : l’historique avant les derniers échanges est trop court pour être compressé",
    server="Dernier échec : le serveur en amont est injoignable.",
    server_failed="broken a échoué : le serveur en amont est injoignable",
    said="Message du serveur (en anglais)",
    switch="Raccourcir les longs résultats d’outils",
    problem="Le fichier de configuration contient un réglage non valide : corrigez-le d’abord.",
    gone="Échec : cette session n’existe plus",
)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Provider]:
    with provider() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def product(windows: Windows, upstream: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with started(tmp_path_factory.mktemp("words"), upstream.toml() + BROKEN) as product:
        assert say(product, "Good morning", session="short") == 200
        yield product


@pytest.fixture(scope="module", params=[too(ENGLISH), FRENCH], ids=["en", "fr"])
def language(request: pytest.FixtureRequest) -> Language:
    found: Language = request.param
    return found


@pytest.fixture(scope="module")
def page(windows: Windows, product: Product, language: Language) -> Iterator[Page]:
    with windows.opened(product.address, locale=language.locale) as window:
        yield window.page


def opened(page: Page, product: Product, view: str) -> Page:
    Window(page, product.address).open(view)
    return page


def test_why_nothing_was_done(page: Page, product: Product, language: Language):
    expect(opened(page, product, "live").get_by_text(language.nothing)).to_be_visible()


def test_why_a_history_is_not_compressed(page: Page, product: Product, language: Language):
    opened(page, product, "compression").get_by_role("button", name=language.simulate).click()

    expect(page.get_by_role("dialog").get_by_role("alert")).to_have_text(language.too_short)


def test_what_is_wrong_with_an_mcp_server_and_what_it_said_itself(page: Page, product: Product, language: Language):
    card = opened(page, product, "servers").get_by_role("region", name="broken", exact=True)
    expect(card.get_by_text(language.server)).to_be_visible()
    expect(card.get_by_text("no configuration here")).to_be_hidden()
    card.get_by_text(language.said).click()

    expect(card.get_by_text("no configuration here")).to_be_visible()


def test_a_call_that_an_mcp_server_did_not_answer(page: Page, product: Product, language: Language):
    opened(page, product, "live")
    expect(page.locator(".state.live")).to_be_visible()
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    product.ask("POST", "/api/mcp/servers/restart", {"names": ["broken"]})
    product.ask("POST", "/api/mcp-gateway/broken/rpc", call)

    expect(page.get_by_text(language.server_failed).first).to_be_visible()


def test_why_a_setting_could_not_be_written_down(page: Page, product: Product, language: Language):
    file = product.home / "config.toml"
    before = file.read_text("utf-8")
    file.write_text("[sanitizer]\nnonsense = 1\n", "utf-8")
    try:
        opened(page, product, "settings").get_by_role("switch", name=language.switch).click()
        expect(page.get_by_text(language.problem)).to_be_visible()
        page.get_by_text(language.said).click()
        expect(page.get_by_text("sanitizer.nonsense")).to_be_visible()
    finally:
        product.ask("PATCH", "/api/settings", {"sanitizer.enabled": True})
        file.write_text(before, "utf-8")


def test_a_session_that_somebody_else_deleted(page: Page, product: Product, language: Language, upstream: Provider):
    name = f"gone-{language.locale}"
    assert say(product, "Good evening", session=name) == 200
    opened(page, product, "sessions").get_by_role("button", name=name).nth(1).click()  # rename
    product.ask("DELETE", "/api/sessions", {"ids": [str(product.get(f"/api/sessions/{name}")["id"])]})
    page.get_by_role("dialog").locator("button[type=submit]").click()

    expect(page.get_by_role("dialog").get_by_role("alert")).to_have_text(language.gone)


def test_a_code_that_the_page_does_not_know_is_told_in_the_servers_words(
    page: Page, product: Product, language: Language
):
    words = "a thing that this page was never told of"
    answer = {"error": {"code": "of_tomorrow", "message": words}}
    page.route("**/api/mcp/servers", lambda route: route.fulfill(status=400, json=answer))

    expect(opened(page, product, "servers").get_by_role("alert")).to_contain_text(words)
    page.unroute("**/api/mcp/servers")
