"""The first screen: how full, what fills it, what was saved, is anything wrong."""

import re
from pathlib import Path

from tests.browser.product import Product, exchanges, started
from tests.browser.window import Window, Windows

QUESTIONS = ("How full is the window?", "What fills it?", "What did I save?")


def pinned(window: Window, title: str) -> Window:
    page = window.open("live").page
    page.get_by_role("combobox", name="Session", exact=True).wait_for()
    page.get_by_role("button", name=title).first.click()
    return window


def test_four_questions_are_answered_without_scrolling(window: Window):
    pinned(window, "A cent is missing from invoice 1147")
    page = window.page

    for question in QUESTIONS:
        card = window.card(question)
        box = card.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900, f"{question} is below the fold"
    assert re.search(r"\d+%", window.card(QUESTIONS[0]).inner_text())
    assert re.search(r"of 21\.5\s?k tokens", window.card(QUESTIONS[0]).inner_text())
    assert all(part in window.card(QUESTIONS[1]).inner_text() for part in ("System", "Memory", "Tools", "Chat"))
    assert re.search(r"[\d.,]+\s?k\s+tokens in this session", window.card(QUESTIONS[2]).inner_text())
    assert page.locator(".banners .banner").first.is_visible()


def test_the_day_is_listed_request_by_request(window: Window):
    page = window.open("live").page
    card = window.card("Requests as they stream")
    card.locator("tbody tr").nth(10).wait_for()

    listed = card.inner_text()
    assert {model for model in ("demo/apprentice", "demo/scribe", "demo/journeyman") if model in listed} >= {
        "demo/apprentice",
        "demo/scribe",
    }
    page.get_by_label("only this session").check()
    assert len(set(card.locator("tbody td:nth-child(3)").all_inner_texts())) == 1


def test_a_request_is_seen_as_it_passes(window: Window, shop: Product):
    page = window.open("live").page
    page.get_by_text("Connected").wait_for()

    assert shop.chat("watched", [{"role": "user", "content": "Who is there?"}]) == 200

    page.get_by_role("button", name="watched").first.wait_for()


def test_a_window_that_fills_up_raises_an_alert_with_what_to_do(window: Window, shop: Product):
    assert shop.chat("nearly-full", exchanges(9, 2200)) == 200
    page = pinned(window, "nearly-full").page
    banner = page.locator(".banner", has_text="full").first
    banner.wait_for()

    banner.get_by_role("link").first.click()
    page.get_by_role("heading", name="Compression").wait_for()


def test_a_failed_request_is_told_with_what_to_do(windows: Windows, tmp_path: Path):
    nobody = '[providers.nobody]\nbase_url = "http://127.0.0.1:9/v1"\n'
    with started(tmp_path, nobody) as product, windows.opened(product.address) as window:
        page = window.open("live").page
        page.get_by_text("Nothing has passed through yet").wait_for()
        assert product.chat("lost", [{"role": "user", "content": "Hello?"}], model="m") == 502

        banner = page.locator(".banner", has_text="The last request failed")
        banner.wait_for()
        assert len(banner.inner_text().split()) > 8


def test_doing_nothing_says_why(window: Window, shop: Product):
    assert shop.chat("short", [{"role": "user", "content": "Hello."}]) == 200
    pinned(window, "short")

    window.card("What did I save?").get_by_text("Last request left as it was:").wait_for()
