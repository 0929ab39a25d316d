"""The playground: lines fold as one types, and nothing is kept."""

import json
import re
import shlex
from pathlib import Path

from playwright.sync_api import Page, expect
from tests.support.browser.product import Product
from tests.support.browser.window import Window


def opened(window: Window) -> Page:
    """The playground as it is found first: it keeps what was asked for as long as the page lives."""
    page = window.open("playground").page
    page.get_by_role("textbox", name="Text to prune").fill("")
    page.get_by_role("textbox", name="What do you want to know?").fill("")
    page.get_by_role("slider").fill("0.6")
    expect(page.locator(".line")).to_have_count(0)
    return page


def example(window: Window) -> Window:
    opened(window)
    window.button("Use an example").click()
    window.page.locator(".line.gap").first.wait_for()
    return window


def test_lines_fold_and_the_failure_stays(window: Window):
    page = example(window).page

    shown = page.locator(".lines").inner_text()
    assert "Unbalanced" in shown
    assert re.search(r"\d+ of \d+ lines kept", window.text)


def test_another_goal_and_another_ratio_fold_other_lines(window: Window):
    page = example(window).page
    before = page.locator(".playground-stats strong").inner_text()
    page.get_by_role("slider").fill("0.3")
    page.wait_for_function("(old) => document.querySelector('.playground-stats strong').innerText !== old", arg=before)
    page.get_by_role("textbox", name="What do you want to know?").fill("how many cache entries were renewed?")
    page.get_by_role("slider").fill("0.8")
    page.locator(".line.kept", has_text="entries renewed").first.wait_for()


def test_a_line_says_why(window: Window):
    page = example(window).page
    page.locator(".line.kept", has_text="Unbalanced").last.click()

    assert re.search(r"Line \d+ was kept: .*(error|traceback|trouble)", page.locator(".lines-why").inner_text())


def test_a_file_is_read(window: Window, files: Path):
    file = files / "service.log"
    file.write_text("\n".join(f"INFO request {n} done" for n in range(60)) + "\nERROR the disk is full\n")
    page = opened(window)
    page.get_by_role("textbox", name="What do you want to know?").fill("which disk is full?")
    page.locator("input[type=file]").set_input_files(file)
    page.locator(".line.gap").first.wait_for()

    assert page.get_by_role("combobox", name="Treat as").input_value() == "logs"
    assert "the disk is full" in page.locator(".lines").inner_text()


def test_the_curl_does_the_same(window: Window):
    page = example(window).page
    window.button("Copy as curl").click()
    page.get_by_text("Copied").wait_for()

    words = shlex.split(page.evaluate("navigator.clipboard.readText()"))
    assert words[:2] == ["curl", "-s"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/rpc", words[2])
    assert json.loads(words[-1])["params"]["goal_hint"] == "why can invoice 1147 not be booked?"


def test_nothing_is_kept(window: Window, shop: Product):
    before = shop.get("/api/cuts")["cuts"]
    example(window)

    assert shop.get("/api/cuts")["cuts"] == before


def test_it_speaks_french(fenetre: Window):
    page = fenetre.open("playground").page
    fenetre.button("Utiliser un exemple").click()
    page.locator(".line.gap").first.wait_for()

    assert re.search(r"\d+ lignes sur \d+ gardées", fenetre.text)
    assert "lignes coupées" in fenetre.text


def dropped(window: Window, value: str) -> None:
    """Let go of something over the text."""
    window.page.evaluate(
        """(value) => {
          const given = { files: [] };
          const text = () => Promise.reject(new Error("a folder"));
          if (value === "folder") given.files.push({ name: "src", size: 4096, text });
          const event = new DragEvent("drop", { bubbles: true, cancelable: true });
          Object.defineProperty(event, "dataTransfer", { value: given });
          window.isTaken = !document.querySelector("textarea").dispatchEvent(event);
        }""",
        value,
    )


def test_a_folder_that_is_dropped_is_refused_in_words(window: Window):
    opened(window)
    dropped(window, "folder")

    window.page.get_by_text("Cannot read this file.").wait_for()


def test_words_that_are_dropped_are_left_to_the_browser(window: Window):
    opened(window)
    dropped(window, "words")

    assert window.page.evaluate("window.isTaken") is False


def test_the_same_file_can_be_opened_again(window: Window, files: Path):
    file = files / "service.log"
    file.write_text("\n".join(f"INFO request {n} done" for n in range(60)))
    page = opened(window)
    text = page.get_by_role("textbox", name="Text to prune")
    page.locator("input[type=file]").set_input_files(file)
    expect(text).to_have_value(re.compile("^INFO request 0"))
    text.fill("something else")

    assert page.locator("input[type=file]").input_value() == ""  # else a browser sees no change in the same file
