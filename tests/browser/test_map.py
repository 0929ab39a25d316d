"""The context map: the last request to scale, with what became of each message."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.support.browser.product import INVOICE, Product, exchanges, started
from tests.support.browser.provider import MODEL, provider
from tests.support.browser.window import Window, Windows
from tests.support.deep import deep, too

from kimi_proxy.core.json import JsonObject, JsonValue


def opened(window: Window) -> Window:
    page = window.open("live").page
    page.get_by_role("button", name=INVOICE).first.click()
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
    dialog.get_by_text("Sent", exact=True).wait_for()

    assert "mend the VAT of invoices" in dialog.inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def test_a_summarized_message_shows_its_text_and_the_summary(window: Window):
    page = opened(window).page
    folded = page.get_by_role("button", name="14 messages were replaced by this summary")
    expect(folded).to_have_attribute("aria-expanded", "false")
    folded.press("Enter")
    expect(folded).to_have_attribute("aria-expanded", "true")
    page.locator(".message-row.gone button", has_text="A customer says that invoice 1147").click()

    dialog = page.get_by_role("dialog", name="Message 1 from the client · User · not sent")
    expect(dialog.get_by_role("region", name="Received")).to_contain_text("Find out where the VAT is rounded")
    sent = dialog.get_by_role("region", name="Sent instead: the summary")
    expect(sent).to_contain_text("Goal: mend the VAT of invoices")
    page.keyboard.press("Escape")
    folded.click()
    expect(page.locator(".message-row.gone")).to_have_count(0)


def test_it_does_so_in_french(fenetre: Window):
    page = opened(fenetre).page
    page.get_by_role("button", name="14 messages ont été remplacés par ce résumé").click()
    page.locator(".message-row.gone button", has_text="A customer says that invoice 1147").click()

    dialog = page.get_by_role("dialog", name="Message 1 du client · Utilisateur · non envoyé")
    expect(dialog.get_by_role("region", name="Envoyé à sa place : le résumé")).to_contain_text("Goal: mend the VAT")


def described(name: str, words: int) -> JsonObject:
    about: JsonObject = {"name": name, "description": "what it does " * words, "parameters": {"type": "object"}}
    return {"type": "function", "function": about}


@pytest.mark.parametrize(
    ("locale", "title", "rows"),
    [
        (
            "en-GB",
            "Tool definitions in every request",
            [["issues (MCP, 2 tools)", "never called"], ["Bash", "1"], ["Read", "never called"]],
        ),
        too(
            "fr-FR",
            "Définitions d’outils envoyées à chaque requête",
            [["issues (MCP, 2 outils)", "jamais appelé"], ["Bash", "1"], ["Read", "jamais appelé"]],
        ),
    ],
)
def test_it_lists_what_each_tool_costs_and_the_whole_line_that_switches_it_off(
    windows: Windows, shop: Product, locale: str, title: str, rows: list[list[str]]
):
    call: JsonObject = {"id": "c1", "type": "function", "function": {"name": "Bash", "arguments": "{}"}}
    said: list[JsonValue] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    tools: list[JsonValue] = [
        described(name, words)
        for name, words in (("Read", 20), ("Bash", 30), ("mcp__issues__list", 40), ("mcp__issues__close", 10))
    ]
    assert shop.chat("tools", said, tools=tools) == 200
    id = str(shop.get("/api/sessions/tools")["id"])
    with windows.opened(shop.address, locale=locale, size=(1000, 800)) as window:
        page = window.open("live").page
        page.get_by_label("Session", exact=True).select_option(id)
        window.open("map")
        lines = window.card(title).locator("tbody tr")
        expect(lines).to_have_count(3)
        cells = [line.locator("td").all_inner_texts() for line in lines.all()]
        assert [[name, calls] for name, _, _, calls, *_ in cells] == rows
        assert [off for *_, off in cells] == [
            "claude mcp remove issues",
            '"permissions": {"deny": ["Bash"]} // in .claude/settings.json',
            '"permissions": {"deny": ["Read"]} // in .claude/settings.json',
        ]
        costs = [int(tokens) for _, tokens, *_ in cells]
        assert costs == sorted(costs, reverse=True)
        assert costs[-1] > 20
        hidden = lines.locator("td").evaluate_all("(all) => all.filter((td) => td.scrollWidth > td.clientWidth).length")
        assert hidden == 0


def test_one_click_leaves_a_tool_out_of_the_next_conversation(windows: Windows, tmp_path: Path):
    tools: list[JsonValue] = [
        described(name, 300) for name in ("Read", "Bash", "mcp__issues__list", "mcp__issues__close")
    ]
    said: list[JsonValue] = [{"role": "user", "content": "go"}]
    with provider() as upstream, started(tmp_path, upstream.toml()) as product:
        assert product.chat("first", said, model=MODEL, tools=tools) == 200
        with windows.opened(product.address) as window:
            page = window.open("map").page
            page.get_by_role("button", name="Load issues on demand").click()
            page.get_by_text("Saved.", exact=True).wait_for()
            page.get_by_role("button", name="Send issues with every request").wait_for()
            page.get_by_text("from the next conversation on").wait_for()
        assert product.chat("second", said, model=MODEL, tools=tools) == 200
        shown = product.get("/api/sessions/second/context")

        assert 'tools = ["mcp__issues__*"]' in (tmp_path / "config.toml").read_text()
        assert {one["name"]: one["left_out"] for one in shown["described_tools"]} == {"issues": 2, "Read": 0, "Bash": 0}


@pytest.fixture(scope="module")
def restarted(windows: Windows, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A product that was compressing before it was started again: requests are gone, what was compressed is not."""
    with provider() as upstream:
        upstream.says = "Goal: find the parcel of order 12."
        home = tmp_path_factory.mktemp("restarted")
        with started(home, upstream.toml()) as product:
            assert product.chat("before", exchanges(9, 800), model=MODEL) == 200
            assert product.ask("POST", "/api/compress/before", {"force": True}).status_code == 200
        with started(home, upstream.toml()) as product:
            yield product


@deep("it restarts a server of its own, which takes seconds")
@pytest.mark.parametrize(
    ("locale", "words", "place"),
    [
        too("en-GB", "conversations are kept in memory only", "Summary sent instead of the old messages"),
        ("fr-FR", "les conversations ne sont gardées qu’en mémoire", "Résumé envoyé à la place des anciens messages"),
    ],
)
def test_after_a_restart_it_says_why_it_is_empty_and_leads_to_the_summary(
    windows: Windows, restarted: Product, locale: str, words: str, place: str
):
    with windows.opened(restarted.address, locale=locale) as window:
        page = window.open("map").page
        expect(page.locator(".empty")).to_contain_text(words)
        page.locator(".empty").get_by_role("link", name="Compression").click()
        page.locator(".past summary").click()

        expect(page.get_by_role("region", name=place)).to_contain_text("Goal: find the parcel of order 12.")
