"""The red button: closed under 85 %, shown before it is done, and taken back."""

import re

from tests.browser.product import Product, exchanges
from tests.browser.window import Window


def opened(window: Window, session: str) -> Window:
    page = window.open("live").page
    page.get_by_role("button", name=session).first.click()
    window.open("compression")
    page.locator("#compression-why").wait_for()
    return window


def test_below_the_threshold_the_button_is_closed_and_says_why(window: Window):
    opened(window, "Release notes for Thursday")

    assert window.button("Compress now").is_disabled()
    assert re.search(r"Below 85\s?%", window.page.locator("#compression-why").inner_text())


def test_a_full_window_is_compressed_and_taken_back(window: Window, shop: Product):
    assert shop.chat("red", exchanges(9, 2200)) == 200
    page = opened(window, "red").page

    window.button("Simulate").click()
    page.get_by_role("dialog").get_by_text("nothing has changed").wait_for()
    window.button("Close").last.click()
    assert shop.get("/api/compress/red/stats")["active"] is None

    window.button("Compress now").click()
    page.get_by_role("dialog").get_by_role("button", name="Compress", exact=True).click()
    page.get_by_text("This session is compressed.").wait_for()
    page.locator("tbody tr", has_text="in force").wait_for()
    assert shop.get("/api/compress/red/stats")["active"] is not None

    window.button("Undo the last").click()
    page.locator("tbody tr", has_text="undone").wait_for()
    assert shop.get("/api/compress/red/stats")["active"] is None
