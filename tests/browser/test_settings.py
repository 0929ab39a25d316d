"""Settings: switched at once, written into the file with its comments kept, secrets never shown."""

from pathlib import Path

from playwright.sync_api import WebSocketRoute, expect
from tests.support.browser.product import Product, started
from tests.support.browser.window import Window, Windows
from tests.support.deep import deep

SANITIZER = "Shorten long tool results"
TOML = """\
# ours since March
[sanitizer]
enabled = true  # ask before you change this

[log]
level = "warning"
"""


def test_a_switch_counts_at_once_and_the_file_keeps_its_comments(windows: Windows, tmp_path: Path):
    with started(tmp_path, TOML) as product, windows.opened(product.address) as window:
        switch = window.open("settings").page.get_by_role("switch", name=SANITIZER)
        switch.wait_for()
        assert switch.is_checked()
        switch.click()
        window.page.get_by_text("Saved.", exact=True).wait_for()

        assert product.get("/api/sanitizer/stats")["enabled"] is False
        assert (tmp_path / "config.toml").read_text() == TOML.replace("enabled = true", "enabled = false")

        (tmp_path / "config.toml").write_text("[sanitizer]\nnonsense = 1\n")
        switch.click()
        window.page.get_by_text("Lost at the next restart.").wait_for()
        assert product.get("/api/sanitizer/stats")["enabled"] is True
        assert "nonsense" in (tmp_path / "config.toml").read_text()


@deep("two windows; tests/api/test_settings.py shows the same switches")
def test_every_switch_is_named_and_another_window_follows(window: Window, windows: Windows, shop: Product):
    page = window.open("settings").page
    page.get_by_role("switch").first.wait_for()
    names = page.locator(".switch label").all_inner_texts()
    assert len(names) >= 4
    assert not [name for name in names if "." in name]  # each has words of its own, not its key

    automatic = page.get_by_role("switch", name="Compress automatic")
    with windows.opened(shop.address) as other:
        other.open("settings").page.get_by_role("switch", name="Compress automatic").click()
        page.locator(".switch", has_text="Compress automatic").get_by_text("On", exact=True).wait_for()
        other.page.get_by_role("switch", name="Compress automatic").click()
        page.locator(".switch", has_text="Compress automatic").get_by_text("Off", exact=True).wait_for()
    assert not automatic.is_checked()


def test_what_is_in_force_is_shown_and_no_secret(window: Window):
    page = window.open("settings").page
    page.get_by_text("[sanitizer]").click()
    page.get_by_text("threshold_tokens").wait_for()

    assert "KIMI_API_KEY Not set" in " ".join(page.locator(".secrets").inner_text().split())
    assert "config.toml" in window.card("All settings").inner_text()


def test_it_speaks_french(fenetre: Window):
    fenetre.open("settings").page.get_by_role("switch", name="Raccourcir les longs résultats d’outils").wait_for()

    assert "Fonctionnalités" in fenetre.text


@deep("two windows; tests/api/test_settings.py shows the same switches")
def test_after_a_gap_switches_stand_as_they_are_now(windows: Windows, shop: Product):
    sockets: list[WebSocketRoute] = []

    def pass_on(socket: WebSocketRoute) -> None:
        sockets.append(socket)
        if len(sockets) > 1:
            socket.connect_to_server()

    with windows.opened(shop.address) as window:
        page = window.page
        page.route_web_socket("**/ws*", pass_on)
        switch = window.open("settings").page.locator(".switch input").first
        name = str(page.locator(".switch code").first.inner_text())
        before = switch.is_checked()
        shop.ask("PATCH", "/api/settings", {name: not before})
        try:
            sockets[0].close(code=1012)
            expect(switch).to_be_checked(checked=not before)
        finally:
            shop.ask("PATCH", "/api/settings", {name: before})
