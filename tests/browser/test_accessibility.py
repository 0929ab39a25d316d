"""axe-core finds nothing serious, in either theme, on any view. Where npm cannot fetch it, the test says so."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.support.browser.product import INVOICE, Product
from tests.support.browser.window import SharedWindow, Theme, Window, Windows
from tests.support.clients.servers import INSTALL_S, QUICKLY, installed
from tests.support.deep import IS_DEEP, deep, too

pytestmark = pytest.mark.timeout(INSTALL_S + 600)

PACKAGE = "axe-core@4.11.0"
VIEWS = ("live", "sessions", "map", "cuts", "compression", "playground", "servers", "settings")
SERIOUS = ("serious", "critical")
THEMES: tuple[Theme, ...] = ("light", "dark")


def _install(place: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("there is no npm")
    command = [npm, "install", *QUICKLY, "--prefix", str(place), PACKAGE]
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S)


@pytest.fixture(scope="module")
def axe(windows: Windows) -> str:
    return (installed("axe-core", _install) / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


def themes(*always: str) -> pytest.MarkDecorator:
    """The test in each theme; those that are not named here with --deep."""
    cases = [theme if theme in always else too(theme) for theme in THEMES]
    return pytest.mark.parametrize("judged", cases, indirect=True)


@pytest.fixture(scope="module")
def judges(windows: Windows, shop: Product, axe: str) -> Iterator[dict[Theme, SharedWindow]]:
    @contextmanager
    def opened(theme: Theme) -> Iterator[Window]:
        # axe comes from outside: the page's own policy would not let it in.
        with windows.opened(shop.address, theme=theme, bypass_policy=True) as window:
            window.page.add_init_script(axe)
            yield window

    shared = {theme: SharedWindow(partial(opened, theme)) for theme in THEMES}
    yield shared
    for window in shared.values():
        window.close()


@pytest.fixture
def judged(request: pytest.FixtureRequest, judges: dict[Theme, SharedWindow]) -> Iterator[Window]:
    with judges[request.param].lent() as window:
        yield window


def serious(window: Window, *rules: str) -> list[str]:
    """What is wrong by these rules, or by all."""
    asked = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    found = window.page.evaluate("(asked) => axe.run(document, asked)", asked)
    return [
        f"{one['id']}: {node['target']} {json.dumps(node['any'][:1])[:300]}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
        for node in one["nodes"][:3]
    ]


def settled(window: Window, view: str) -> Window:
    window.open(view)
    window.page.wait_for_load_state("networkidle")
    window.page.wait_for_timeout(200)
    return window


@themes("light")
def test_nothing_serious_is_found_on_any_view(judged: Window):
    views = VIEWS if IS_DEEP else VIEWS[:4]
    found = {view: serious(settled(judged, view)) for view in views}

    assert found == {view: [] for view in views}


@deep("it opens every view once more")
@pytest.mark.parametrize("judged", ["dark"], indirect=True)
def test_everything_can_be_read_in_the_dark(judged: Window):
    found = {view: serious(settled(judged, view), "color-contrast") for view in VIEWS}

    assert found == {view: [] for view in VIEWS}


@deep("axe takes seconds for each state of a view; the views themselves always run")
@themes("light")
def test_nothing_serious_is_found_where_a_cut_is_shown(judged: Window):
    page = settled(judged, "cuts").page
    page.locator("tbody tr", has_text="where is the VAT").first.click()
    judged.button("Next cut").click()
    page.locator(".line.gap button").first.click()
    page.locator(".line.gone").first.click()

    assert serious(judged) == []


@deep("axe takes seconds for each state of a view; the views themselves always run")
@themes("light")
def test_nothing_serious_is_found_while_the_playground_folds(judged: Window):
    page = settled(judged, "playground").page
    judged.button("Use an example").click()
    page.locator(".line.gap").first.wait_for()

    assert serious(judged) == []


@deep("axe takes seconds for each state of a view; the views themselves always run")
@themes("light")
def test_nothing_serious_is_found_where_something_is_explained(judged: Window):
    page = settled(judged, "live").page
    page.locator("button.explained").first.press("Enter")
    page.get_by_role("tooltip").wait_for()

    assert serious(judged) == []


@deep("axe takes seconds for each state of a view; the views themselves always run")
@themes("light")
def test_nothing_serious_is_found_where_summaries_and_summarized_messages_are_unfolded(judged: Window):
    page = settled(judged, "live").page
    page.get_by_role("button", name=INVOICE).first.click()
    settled(judged, "compression").page.locator(".past summary").first.click()
    found = serious(judged)
    settled(judged, "map").page.locator(".message-row.behind button").click()
    found += serious(judged)
    page.locator(".message-row.gone button").first.click()
    page.get_by_role("dialog").locator("pre").first.wait_for()

    assert found + serious(judged) == []


@themes("light")
def test_nothing_serious_is_found_in_a_dialog(judged: Window):
    page = settled(judged, "servers").page
    page.get_by_role("button", name="Log: ticket-desk").click()
    page.get_by_role("dialog").wait_for()

    assert serious(judged) == []


@deep("it tests axe, not kimi-proxy")
@themes("light")
def test_axe_itself_finds_what_is_wrong(judged: Window):
    page = settled(judged, "live").page
    page.evaluate("document.querySelector('main').appendChild(document.createElement('button'))")
    found = serious(judged)
    page.evaluate("document.querySelector('main > button').remove()")

    assert any("button-name" in each for each in found)
