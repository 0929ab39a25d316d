"""Cuts: what a day left out, beside its original, with the way back."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from tests.support.browser.product import Product, started
from tests.support.browser.window import Window, Windows
from tests.support.deep import deep

from kimi_proxy.core.json import JsonObject

GOAL = "where is the VAT of an invoice rounded?"


def rows(window: Window) -> list[str]:
    window.page.locator("tbody tr").first.wait_for()
    return window.page.locator("tbody tr").all_inner_texts()


def opened(window: Window) -> Window:
    """The cut that the day's question to the pruner made."""
    window.open("cuts")
    window.page.locator("tbody tr", has_text=GOAL).first.click()
    window.page.locator(".lines").wait_for()
    return window


def test_every_door_has_left_its_cuts(window: Window):
    listed = rows(window.open("cuts"))

    assert {door for door in ("Pruner", "Conversation", "Gateway") if any(door in row for row in listed)} == {
        "Pruner",
        "Conversation",
        "Gateway",
    }
    pruned = next(row for row in listed if GOAL in row)
    assert re.search(r"\d+ of \d+", pruned)
    assert re.search(r"−[\d,.]+", pruned)


def test_reasons_are_told_in_the_viewers_language_and_markers_as_they_were_sent(window: Window, fenetre: Window):
    assert any(re.search(r"off focus: (\d+ blocks: |rest of |function )", row) for row in rows(window.open("cuts")))
    assert not [row for row in rows(window) if "hors focus" in row]
    assert any("hors focus : " in row for row in rows(fenetre.open("cuts")))
    page = opened(window).page
    window.button("Next cut").click()
    gap = page.locator(".line.gap").first

    assert gap.locator(".gap-reason").inner_text().startswith("off focus")
    assert re.search(r"raison=hors focus.*⟧", gap.locator(".line-sent").inner_text())


def test_a_cut_stands_beside_its_original_with_what_is_gone_folded(window: Window):
    page = opened(window).page

    assert page.locator(".line.kept").first.is_visible()
    assert page.locator(".line.gone").count() == 0
    window.button("Next cut").click()
    gap = page.locator(".line.gap").first
    assert "⟦PRUNÉ: prune_id=prn_" in gap.inner_text()
    gap.get_by_role("button").click()
    assert page.locator(".line.gone").first.is_visible()
    gap.get_by_role("button").click()
    assert page.locator(".line.gone").count() == 0


def test_each_line_says_why(window: Window):
    page = opened(window).page

    page.locator(".windowed").evaluate("list => { list.scrollTop = 0; }")
    page.locator(".line.kept", has=page.get_by_text("1", exact=True)).first.click()
    assert re.search(r"Line 1 was kept: .*(header|import)", page.locator(".lines-why").inner_text())
    page.locator(".windowed").focus()
    page.keyboard.press("ArrowDown")
    assert "Line 2 was kept" in page.locator(".lines-why").inner_text()


def test_a_cut_opens_at_its_first_cut(window: Window):
    page = opened(window).page
    gap = page.locator(".line.gap").first

    expect(gap).to_be_in_viewport()
    top = page.locator(".windowed").bounding_box()
    first = gap.bounding_box()
    assert top is not None
    assert first is not None
    assert top["y"] <= first["y"] <= top["y"] + top["height"] / 2


def test_the_original_is_copied_and_recovered_whole(window: Window, shop: Product):
    page = opened(window).page
    id = page.locator(".facts code").inner_text()
    original = shop.get(f"/api/mask/{id}")["text"]

    window.button("Copy the original").click()
    page.get_by_text("Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    with page.expect_download() as download:
        window.button("Save the original to a file").click()

    assert copied == original
    assert download.value.path().read_text("utf-8") == original


def test_a_masked_answer_stands_beside_what_was_sent(window: Window):
    page = window.open("cuts").page
    page.locator("tbody tr", has_text="Gateway").first.click()
    page.locator(".texts").wait_for()

    original, sent = page.locator(".texts pre").all_inner_texts()
    assert "KIMI_PROXY_OBSERVATION_MASKED" in sent
    assert len(sent) < len(original)


def test_originals_are_searched_and_a_hit_opens_at_its_line(window: Window, shop: Product):
    hits = shop.get("/api/cuts/search?q=invoice+1147+cannot+be+booked")["hits"]
    # Of an old output its ends are shown, beside the original as a text.
    cut = next(hit["id"] for hit in hits if shop.get(f"/api/cuts/{hit['id']}")["by"] == "lines")
    page = window.open("cuts").page
    page.get_by_role("searchbox").fill("INVOICE 1147 CANNOT BE BOOKED")
    window.button("Find").click()
    page.locator(f".cuts-hits a[href*='{cut}']").first.click()
    page.locator(".line.chosen").wait_for()

    assert "invoice 1147 cannot be booked" in page.locator(".line.chosen").first.inner_text()


def test_a_hit_in_a_text_without_lines_is_marked(window: Window):
    page = window.open("cuts").page
    page.get_by_role("searchbox").fill("Invoice 1147: the VAT is one cent off")
    window.button("Find").click()
    page.locator(".cuts-hits li", has_text='"title"').first.get_by_role("link").click()
    page.locator(".texts mark").wait_for()

    assert "one cent off" in page.locator(".texts mark").inner_text()


def test_a_search_without_hits_says_so(window: Window):
    page = window.open("cuts").page
    page.get_by_role("searchbox").fill("xyzzy-is-nowhere")
    window.button("Find").click()

    page.get_by_text("No original contains this text.").wait_for()


def test_an_id_that_nobody_gave_is_told(window: Window):
    page = window.open("cuts", "prn_0000000000000000").page

    page.get_by_text("This original has expired or never existed.").wait_for()


def test_it_speaks_french(fenetre: Window):
    page = fenetre.open("cuts").page
    page.locator("tbody tr", has_text=GOAL).first.click()
    page.locator(".line.kept").first.click()

    assert re.search(r"La ligne \d+ a été gardée", page.locator(".lines-why").inner_text())
    assert fenetre.button("Copier l’original").is_visible()


@deep("a detail of a view that other tests here open")
def test_it_fits_on_a_phone(windows: Windows, shop: Product):
    with windows.opened(shop.address, size=(390, 800)) as window:
        page = opened(window).page

        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.locator(".line-sent").first.is_hidden()


def test_an_original_that_cannot_be_copied_is_told(window: Window):
    page = opened(window).page
    page.route("**/api/mask/*", lambda route: route.abort())
    window.button("Copy the original").click()

    page.get_by_text("Copy failed").wait_for()


@pytest.fixture(scope="module")
def workshop(windows: Windows, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A product whose list of cuts may grow."""
    with started(tmp_path_factory.mktemp("workshop"), "") as product:
        yield product


@pytest.fixture
def busy(windows: Windows, workshop: Product) -> Iterator[Window]:
    with windows.opened(workshop.address) as window:
        yield window


def pruned(product: Product, text: str, goal: str) -> None:
    """A question to the pruner of a product."""
    options = {
        "max_prune_ratio": 0.6,
        "min_keep_lines": 1,
        "timeout_ms": 60_000,
        "annotate_lines": False,
        "include_markers": True,
    }
    asked = {"text": text, "goal_hint": goal, "source_type": "docs", "options": options}
    question: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "prune_text", "params": asked}
    answer = Product(product.pruner, product.home).ask("POST", "/rpc", question).json()
    assert answer["result"]["annotations"], answer


@deep("a detail of a view that other tests here open")
def test_what_is_cut_meanwhile_takes_nothing_out_of_the_list(busy: Window, workshop: Product):
    text = "\n".join(f"line {row} of a text that is pruned, with some words in it" for row in range(40))
    for number in range(55):
        pruned(workshop, text, f"question {number:03}")
    page = busy.open("cuts").page
    busy.button("Show older cuts").click()
    expect(page.locator("tbody tr", has_text="question 000")).to_be_visible()
    pruned(workshop, text, "question 055")
    expect(page.locator("tbody tr", has_text="question 055")).to_be_visible()

    listed = rows(busy)
    assert [number for number in range(56) if sum(f"question {number:03}" in row for row in listed) != 1] == []


@deep("a detail of a view that other tests here open")
def test_a_hit_far_down_in_a_text_of_long_lines_is_shown(busy: Window, workshop: Product):
    told = [f"{row} " + "words of a long line " * 12 for row in range(3000)]
    told[2900] = "here it is: xylophone"
    pruned(workshop, "\n".join(told), "a long way")
    page = busy.open("cuts").page
    page.get_by_role("searchbox").fill("xylophone")
    busy.button("Find").click()
    page.locator(".cuts-hits a").first.click()

    expect(page.locator(".line.chosen")).to_contain_text("xylophone")
