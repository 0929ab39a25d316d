"""A day as the first screen tells it."""

import re
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import expect
from tests.support.browser.product import INVOICE, Product, demo
from tests.support.browser.window import Window, Windows
from tests.support.deep import deep

from kimi_proxy.core.json import JsonValue


def test_the_day_is_listed_request_by_request(window: Window):
    page = window.open("live").page
    card = window.card("Live requests")
    card.locator("tbody tr").nth(10).wait_for()

    assert "demo/apprentice" in card.locator("tbody td:nth-child(3)").all_inner_texts()
    page.get_by_label("only this session").check()
    assert len(set(card.locator("tbody td:nth-child(3)").all_inner_texts())) == 1


def test_a_day_with_a_compression_has_saved_more_than_it_sent(window: Window):
    page = window.open("live").page
    page.get_by_role("button", name=INVOICE).first.click()

    assert re.search(r"[\d.,]+\s?k\s+tokens in this session", window.card("Savings").inner_text())
    assert all(part in window.card("What fills it").inner_text() for part in ("System", "Memory", "Tools", "Chat"))


def test_no_table_of_the_first_screen_is_cut_off_in_french(windows: Windows, shop: Product):
    with windows.opened(shop.address, locale="fr-FR", size=(1280, 900)) as window:
        page = window.open("live").page
        page.locator(".live-range tbody tr").nth(2).wait_for()
        cut_off = """[...document.querySelectorAll(".table-frame")]
            .filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.innerText)"""

        assert page.evaluate(cut_off) == []


def test_what_the_memory_server_answers_is_the_violet_part_of_the_bar(window: Window, shop: Product):
    call: JsonValue = {"id": "c1", "type": "function", "function": {"name": "read_graph", "arguments": "{}"}}
    graph = '{"entities": [{"name": "importer", "observations": ["is written in Rust"]}]}' * 20
    asked: list[JsonValue] = [
        {"role": "user", "content": "What do you remember?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": graph},
    ]
    assert shop.chat("graph", asked) == 200
    page = window.open("live").page
    page.get_by_role("button", name="graph").first.click()
    violet = window.card("What fills it").locator(".bar-part.of-memory")

    expect(window.card("What fills it").locator(".legend-row", has_text="Memory")).not_to_contain_text("0%")
    assert float(violet.evaluate("(part) => parseFloat(part.style.width)")) > 50
    red, green, blue = violet.evaluate("(part) => getComputedStyle(part).backgroundColor.match(/[0-9]+/g).map(Number)")
    assert blue > red > green
    expect(page.locator("tbody tr", has_text="graph").first.locator(".badge.memory")).to_have_text("MCP")


def test_the_prompt_cache_says_what_was_read_from_it_and_why_it_was_missed(window: Window):
    page = window.open("live").page
    page.get_by_role("button", name=INVOICE).first.click()
    card = window.card("Prompt cache").inner_text()

    assert re.search(r"\d+\s?% of the input was read from the cache", card)
    assert "No cache misses in this session." in card or "Tokens read again" in card


def test_a_conversation_that_outgrew_its_model_went_on_with_a_larger_one(window: Window, shop: Product):
    page = window.open("live").page
    page.get_by_role("button", name="Some labels come out of the printer twice").first.click()
    page.get_by_label("only this session").check()
    rows = window.card("Live requests").locator("tbody tr")
    expect(rows).to_have_count(5)

    models = rows.locator("td:nth-child(3)").all_inner_texts()
    assert models == ["demo/liner"] * 2 + ["demo/ferry"] * 3  # the newest first
    assert shop.get("/api/sessions/labels")["model"] == "demo/liner"


ROUTED = {
    "en-GB": r"Routed to demo/liner: the context window of demo/ferry would be 9\d\s?% full",
    "fr-FR": r"Redirigée vers demo/liner : la fenêtre de contexte de demo/ferry serait pleine à 9\d\s?%",
}


@deep("it plays the demo first: 10 s")
def test_whoever_watches_the_demo_sees_a_request_go_to_a_larger_model(windows: Windows, tmp_path: Path):
    with ExitStack() as opened:
        product = opened.enter_context(demo(tmp_path, "--speed", "6", until="press Ctrl-C to stop"))
        pages = {
            locale: opened.enter_context(windows.opened(product.address, locale=locale)).open("live").page
            for locale in ROUTED
        }

        for locale, routed in ROUTED.items():
            expect(pages[locale].locator(".activity").get_by_text(re.compile(routed))).to_be_visible()
