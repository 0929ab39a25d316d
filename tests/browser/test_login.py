"""Login to the dashboard in a real browser, at an issuer of another site."""

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread

import pytest
from playwright.sync_api import expect
from tests.support.browser.product import started
from tests.support.browser.window import Window, Windows
from tests.support.deep import deep
from tests.support.issuer import CLIENT, SECRET, Issuer, issuer

TOKEN = "the-server's-own-token"


@dataclass(frozen=True)
class LoginProduct:
    address: str  # of another site than the issuer's, which is 127.0.0.1
    issuer: Issuer


@contextmanager
def in_a_thread() -> Iterator[Issuer]:
    """An issuer in a thread of its own: Playwright has an event loop in this one."""
    ready: Future[tuple[Issuer, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        stop = asyncio.Event()
        async with issuer() as here:
            ready.set_result((here, asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = Thread(target=asyncio.run, args=(main(),))
    thread.start()
    here, loop, stop = ready.result(60)
    try:
        yield here
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory, windows: Windows) -> Iterator[LoginProduct]:
    home = tmp_path_factory.mktemp("login")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with in_a_thread() as here:
        toml = f"""[team]
enabled = true
[team.oidc]
issuer = "{here.address}"
client_id = "{CLIENT}"
public_url = "http://localhost:{port}"
new_people = "member"
"""
        secrets = {"KIMI_PROXY_TOKEN": TOKEN, "KIMI_PROXY_OIDC_CLIENT_SECRET": SECRET}
        with started(home, toml, KIMI_PROXY_PORT=str(port), **secrets):
            yield LoginProduct(f"http://localhost:{port}", here)


def forgive_refusals(window: Window) -> None:
    """Forget that the browser says of a socket, too, that it was refused before the login."""
    window.faults[:] = [one for one in window.faults if "HTTP Authentication failed" not in one]


@deep("tests/team/test_login.py runs the same logins without a browser")
def test_a_login_leads_back_to_the_view_and_lasts_until_the_logout(windows: Windows, login: LoginProduct):
    with windows.opened(login.address) as window:
        window.page.goto(f"{login.address}/#/sessions")
        dialog = window.page.get_by_role("dialog", name="Log in to kimi-proxy")
        expect(dialog.get_by_label("Token")).to_be_visible()
        dialog.get_by_role("button", name="Log in").click()
        expect(window.button("Log out (ada)")).to_be_visible()
        assert window.page.url == f"{login.address}/#/sessions"
        expect(window.page.get_by_role("status").filter(has_text="Connected")).to_be_visible()  # the socket, too
        assert window.page.evaluate("document.cookie") == ""
        window.page.reload()
        window.button("Log out (ada)").click()
        expect(dialog).to_be_visible()
        forgive_refusals(window)


@deep("tests/team/test_login.py runs the same logins without a browser")
def test_a_login_that_fails_says_why(windows: Windows, login: LoginProduct):
    with windows.opened(login.address, locale="fr-FR") as window:
        window.page.goto(login.address)
        login.issuer.claims = {"nonce": "another"}
        window.button("Se connecter").click()
        expect(window.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("n’a pas pu être vérifiée")
        login.issuer.claims = {}
        window.button("Se connecter").click()
        expect(window.button("Se déconnecter (ada)")).to_be_visible()
        forgive_refusals(window)
