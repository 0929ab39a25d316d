"""Where a browser is: named by KIMI_PROXY_BROWSER, else the system's."""

import os
import shutil

# The one without a window of its own takes a quarter less CPU time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Without a user namespace there is no sandbox to be had, as in most containers; pages here are our own.
# All pages are ours, so one process may draw several of them.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-site-isolation-trials",
    "--disable-features=SpareRendererForSitePerProcess,IsolateOrigins,site-per-process",
)


def find() -> str | None:
    named = os.environ.get("KIMI_PROXY_BROWSER")
    if named:
        return named if os.access(named, os.X_OK) else None
    return next((found for name in NAMES if (found := shutil.which(name))), None)
