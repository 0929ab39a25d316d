"""A day as the first screen tells it."""

import re

from tests.browser.window import Window


def test_the_day_is_listed_request_by_request(window: Window):
    page = window.open("live").page
    card = window.card("Requests as they stream")
    card.locator("tbody tr").nth(10).wait_for()

    assert "demo/apprentice" in card.locator("tbody td:nth-child(3)").all_inner_texts()
    page.get_by_label("only this session").check()
    assert len(set(card.locator("tbody td:nth-child(3)").all_inner_texts())) == 1


def test_a_day_with_a_compression_has_saved_more_than_it_sent(window: Window):
    page = window.open("live").page
    page.get_by_role("button", name="A cent is missing from invoice 1147").first.click()

    assert re.search(r"[\d.,]+\s?k\s+tokens in this session", window.card("What did I save?").inner_text())
    assert all(part in window.card("What fills it?").inner_text() for part in ("System", "Memory", "Tools", "Chat"))
