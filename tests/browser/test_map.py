"""The context map: the last request to scale, with what became of each message."""

from tests.browser.window import Window


def opened(window: Window) -> Window:
    page = window.open("live").page
    page.get_by_role("button", name="A cent is missing from invoice 1147").first.click()
    window.open("map")
    page.locator(".message-row").first.wait_for()
    return window


def test_messages_are_drawn_with_their_share(window: Window):
    page = opened(window).page

    assert page.locator(".strip-piece").count() > 10
    assert "compressed" in window.text
    assert "memory" in window.text
    widths = page.evaluate("[...document.querySelectorAll('.strip-piece')].map((each) => parseFloat(each.style.width))")
    shares = sum(widths)
    assert 30 < shares < 60  # of the window; after the day it is about half full


def test_a_message_tells_what_was_sent_and_what_it_was(window: Window):
    page = opened(window).page
    page.locator(".message-row button", has_text="KIMI_PROXY_HISTORY_SUMMARIZED").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("As it was sent").wait_for()

    assert "mend the VAT of invoices" in dialog.inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
