"""The red button: closed under 85 %, shown before it is done, and taken back."""

import re

from playwright.sync_api import expect
from tests.support.browser.product import INVOICE, NOTES, Product, exchanges
from tests.support.browser.window import Window


def opened(window: Window, session: str) -> Window:
    page = window.open("live").page
    page.get_by_role("button", name=session).first.click()
    window.open("compression")
    page.locator("#compression-why").wait_for()
    return window


def test_below_the_threshold_the_button_is_closed_and_says_why(window: Window):
    opened(window, NOTES)

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
    page.locator(".past li", has_text="active").wait_for()
    assert shop.get("/api/compress/red/stats")["active"] is not None

    window.button("Undo the last compression").click()
    page.locator(".past li", has_text="undone").wait_for()
    assert shop.get("/api/compress/red/stats")["active"] is None


def test_from_the_threshold_on_the_red_button_stands_beside_the_gauge(window: Window, shop: Product):
    """And one's own session comes first among the alerts, although another one is fuller."""
    assert shop.chat("gauge-own", exchanges(8, 2270)) == 200
    assert shop.chat("gauge-other", exchanges(8, 2430)) == 200
    page = window.open("live").page
    page.get_by_role("button", name="gauge-own").first.click()
    card = page.locator("#live-window, [data-name=live-window], .card", has=page.get_by_role("meter")).first

    expect(page.locator(".banners .banner").first).to_contain_text(re.compile(r"8\d(\.\d)?\s?%"))
    card.get_by_role("button", name="Compress now").click()
    page.get_by_role("dialog").get_by_role("button", name="Compress", exact=True).click()
    expect(card).to_contain_text("Compressed.")
    assert shop.get("/api/compress/gauge-own/stats")["active"] is not None


def test_each_compression_of_the_past_unfolds_to_its_summary(window: Window, shop: Product):
    page = opened(window, INVOICE).page
    entry = page.locator(".past li").first
    expect(entry.locator("summary")).to_contain_text(re.compile(r"manual\s*[\d.]+\s?k → [\d.]+\s?k tokens"))
    expect(entry.locator("pre")).to_be_hidden()
    entry.locator("summary").press("Enter")

    told = entry.get_by_role("region", name="Summary sent instead of the old messages")
    expect(told.locator("pre")).to_contain_text("Goal: mend the VAT of invoices")
    expect(told).to_contain_text("written by the model")
    facts = " ".join(entry.locator(".facts").inner_text().split())
    assert re.search(r"Before 1\d,\d{3} tokens After 1\d,\d{3} tokens Messages replaced \d+ State active", facts)
    told.get_by_role("link", name="The original messages").click()
    expect(page.get_by_role("region", name="Original", exact=True)).to_contain_text("A customer says that invoice 1147")


def test_one_that_was_undone_says_when_in_french(fenetre: Window, shop: Product):
    assert shop.chat("rouge", exchanges(9, 2200)) == 200
    assert shop.ask("POST", "/api/compress/rouge", {"force": True}).status_code == 200
    assert shop.ask("POST", "/api/compress/rouge/undo").status_code == 200
    entry = opened(fenetre, "rouge").page.locator(".past li").first
    expect(entry.locator("summary")).to_contain_text("manuelle")
    entry.locator("summary").click()

    expect(entry.locator(".facts")).to_contain_text(re.compile(r"annulée à \d\d:\d\d:\d\d"))
    expect(
        entry.get_by_role("region", name="Résumé envoyé à la place des anciens messages").locator("pre")
    ).not_to_be_empty()


def test_one_that_was_undone_twice_in_haste_is_undone_once(window: Window, shop: Product):
    assert shop.chat("haste", exchanges(9, 2200)) == 200
    assert shop.ask("POST", "/api/compress/haste", {"force": True}).status_code == 200
    page = opened(window, "haste").page
    window.button("Undo the last compression").dblclick()

    expect(page.locator(".past li", has_text="undone")).to_be_visible()
    expect(page.locator(".failure")).to_have_count(0)
