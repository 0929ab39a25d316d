"""What explains a number is there for everybody: by pointer, by keyboard, aloud, and by touch."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.support.browser.product import INVOICE, NOTES, Product
from tests.support.browser.window import Window, Windows
from tests.support.deep import deep

PRICE = "Lost cache hits, text the model read back, and summaries."
PRIX = "Lectures de cache perdues, textes relus par le modèle, résumés."


@pytest.fixture
def live(window: Window) -> Page:
    page = window.open("live").page
    page.get_by_role("button", name=INVOICE).first.click()
    return page


def _savings(page: Page) -> Locator:
    """The card of the session: those of the day, the week and the month have the same words."""
    return page.locator(".live-savings")


@pytest.fixture
def phone(windows: Windows, shop: Product) -> Iterator[Window]:
    with windows.opened(shop.address, locale="fr-FR", size=(390, 844), has_touch=True) as window:
        yield window


def test_the_keyboard_reaches_an_explanation_and_escape_closes_it(live: Page):
    asked = _savings(live).get_by_role("button", name="Overhead")
    live.get_by_role("button", name="Tokens removed").focus()
    live.keyboard.press("Tab")

    expect(asked).to_be_focused()
    expect(live.get_by_role("tooltip")).to_have_text(PRICE)
    live.keyboard.press("Escape")
    expect(live.get_by_role("tooltip")).to_have_count(0)
    expect(asked).to_be_focused()
    live.keyboard.press("Enter")
    expect(live.get_by_role("tooltip")).to_have_text(PRICE)
    live.keyboard.press("Tab")
    expect(_savings(live).get_by_text(PRICE)).to_be_hidden()


def test_whoever_hears_the_page_hears_the_explanation_with_its_number(live: Page):
    expect(_savings(live).get_by_role("button", name="Overhead")).to_have_accessible_description(PRICE)
    tokens = live.get_by_role("columnheader", name="Tokens").get_by_role("button")
    expect(tokens).to_have_accessible_description(re.compile("≈ marks our own estimate"))


def test_the_badge_of_memory_stands_beside_a_long_title_and_says_what_it_counts(live: Page):
    cell = live.locator(".live-requests tbody tr", has_text=INVOICE).first.locator("td.wide")
    badge = cell.get_by_role("button", name="MCP")
    cell.get_by_role("button", name=INVOICE).focus()
    live.keyboard.press("Tab")

    expect(badge).to_be_focused()
    expect(live.get_by_role("tooltip")).to_have_text(re.compile(r"^This request carries \d+ tokens of memory"))
    ends = [each.evaluate("(node) => node.getBoundingClientRect().right") for each in (badge, cell)]
    assert ends[0] <= ends[1]


def test_a_pointer_opens_it_and_may_rest_on_it_and_escape_closes_it_too(live: Page):
    _savings(live).get_by_role("button", name="Overhead").hover()
    tip = live.get_by_role("tooltip")
    expect(tip).to_have_text(PRICE)
    tip.hover()
    expect(tip).to_be_visible()
    live.keyboard.press("Escape")
    expect(tip).to_have_count(0)
    _savings(live).get_by_role("button", name="Overhead").hover()
    live.mouse.move(5, 5)
    expect(tip).to_have_count(0)


@deep("a detail of the explanations that other tests here open")
def test_a_finger_opens_it_and_another_place_closes_it(phone: Window):
    page = phone.open("live").page
    page.get_by_role("combobox", name="Session").select_option(label=INVOICE)
    page.locator(".live-savings").get_by_role("button", name="Surcoût").tap()
    tip = page.get_by_role("tooltip")
    expect(tip).to_have_text(PRIX)
    box = tip.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    page.locator("h1").tap()
    expect(tip).to_have_count(0)


@deep("a detail of the explanations that other tests here open")
def test_it_stays_inside_the_window_and_no_number_is_hidden_behind_a_scrolling_frame(live: Page):
    size = live.viewport_size
    assert size is not None
    for asked in live.locator("button.explained").all():
        asked.scroll_into_view_if_needed()
        asked.focus()
        asked.press("Enter")
        box = live.get_by_role("tooltip").bounding_box()
        assert box is not None
        assert box["x"] >= 0 and box["x"] + box["width"] <= size["width"]
        assert box["y"] >= 0 and box["y"] + box["height"] <= size["height"]


def test_every_explanation_of_the_first_screen_speaks_french(fenetre: Window):
    page = fenetre.open("live").page
    page.get_by_role("button", name=INVOICE).first.click()

    expect(page.locator(".live-savings").get_by_role("button", name="Surcoût")).to_have_accessible_description(PRIX)
    told = page.locator(".tip").evaluate_all("tips => tips.map((tip) => tip.textContent)")
    assert len(told) >= 9
    assert not [text for text in told if re.search(r"\b(the|was|were|request)\b", text)]


def test_a_button_that_is_a_picture_says_its_name_to_the_keyboard(window: Window):
    page = window.open("sessions").page
    rename = page.get_by_role("button", name=f"Rename {NOTES}")
    page.get_by_role("button", name=f"Pin {NOTES}").focus()
    page.keyboard.press("Tab")

    expect(rename).to_be_focused()
    expect(page.locator(".tip:visible")).to_have_text(f"Rename {NOTES}")
    page.keyboard.press("Escape")
    expect(page.locator(".tip:visible")).to_have_count(0)


@deep("a detail of the explanations that other tests here open")
def test_where_views_are_pictures_their_names_are_shown_but_not_to_a_finger(windows: Windows, shop: Product):
    with windows.opened(shop.address, size=(390, 844), has_touch=True) as phone:
        page = phone.open("live").page
        page.locator("nav li a").nth(1).focus()
        page.keyboard.press("Tab")
        expect(page.locator(".tip:visible")).to_have_text("Context map")
        page.get_by_role("link", name="Cuts").tap()

        expect(page.get_by_role("heading", name="Cuts", exact=True, level=1)).to_be_visible()
        expect(page.locator(".tip:visible")).to_have_count(0)


def test_arrow_keys_walk_through_a_chart_and_say_its_values(live: Page):
    chart = live.get_by_role("slider", name="Tokens per request")
    legend = live.get_by_role("figure", name="Tokens per request").locator("figcaption")
    expect(chart).to_have_attribute("aria-valuemax", re.compile(r"[1-9]\d"))  # once all requests are there
    newest = legend.inner_text()
    chart.focus()
    live.keyboard.press("Home")

    expect(chart).to_have_attribute("aria-valuenow", "0")
    expect(legend).not_to_have_text(newest)
    first = legend.inner_text()
    live.keyboard.press("ArrowRight")
    expect(chart).to_have_attribute("aria-valuenow", "1")
    expect(chart).to_have_attribute("aria-valuetext", re.compile(r"Real [\d.,]+.*Estimated [\d.,]+"))
    assert legend.inner_text() != first
    live.keyboard.press("Escape")
    assert legend.inner_text() == newest
