"""What models, tools, files and errors say is text: whatever it spells, no script of theirs runs."""

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Error
from tests.browser.payloads import PAYLOADS
from tests.support.browser.product import Product, started
from tests.support.browser.provider import Provider, provider
from tests.support.browser.window import SharedWindow, Window, Windows
from tests.support.deep import IS_DEEP, deep

from kimi_proxy.core.json import JsonValue

DESK = Path(__file__).with_name("evil_desk.py")
# What the markup of a payload would be, had it become some.
FOREIGN = (
    "img:not([src^='/dashboard/']), iframe, object, embed, audio, video, marquee, math, form[action], base, "
    "svg:not(.icon):not(.gauge svg):not([class]), body > script, main script, main style, main link, main meta, "
    "a[href^='javascript:'], [onerror], [onload], [onfocus], [ontoggle], [onbegin], [onstart]"
)


def conversation(payload: str) -> list[JsonValue]:
    """A tool was asked about a file with that name, and printed that a hundred times."""
    call = {"name": "read", "arguments": json.dumps({"path": payload})}
    printed = "\n".join(f"value_{n} = {payload!r}" for n in range(60))
    return [
        {"role": "system", "content": f"<mcp-memory>{payload}</mcp-memory> {payload}"},
        {"role": "user", "content": f"What is {payload}?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "c1", "content": printed},
        {"role": "user", "content": payload},
    ]


@pytest.fixture(scope="module")
def evil(windows: Windows, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A product through which every payload has passed, by every way that leads to the page."""
    with provider() as told, started(tmp_path_factory.mktemp("evil"), toml(told)) as product:
        for number, payload in enumerate(PAYLOADS):
            told.says, told.status = payload, (200, 200, 400)[number % 3]
            product.chat(f"session {number}", conversation(payload), model=f"local/{payload}", metadata={"x": payload})
            product.ask("PATCH", f"/api/sessions/session {number}", {"title": payload})
        told.status = 200
        call: JsonValue = {"name": "tell", "arguments": {"path": PAYLOADS[0]}}
        message: JsonValue = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        product.ask("POST", "/api/mcp-gateway/evil/rpc", message)
        yield product


def toml(told: Provider) -> str:
    return f"""{told.toml()}
[sanitizer]
threshold_tokens = 200
budget_ms = 60000
[log]
level = "error"
[mcp.servers.evil]
command = {json.dumps(sys.executable)}
args = [{json.dumps(str(DESK))}]
[mcp.servers.broken]
command = {json.dumps(sys.executable)}
args = ["-c", {json.dumps(f"raise SystemExit({PAYLOADS[10]!r})")}]
"""


@pytest.fixture(scope="module")
def watcher(windows: Windows, evil: Product) -> Iterator[SharedWindow]:
    with closing(SharedWindow(lambda: windows.opened(evil.address))) as shared:
        yield shared


@pytest.fixture
def watched(watcher: SharedWindow) -> Iterator[Window]:
    with watcher.lent() as window:
        yield window
        assert window.page.evaluate("window.pwned") is None
        assert window.page.locator(FOREIGN).count() == 0


def test_there_are_fifty_payloads_and_each_is_another():
    assert len(set(PAYLOADS)) == len(PAYLOADS) >= 50


@deep("it tests the check of the test above it")
def test_a_page_without_a_policy_that_made_markup_of_it_would_be_noticed(windows: Windows, evil: Product):
    with windows.opened(evil.address, bypass_policy=True) as window:
        page = window.open("live").page
        page.evaluate("(payload) => { document.querySelector('main').innerHTML = payload }", PAYLOADS[10])
        page.wait_for_function("window.pwned === 1")

        assert page.locator(FOREIGN).count() == 1


def test_a_page_with_its_policy_makes_no_markup_of_it(windows: Windows, evil: Product):
    with windows.opened(evil.address) as window:
        page = window.open("live").page
        with pytest.raises(Error, match="TrustedHTML"):
            page.evaluate("(payload) => { document.querySelector('main').innerHTML = payload }", PAYLOADS[10])

        assert any("trusted-types" in each for each in window.strangers())
        page.evaluate("window.strangers.length = 0")
        window.faults.clear()


def test_model_names_titles_and_errors_on_the_first_screen(watched: Window):
    page = watched.open("live").page
    page.locator("tbody tr").nth(20).wait_for()
    for title in (PAYLOADS[-1], PAYLOADS[-2]):
        page.get_by_role("button", name=title).first.click()

    assert PAYLOADS[-1] in watched.text
    page.wait_for_timeout(300)  # for what loads late


def test_titles_and_models_among_the_sessions(watched: Window):
    page = watched.open("sessions").page
    page.locator("tbody tr").nth(len(PAYLOADS) - 1).wait_for()
    shown = watched.text
    boxes = page.get_by_role("checkbox")
    boxes.nth(0).check()
    boxes.nth(1).check()
    watched.button("Compare").click()
    page.get_by_role("dialog").wait_for()

    missing = [payload for payload in PAYLOADS if " ".join(payload.split()) not in " ".join(shown.split())]
    assert missing == []


def test_messages_on_the_map(watched: Window):
    page = watched.open("live").page
    page.get_by_role("button", name=PAYLOADS[10], exact=True).first.click()
    watched.open("map")
    rows = page.locator(".message-row button")
    rows.first.wait_for()
    for number in range(rows.count()):
        rows.nth(number).click()
        page.get_by_role("dialog").wait_for()
        page.wait_for_timeout(100)
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="detached")


def test_originals_goals_and_paths_among_the_cuts(watched: Window, evil: Product):
    page = watched.open("cuts").page
    page.locator("tbody tr").nth(30).wait_for()
    cuts = evil.get("/api/cuts?limit=200")["cuts"]
    assert isinstance(cuts, list)
    assert len(cuts) >= 40
    for cut in [*cuts[:12], *cuts[-4:]] if IS_DEEP else cuts[::10]:
        assert isinstance(cut, dict)
        watched.open("cuts", str(cut["id"]))
        page.locator(".line, .texts pre").first.wait_for()
        for gap in page.locator(".line.gap button").all()[:1]:
            gap.click()
        page.locator(".line.kept").first.click() if page.locator(".line.kept").count() else None
    watched.open("cuts")
    page.get_by_role("searchbox").fill("onerror=window.pwned")
    watched.button("Find").click()
    page.locator(".cuts-hits li").first.wait_for()

    assert "<img" in page.locator(".cuts-hits").inner_text()


def test_summaries_of_a_compression(watched: Window):
    page = watched.open("live").page
    page.get_by_role("button", name=PAYLOADS[10], exact=True).first.click()
    watched.open("compression")
    watched.button("Simulate").click()
    page.get_by_role("dialog").wait_for()
    page.wait_for_timeout(500)


def test_what_servers_say(watched: Window):
    page = watched.open("servers").page
    watched.card("evil").wait_for()
    page.get_by_role("button", name="Log: evil").click()
    page.get_by_role("dialog").get_by_text(PAYLOADS[0]).first.wait_for()
    page.keyboard.press("Escape")
    watched.card("broken").get_by_text("Server message").click()

    assert PAYLOADS[10] in watched.card("broken").inner_text()


def test_texts_in_the_playground(watched: Window):
    page = watched.open("playground").page
    page.get_by_role("textbox", name="What do you want to know?").fill(PAYLOADS[10])
    page.get_by_role("textbox", name="Text to prune").fill("\n".join(PAYLOADS * 4))
    page.locator(".line").first.wait_for()
    page.wait_for_timeout(500)
    page.locator(".line.kept").first.click()

    assert PAYLOADS[0] in page.locator(".lines").inner_text()


def test_addresses_of_the_page_itself(watched: Window):
    for payload in PAYLOADS[: 12 if IS_DEEP else 4]:
        watched.page.goto(f"{watched.address}/#/cuts/{payload}")
        watched.page.locator("main .view").wait_for()
    watched.page.goto(f"{watched.address}/#/{PAYLOADS[10]}")
    watched.page.locator("main .view").wait_for()
