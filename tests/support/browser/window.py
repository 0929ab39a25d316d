"""A window of the browser, and what goes wrong in it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Literal

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Locator, Page, expect, sync_playwright
from tests.support.browser.chromium import ARGUMENTS

# Costs nothing where the page is quick; Playwright's own 5 s for `expect` are too few on a busy machine.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)

Theme = Literal["light", "dark"]

# Runs before the page does: what a script of a stranger would do is noticed here.
WATCH = """
window.strangers = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.strangers.push(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
"""
REST = "compression"  # where a window waits for the next test, which begins with another view
# What stays of a test in a page whose view is left.
FORGET = """async () => {
  (await import("/dashboard/state/focus.js")).pin("");
  document.activeElement?.blur();
  scrollTo(0, 0);
}"""


class Window:
    def __init__(self, page: Page, address: str, has_policy: bool = True) -> None:
        self.page = page
        self._has_policy = has_policy
        self.address = address
        self.faults: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("console", self._heard)
        page.on("dialog", self._asked)

    def open(self, view: str = "live", *path: str) -> "Window":
        """Show a view, once it is drawn."""
        self.page.goto(f"{self.address}/#/{'/'.join((view, *path))}")
        self.page.locator(f"body:has(nav li a[href='#/{view}'][aria-current=page]) main .view").wait_for()
        return self

    def card(self, title: str) -> Locator:
        return self.page.get_by_role("region", name=title, exact=True)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name)

    @property
    def text(self) -> str:
        return self.page.locator("main").inner_text()

    def strangers(self) -> list[str]:
        """What the page's policy had to forbid."""
        found: list[str] = self.page.evaluate("window.strangers")
        return found

    def check(self) -> None:
        """Raise AssertionError if the page had a fault, or its policy had to forbid something."""
        assert self.faults == [], self.faults
        if self._has_policy:
            assert self.strangers() == [], self.strangers()

    def forget(self) -> None:
        """Leave the view, and undo what outlasts it: another one is drawn as for somebody who has just come."""
        self.page.unroute_all()
        self.page.evaluate(FORGET)
        self.page.mouse.move(0, 0)
        self.open(REST)

    def _heard(self, message: ConsoleMessage) -> None:
        # What a view asks for and the server refuses is the view's to show; a test of that looks there.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(f"console: {message.text}")

    def _asked(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()


class Windows:
    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    @classmethod
    @contextmanager
    def of(cls, program: str) -> Iterator["Windows"]:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
            try:
                yield cls(browser)
            finally:
                browser.close()

    @contextmanager
    def opened(
        self,
        address: str,
        locale: str = "en-GB",
        theme: Theme = "light",
        size: tuple[int, int] = (1440, 900),
        bypass_policy: bool = False,
        has_touch: bool = False,
    ) -> Iterator[Window]:
        context = self._browser.new_context(
            locale=locale,
            color_scheme=theme,
            viewport={"width": size[0], "height": size[1]},
            bypass_csp=bypass_policy,
            permissions=["clipboard-read", "clipboard-write"],
            reduced_motion="reduce",
            has_touch=has_touch,
        )
        try:
            context.add_init_script(WATCH)
            window = Window(context.new_page(), address, has_policy=not bypass_policy)
            yield window
            window.check()
        finally:
            context.close()


class SharedWindow:
    """A window for one test after the other: a view costs a tenth of the CPU time that loading the page does.

    A test that needs an unused page, or does to it what outlasts a view (a language, a socket of its own), opens one
    itself.
    """

    def __init__(self, opened: Callable[[], AbstractContextManager[Window]]) -> None:
        self._opened = opened
        self._held = ExitStack()
        self._window: Window | None = None

    @contextmanager
    def lent(self) -> Iterator[Window]:
        """The window as it is at first; raise AssertionError for what was wrong with its page, which is then closed."""
        window = self._window = self._window or self._held.enter_context(self._opened())
        try:
            yield window
            window.check()
            window.forget()
        except BaseException:
            self._window = None
            self._held.__exit__(*sys.exc_info())
            raise

    def close(self) -> None:
        self._held.close()
