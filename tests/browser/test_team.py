"""The view for teams: everyone's figures for an admin, their own for a member, and nothing of it without a team."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect
from tests.support.browser.product import Product, started
from tests.support.browser.window import Window, Windows
from tests.support.services.store.making import a_metric, opened

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.team.people import People
from kimi_proxy.team.records import AuditEntry
from kimi_proxy.team.tables import team_tables

TOKEN = "the-server's-own-token"


@dataclass(frozen=True)
class TeamProduct:
    product: Product
    ada: str


async def _fill(home: Path) -> str:
    """Write down what two people used; return the token of one of them."""
    now = time.time()
    async with opened(home) as store:
        people = People(team_tables(store), None, shares=False)
        ada = await people.add(LOCAL, "ada", team="platform")
        ben = await people.add(LOCAL, "ben", team="web")
        used = replace(a_metric(at=now), person=ada.person.id, team="platform", cost_usd=1.25, model="kimi-k2.5")
        others = [replace(used, id=f"req_b{n}", person=ben.person.id, team="web", cost_usd=2.5) for n in range(3)]
        await store.sessions.write([], [used, *others])
        await team_tables(store).add_audit([AuditEntry(now, "ada", "recover", "prn_0123456789abcdef")])
    return ada.token


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory, windows: Windows) -> Iterator[TeamProduct]:
    home = tmp_path_factory.mktemp("team")
    with ThreadPoolExecutor(1) as thread:  # Playwright has a loop of its own in this one
        ada = thread.submit(lambda: asyncio.run(_fill(home))).result()
    with started(home, "[team]\nenabled = true\n", KIMI_PROXY_TOKEN=TOKEN) as product:
        yield TeamProduct(product, ada)


def test_an_admin_sees_what_everyone_used_and_who_did_what(windows: Windows, team: TeamProduct):
    with windows.opened(team.product.address) as window:
        window.page.add_init_script(f'sessionStorage.setItem("kimi-proxy.token", "{TOKEN}")')
        used = window.open("team").card("Usage")
        expect(used.get_by_role("row").nth(1)).to_contain_text("ben")
        expect(used.get_by_role("row").nth(1)).to_contain_text("$7.50")
        used.get_by_label("By").select_option("team,day")
        expect(used.get_by_role("row").nth(1)).to_contain_text("web")
        expect(window.card("Audit log").get_by_role("row", name="Recovered an original")).to_be_visible()
        expect(window.card("People").get_by_role("row")).to_have_count(3)


def test_a_member_sees_their_own_in_french(windows: Windows, team: TeamProduct):
    with windows.opened(team.product.address, locale="fr-FR", theme="dark") as window:
        window.page.add_init_script(f'sessionStorage.setItem("kimi-proxy.token", "{team.ada}")')
        used = window.open("team").card("Consommation")
        expect(used.get_by_role("row")).to_have_count(2)
        expect(used.get_by_role("row").nth(1)).to_contain_text("ada")
        expect(window.page.get_by_role("link", name="Équipe")).to_be_visible()
        expect(window.card("Journal d’audit")).to_have_count(0)


def act(window: Window, name: str, kind: str, confirm: str = "") -> None:
    """Press a person's button, and confirm what its dialog asks."""
    window.button(f"{kind} {name}").click()
    window.page.get_by_role("dialog").get_by_role("button", name=confirm or kind.split(" ")[0], exact=True).click()


def shown_token(window: Window, done: str = "I copied it") -> str:
    """Read the token that is shown once, and close its dialog."""
    dialog = window.page.get_by_role("dialog")
    token = dialog.locator("pre").inner_text()
    assert dialog.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")  # all of it can be read
    dialog.get_by_role("button", name="Copy" if done == "I copied it" else "Copier").click()
    assert window.page.evaluate("navigator.clipboard.readText()") == token
    dialog.get_by_role("button", name=done).click()
    return token


def person_with(team: TeamProduct, token: str) -> str | None:
    """Return whose token this is; None if it does not work."""
    headers = {"authorization": f"Bearer {token}"}
    answer = httpx.get(f"{team.product.address}/api/me", headers=headers, trust_env=False, timeout=60)
    return str(answer.json()["person"]) if answer.status_code == 200 else None


def wait_for_end(team: TeamProduct, token: str) -> None:
    """Return once a token does not work any more: the server looks it up again every two seconds."""
    end = time.monotonic() + 60
    while person_with(team, token) is not None:
        assert time.monotonic() < end, "the token still works"
        time.sleep(0.1)


def test_an_admin_adds_a_person_and_erases_them_later(windows: Windows, team: TeamProduct):
    with windows.opened(team.product.address) as window:
        window.page.add_init_script(f'sessionStorage.setItem("kimi-proxy.token", "{TOKEN}")')
        people = window.open("team").card("People")
        people.get_by_role("button", name="Add").click()
        form = window.page.get_by_role("dialog")
        form.get_by_label("Person").fill("ada")
        form.get_by_role("button", name="Add").click()
        expect(form).to_contain_text("'ada' already exists")
        form.get_by_label("Person").fill("cleo")
        form.get_by_label("Team").fill("web")
        form.get_by_role("button", name="Add").click()
        first = shown_token(window)
        row = people.get_by_role("row", name="cleo")
        expect(row).to_contain_text("web")
        act(window, "cleo", "New token for", "New token")
        second = shown_token(window)
        assert person_with(team, second) == "cleo"
        wait_for_end(team, first)

        act(window, "cleo", "Revoke")
        expect(row).to_contain_text("Revoked")
        with window.page.expect_download() as kept:
            act(window, "cleo", "Export the data of", "Export")
        assert '"cleo"' in kept.value.path().read_text("utf-8")
        act(window, "cleo", "Erase")
        expect(row).to_have_count(0)
        expect(people.get_by_role("row")).to_have_count(3)

        window.page.reload()
        entries = window.open("team").card("Audit log")
        for action in ("Added a person", "Exported a person's data", "Erased a person"):
            expect(entries.get_by_role("row", name=action).filter(has_text="cleo")).to_be_visible()


def test_a_revoked_person_is_removed_and_the_name_is_free(windows: Windows, team: TeamProduct):
    with windows.opened(team.product.address) as window:
        window.page.add_init_script(f'sessionStorage.setItem("kimi-proxy.token", "{TOKEN}")')
        people = window.open("team").card("People")
        for _ in range(2):
            people.get_by_role("button", name="Add").click()
            window.page.get_by_role("dialog").get_by_label("Person").fill("dan")
            window.page.get_by_role("dialog").get_by_role("button", name="Add").click()
            token = shown_token(window)
            act(window, "dan", "Revoke")
            expect(people.get_by_role("row", name="dan")).to_contain_text("Revoked")
            act(window, "dan", "Remove")
            expect(people.get_by_role("row", name="dan")).to_have_count(0)
            wait_for_end(team, token)


def test_a_member_makes_a_token_on_a_phone_in_french_and_ends_it(windows: Windows, team: TeamProduct):
    with windows.opened(team.product.address, locale="fr-FR", size=(390, 844), has_touch=True) as window:
        window.page.add_init_script(f'sessionStorage.setItem("kimi-proxy.token", "{team.ada}")')
        own = window.open("team").card("Vos jetons")
        expect(own).to_contain_text("Vous n’avez créé aucun jeton.")
        own.get_by_role("button", name="Nouveau jeton").click()
        form = window.page.get_by_role("dialog")
        form.get_by_label("Libellé").fill("portable")
        form.get_by_label("Valable").select_option("30")
        form.get_by_role("button", name="Nouveau jeton").click()
        token = shown_token(window, "Je l’ai copié")
        assert person_with(team, token) == "ada"
        expect(own.get_by_role("row", name="portable")).to_contain_text("Actif")
        assert window.page.evaluate("document.documentElement.scrollWidth") <= 390
        with window.page.expect_download() as kept:
            own.get_by_role("button", name="Exporter mes données").click()
        assert '"req_1"' in kept.value.path().read_text("utf-8")
        own.get_by_role("button", name="Révoquer").click()
        expect(own.get_by_role("row", name="portable")).to_have_count(0)
        wait_for_end(team, token)
        expect(window.card("Personnes")).to_have_count(0)


def test_without_a_team_there_is_no_such_view(window: Window):
    expect(window.open().page.get_by_role("link", name="Settings")).to_be_visible()
    expect(window.page.get_by_role("link", name="Team")).to_have_count(0)


def test_a_member_sees_the_settings_of_their_own_requests_alone(windows: Windows, team: TeamProduct):
    with windows.opened(team.product.address) as window:
        window.page.add_init_script(f'sessionStorage.setItem("kimi-proxy.token", "{team.ada}")')
        settings = window.open("settings").card("Settings")
        settings.get_by_text("[sanitizer]").wait_for()
        expect(settings).to_contain_text("Only admins see the others.")
        expect(settings).not_to_contain_text("[log]")
        expect(window.page.get_by_role("heading", name="Secrets")).to_have_count(0)
