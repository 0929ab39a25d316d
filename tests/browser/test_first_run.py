"""What a newcomer finds: models without a window, memory in requests and in the settings, alerts after a reload."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from playwright.sync_api import expect
from tests.support.browser.product import started
from tests.support.browser.provider import MODEL, WINDOW, provider
from tests.support.browser.window import Windows
from tests.support.deep import deep

from kimi_proxy.services.store.sqlite.store import store_path


@deep("it plays a day first: 15 s")
def test_alerts_badges_and_memory_are_there_after_a_reload(windows: Windows, tmp_path: Path):
    remembered = "Why is the port 8000? <mcp-memory>the port is 8000</mcp-memory> "
    buried = [
        {"role": "system", "content": "Never change a released file."},
        {
            "role": "user",
            "content": remembered + "word " * (WINDOW * 7 // 10),
        },
        {"role": "user", "content": "and now?"},
    ]
    with provider() as there, started(tmp_path, there.toml()) as product, windows.opened(product.address) as window:
        there.may_answer.set()
        assert product.chat("long", buried, MODEL) == 200
        assert product.chat("strange", [{"role": "user", "content": "who are you?"}], "local/mystery") == 200

        page = window.open("live").page
        expect(page.locator("tbody tr", has_text="long").locator(".badge.memory")).to_have_text("MCP")
        if page.locator(".banners .fold summary").count():
            page.locator(".banners .fold summary").click()
        expect(page.get_by_text("The context window of mystery is unknown.")).to_be_visible()
        expect(page.get_by_text('[models."mystery"]')).to_be_visible()
        page.locator("tbody tr", has_text="long").get_by_role("button").first.click()
        expect(page.get_by_text("The system prompt is far from the end.")).to_be_visible()
        page.reload()
        page.locator("tbody tr", has_text="long").get_by_role("button").first.click()
        expect(page.get_by_text("The system prompt is far from the end.")).to_be_visible()

        page = window.open("settings").page
        memory = page.get_by_role("textbox", name="Project memory")
        expect(page.get_by_role("button", name="Save")).to_be_disabled()
        memory.fill("Prices are in cents.")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("Takes effect with the next conversation.")).to_be_visible()
        page.reload()
        expect(memory).to_have_value("Prices are in cents.")
        page.screenshot(path=str(tmp_path / "settings.png"), full_page=True)

    with closing(sqlite3.connect(store_path(tmp_path))) as connection:
        ((stored,),) = connection.execute("SELECT content FROM project_memory").fetchall()
    assert json.loads(stored) == "Prices are in cents."
    assert window.faults == []
