"""A real browser before a real product. Where there is none, these tests say so and are skipped."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.browser import chromium
from tests.support.browser.product import Product, demo
from tests.support.browser.window import SharedWindow, Window, Windows

NONE = (
    "no Chromium here: install one (Debian and Ubuntu: apt install chromium) or name it in KIMI_PROXY_BROWSER, "
    "and the browser tests run"
)


def _browser() -> str:
    program = chromium.find()
    if program is None:
        pytest.skip(NONE)
    return program


# For these tests alone: Playwright's event loop must be gone before others run their own.
@pytest.fixture(scope="package")
def windows() -> Iterator[Windows]:
    with Windows.of(_browser()) as windows:
        yield windows


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A demo after its first day; tests that change something of it choose sessions of their own."""
    _browser()
    with demo(tmp_path_factory.mktemp("demo")) as product:
        yield product


@pytest.fixture(scope="package")
def english(windows: Windows, shop: Product) -> Iterator[SharedWindow]:
    with closing(SharedWindow(lambda: windows.opened(shop.address))) as shared:
        yield shared


@pytest.fixture(scope="package")
def french(windows: Windows, shop: Product) -> Iterator[SharedWindow]:
    with closing(SharedWindow(lambda: windows.opened(shop.address, locale="fr-FR", theme="dark"))) as shared:
        yield shared


@pytest.fixture
def window(english: SharedWindow) -> Iterator[Window]:
    """A window in English before the demo; a fault of the page is a fault of the test."""
    with english.lent() as window:
        yield window


@pytest.fixture
def fenetre(french: SharedWindow) -> Iterator[Window]:
    """The same in French, and dark."""
    with french.lent() as window:
        yield window


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path
