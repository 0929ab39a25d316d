"""The view for teams: everyone's figures for an admin, their own for a member, and nothing of it without a team."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.support.browser.product import Product, started
from tests.support.browser.window import Window, Windows
from tests.support.services.store.making import a_metric, opened

from kimi_proxy.services.store.team import AuditEntry
from kimi_proxy.services.team.people import People

TOKEN = "the-server's-own-token"


@dataclass(frozen=True)
class TeamProduct:
    product: Product
    ada: str


async def _fill(home: Path) -> str:
    """Write down what two people used; return the token of one of them."""
    now = time.time()
    async with opened(home) as store:
        people = People(store.team, None, shares=False)
        ada = await people.add("ada", team="platform")
        await people.add("ben", team="web")
        used = replace(a_metric(at=now), person="ada", team="platform", cost_usd=1.25, model="kimi-k2.5")
        others = [replace(used, id=f"req_b{n}", person="ben", team="web", cost_usd=2.5) for n in range(3)]
        await store.sessions.write([], [used, *others])
        await store.team.add_audit([AuditEntry(now, "ada", "recover", "prn_0123456789abcdef")])
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


def test_without_a_team_there_is_no_such_view(window: Window):
    expect(window.open().page.get_by_role("link", name="Settings")).to_be_visible()
    expect(window.page.get_by_role("link", name="Team")).to_have_count(0)
