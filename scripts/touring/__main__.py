"""The pictures of the docs, taken while the demo plays its day."""

import base64
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.browser import chromium  # noqa: E402 - found once the root is on the path

IMAGES = ROOT / "docs" / "images"
SIZE: ViewportSize = {"width": 1440, "height": 900}
QUALITY = 0.7
SPEED = 1.5  # slow enough to catch the window while it is nearly full
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PATIENCE_MS = 120_000
SETTLED_MS = 500

# A browser writes WebP, which is a third of the same PNG.
TO_WEBP = """
async ([png, quality]) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
  const canvas = new OffscreenCanvas(image.width, image.height);
  canvas.getContext("2d").drawImage(image, 0, 0);
  const blob = await canvas.convertToBlob({ type: "image/webp", quality });
  const bytes = new Uint8Array(await blob.arrayBuffer());
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}
"""


def nearly_full(page: Page) -> None:
    """Before the red button is pressed."""
    page.locator(".live-window").get_by_text(re.compile(r"(8[5-9]|9\d) ?%")).first.wait_for(timeout=PATIENCE_MS)


def a_cut(page: Page) -> None:
    page.locator("tbody tr", has_text="where is the VAT").first.click()
    page.get_by_role("button", name="Next cut").click()
    page.locator(".line.gap + .line.kept").first.click()


def a_message(page: Page) -> None:
    page.locator(".message-row").first.wait_for()


def a_summary(page: Page) -> None:
    page.locator(".past summary").first.click()


def an_example(page: Page) -> None:
    page.get_by_role("button", name="Use an example").click()
    page.locator(".line.gap").first.wait_for()
    page.locator(".line.kept", has_text="ERROR").first.click()


def nothing(page: Page) -> None:
    """The view as it opens."""


# While the day is played, and once it is over: the picture's name, the view, and what is done there.
DURING: Mapping[str, tuple[str, Callable[[Page], None]]] = {"live": ("live", nearly_full)}
PHONE: ViewportSize = {"width": 390, "height": 844}
AFTER: Mapping[str, tuple[str, Callable[[Page], None]]] = {
    "sessions": ("sessions", nothing),
    "map": ("map", a_message),
    "cuts": ("cuts", nothing),
    "cut": ("cuts", a_cut),
    "compression": ("compression", a_summary),
    "playground": ("playground", an_example),
    "servers": ("servers", nothing),
    "settings": ("settings", nothing),
}


def main(wanted: list[str]) -> None:
    program = chromium.find()
    if program is None:
        sys.exit("no Chromium here: scripts/browser says what to do")
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(chromium.ARGUMENTS))
        for theme in THEMES:
            with demo() as (address, over):
                take(browser, address, theme, {n: v for n, v in DURING.items() if not wanted or n in wanted})
                over()
                take(browser, address, theme, {n: v for n, v in AFTER.items() if not wanted or n in wanted})
                if not wanted or "phone" in wanted:
                    take(browser, address, theme, {"phone": ("live", nothing)}, PHONE)
            if not wanted or "empty" in wanted:
                with server() as address:
                    take(browser, address, theme, {"empty": ("live", nothing)})
        browser.close()


@contextmanager
def demo() -> Iterator[tuple[str, Callable[[], None]]]:
    """The address of a demo, and a function that waits for the end of its day."""
    command = [sys.executable, "-m", "kimi_proxy", "demo", "--no-browser", "--days", "1", "--speed", str(SPEED)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stderr

        def over() -> None:
            next((line for line in said if "is over" in line), None)

        try:
            yield process.stdout.readline().strip().rstrip("/"), over
        finally:
            process.terminate()


@contextmanager
def server() -> Iterator[str]:
    """The address of a server that no agent has asked anything."""
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "HOME": home, "KIMI_PROXY_HOME": f"{home}/state", "KIMI_PROXY_FOLDER": home}
        command = [sys.executable, "-m", "kimi_proxy", "start", "--port", "0", "--pruner-port", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8", env=env, cwd=home) as process:
            assert process.stderr is not None
            try:
                said = next(line for line in process.stderr if "the dashboard is on" in line)
                yield said.rpartition(" ")[2].strip().rstrip("/")
            finally:
                process.terminate()


def take(
    browser: Browser,
    address: str,
    theme: Literal["light", "dark"],
    pictures: Mapping[str, tuple[str, Callable[[Page], None]]],
    size: ViewportSize = SIZE,
) -> None:
    context = browser.new_context(viewport=size, color_scheme=theme, locale="en-GB", reduced_motion="reduce")
    page, press = context.new_page(), context.new_page()
    for name, (view, do) in pictures.items():
        page.goto(f"{address}/#/{view}")
        page.locator("main .view").wait_for()
        do(page)
        page.wait_for_timeout(SETTLED_MS)
        page.mouse.move(0, 0)
        png = base64.b64encode(page.screenshot()).decode()
        webp = base64.b64decode(press.evaluate(TO_WEBP, [png, QUALITY]))
        file = IMAGES / f"{name}-{theme}.webp"
        file.write_bytes(webp)
        print(f"{file.relative_to(ROOT)}  {len(webp) / 1024:.0f} KB")
    context.close()


if __name__ == "__main__":
    main(sys.argv[1:])
