"""Sessions: found, named, compared, taken away, deleted; looking at one changes nothing in the traffic."""

import csv
import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Route, WebSocketRoute, expect
from tests.support.browser.product import INVOICE, NOTES, Product, started
from tests.support.browser.provider import provider, say
from tests.support.browser.window import Window, Windows
from tests.support.deep import deep


def row(window: Window, name: str) -> str:
    return window.page.locator("tbody tr", has_text=name).inner_text()


def test_the_sessions_of_the_day_are_listed(window: Window):
    window.open("sessions")
    window.page.locator("tbody tr", has_text=INVOICE).wait_for()

    assert "demo/apprentice" in row(window, INVOICE)
    assert "demo/scribe" in row(window, NOTES)


def test_a_search_finds_them_by_title(window: Window):
    page = window.open("sessions").page
    page.locator("tbody tr", has_text=INVOICE).wait_for()
    page.get_by_role("searchbox").fill("release NOTES")
    page.locator("tbody tr", has_text=INVOICE).wait_for(state="detached")

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
    page.get_by_label(f"Select {INVOICE}").check()
    page.get_by_label(f"Select {NOTES}").check()
    window.button("Compare").click()
    dialog = page.get_by_role("dialog")
    dialog.wait_for()

    told = dialog.inner_text()
    assert all(fact in told for fact in (INVOICE, NOTES, "Requests", "Tokens saved", "Difference"))


def test_requests_are_taken_away_as_files(window: Window):
    page = window.open("sessions").page
    page.get_by_label(f"Select {INVOICE}").check()
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
    page.get_by_role("button", name=f"Pin {NOTES}").click()
    page.locator("tbody tr.chosen", has_text=NOTES).wait_for()

    assert (shop.get("/api/sessions")["total"], shop.get("/api/settings")["switches"]) == before


@pytest.fixture(scope="module")
def crowd(windows: Windows, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """More sessions than a page lists."""
    with provider() as told_by, started(tmp_path_factory.mktemp("crowd"), told_by.toml()) as product:
        for number in range(130):
            told = {"title": f"visitor {number:03}", "external_session_id": f"visitor-{number:03}"}
            assert product.ask("POST", "/api/sessions", told).status_code == 201
        yield product


@deep("a detail of a view that other tests here open")
def test_older_ones_that_come_late_do_not_take_the_place_of_what_was_found(windows: Windows, crowd: Product):
    held: list[Route] = []
    with windows.opened(crowd.address) as window:
        page = window.open("sessions").page
        expect(page.locator("tbody tr")).to_have_count(100)
        page.route("**/api/sessions?*after=*", lambda route: held.append(route))
        window.button("Show more").click()
        page.get_by_role("searchbox").fill("visitor 127")
        expect(page.locator("tbody tr")).to_have_count(1)
        held[0].continue_()
        page.wait_for_timeout(500)

        expect(page.locator("tbody tr")).to_have_count(1)


@deep("a detail of a view that other tests here open")
def test_one_that_was_used_meanwhile_is_not_listed_twice(windows: Windows, crowd: Product):
    with windows.opened(crowd.address) as window:
        page = window.page
        page.route_web_socket("**/ws*", lambda socket: None)  # a page that hears nothing
        window.open("sessions")
        expect(page.locator("tbody tr")).to_have_count(100)
        last = page.locator("tbody tr .sessions-name span").nth(-2).inner_text().strip()
        say(crowd, "hello again", session=last.replace(" ", "-"))
        window.button("Show more").click()
        page.wait_for_timeout(500)

        names = page.locator("tbody tr .sessions-name").all_inner_texts()
        assert len(names) == len(set(names))


@deep("a detail of a view that other tests here open")
def test_after_a_gap_those_that_were_deleted_meanwhile_are_gone(windows: Windows, crowd: Product):
    sockets: list[WebSocketRoute] = []

    def pass_on(socket: WebSocketRoute) -> None:
        sockets.append(socket)
        if len(sockets) > 1:
            socket.connect_to_server()

    with windows.opened(crowd.address) as window:
        page = window.page
        page.route_web_socket("**/ws*", pass_on)
        window.open("sessions")
        doomed = page.locator("tbody tr", has_text="visitor 129")
        expect(doomed).to_have_count(1)
        assert crowd.ask("DELETE", "/api/sessions/visitor-129").status_code == 200
        sockets[0].close(code=1012)

        expect(doomed).to_have_count(0)


@deep("a detail of a view that other tests here open")
def test_a_session_without_requests_has_no_empty_chart(windows: Windows, crowd: Product):
    with windows.opened(crowd.address) as window:
        page = window.open("live").page
        unheard = str(crowd.get("/api/sessions/visitor-128")["id"])
        page.get_by_label("Session", exact=True).select_option(unheard)

        expect(window.card("Cumulative cost")).to_contain_text("Waiting for the first request.")


@deep("a detail of a view that other tests here open")
def test_one_more_is_not_many_in_french(windows: Windows, crowd: Product):
    with windows.opened(crowd.address, locale="fr-FR") as window:
        page = window.open("sessions").page
        for number in range(6):
            page.get_by_label(f"visitor {100 + number}").first.check()
        window.button("Supprimer 6").click()

        expect(page.get_by_text("et 1 autre", exact=True)).to_be_visible()
