"""Sessions: found, named, compared, taken away, deleted; looking at one changes nothing in the traffic."""

import csv
import json

from tests.browser.product import Product
from tests.browser.window import Window

VAT = "A cent is missing from invoice 1147"


def row(window: Window, name: str) -> str:
    return window.page.locator("tbody tr", has_text=name).inner_text()


def test_the_sessions_of_the_day_are_listed(window: Window):
    window.open("sessions")
    window.page.locator("tbody tr", has_text=VAT).wait_for()

    assert "demo/apprentice" in row(window, VAT)
    assert "demo/scribe" in row(window, "Release notes for Thursday")


def test_a_search_finds_them_by_title(window: Window):
    page = window.open("sessions").page
    page.locator("tbody tr", has_text=VAT).wait_for()
    page.get_by_role("searchbox").fill("release NOTES")
    page.locator("tbody tr", has_text=VAT).wait_for(state="detached")

    assert page.locator("tbody tr").count() == 1


def test_one_is_renamed(window: Window, shop: Product):
    assert shop.chat("to-rename", [{"role": "user", "content": "Hello."}]) == 200
    page = window.open("sessions").page
    page.get_by_role("button", name="Rename to-rename").click()
    page.get_by_role("textbox", name="Title", exact=True).fill("Ça <b>va</b> & bien")
    window.button("Save").click()
    page.locator("tbody tr", has_text="Ça <b>va</b> & bien").wait_for()

    assert shop.get("/api/sessions/to-rename")["title"] == "Ça <b>va</b> & bien"


def test_two_are_compared(window: Window):
    page = window.open("sessions").page
    page.get_by_label(f"Choose {VAT}").check()
    page.get_by_label("Choose Release notes for Thursday").check()
    window.button("Compare").click()
    dialog = page.get_by_role("dialog")
    dialog.wait_for()

    told = dialog.inner_text()
    assert all(fact in told for fact in (VAT, "Release notes for Thursday", "Requests", "Tokens saved", "Difference"))


def test_requests_are_taken_away_as_files(window: Window):
    page = window.open("sessions").page
    page.get_by_label(f"Choose {VAT}").check()
    with page.expect_download() as table:
        window.button("CSV").click()
    with page.expect_download() as document:
        window.button("JSON").click()

    rows = list(csv.DictReader(table.value.path().read_text("utf-8").splitlines()))
    told = json.loads(document.value.path().read_text("utf-8"))
    assert {row["model"] for row in rows} == {"demo/apprentice"}
    assert len(told["requests"] if "requests" in told else told["metrics"]) == len(rows) > 10


def test_one_is_deleted_after_a_question(window: Window, shop: Product):
    assert shop.chat("to-delete", [{"role": "user", "content": "Hello."}]) == 200
    page = window.open("sessions").page
    page.get_by_role("button", name="Delete to-delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").last.click()
    page.locator("tbody tr", has_text="to-delete").wait_for(state="detached")

    assert shop.ask("GET", "/api/sessions/to-delete").status_code == 404


def test_looking_at_another_session_changes_nothing(window: Window, shop: Product):
    before = shop.get("/api/sessions")["total"], shop.get("/api/settings")["switches"]
    page = window.open("sessions").page
    page.get_by_role("button", name="Pin Release notes for Thursday").click()
    page.locator("tbody tr.chosen", has_text="Release notes for Thursday").wait_for()

    assert (shop.get("/api/sessions")["total"], shop.get("/api/settings")["switches"]) == before
