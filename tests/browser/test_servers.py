"""MCP servers: how they are, and started again."""

import re

from tests.support.browser.product import Product
from tests.support.browser.window import Window

DESK = "ticket-desk"


def test_the_desk_has_answered_and_what_was_masked_is_counted(window: Window):
    card = window.open("servers").card(DESK)
    card.get_by_text("Ready").wait_for()

    told = card.inner_text()
    assert re.search(r"Tools\s+2", told)
    assert re.search(r"Calls\s+2", told)
    assert re.search(r"2 texts, [\d.]+ kB", told)


def test_it_is_restarted(window: Window, shop: Product):
    def pid() -> object:
        servers = shop.get("/api/mcp/servers")["servers"]
        assert isinstance(servers, list)
        return next(server["pid"] for server in servers if server["name"] == DESK)  # type: ignore[index,call-overload]

    before = pid()
    card = window.open("servers").card(DESK)
    card.get_by_role("button", name="Restart").click()
    card.get_by_text("Restarting…").wait_for(state="detached")
    card.get_by_text("Ready").wait_for()

    assert pid() != before


def test_its_log_is_shown(window: Window):
    page = window.open("servers").page
    page.get_by_role("button", name=f"Log: {DESK}").click()
    dialog = page.get_by_role("dialog", name=f"Log of {DESK}")
    dialog.wait_for()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def test_what_is_switched_off_is_named(window: Window):
    window.open("servers").page.get_by_text(re.compile("Disabled:.*task-master")).wait_for()


def test_it_speaks_french(fenetre: Window):
    fenetre.open("servers").card(DESK).get_by_text("Prêt").wait_for()

    assert "Redémarrer" in fenetre.text
