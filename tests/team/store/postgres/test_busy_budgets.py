"""A hard budget of requests while the database is busy: too few pass, never too many."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.support.conversations import User, request
from tests.support.services.store.postgres_server import PostgresServer, controlled, opened, url_of

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config.team import BudgetSettings, TeamSettings
from kimi_proxy.core.errors import BudgetExceeded, BudgetUnknown
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Models, Target
from kimi_proxy.team.budgets import Budgets
from kimi_proxy.team.store.postgres.store import PostgresStore
from kimi_proxy.team.store.postgres.tables import BUDGETS as LOCK
from kimi_proxy.team.tables import team_tables

ADA = Caller("person/ada", "ada", is_admin=False, person_id="psn_1")
LIMIT = 10
SETTINGS = TeamSettings(enabled=True, budgets={"each": BudgetSettings(person="*", requests=LIMIT)})


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with controlled() as running:
        yield running


async def ask_60_at_once(store: PostgresStore) -> Counter[str]:
    budgets = Budgets(SETTINGS, team_tables(store), Models({}, {}))
    draft = Draft(request(Wire.CHAT, [User("hi")]), Target("p", "m"), Session("s"), ADA, id="req_1")

    async def ask() -> str:
        try:
            await budgets.admit(draft, "counted")
        except (BudgetExceeded, BudgetUnknown) as e:
            return e.code
        return "admitted"

    return Counter(await asyncio.gather(*(ask() for _ in range(60))))


async def test_a_busy_database_lets_no_request_past_a_hard_budget(server: PostgresServer, tmp_path: Path) -> None:
    async with opened(server.url, tmp_path, timeout_s=1.0) as store:
        with psycopg.connect(url_of(server.url, tmp_path)) as other:
            other.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            while_busy = await ask_60_at_once(store)
    async with opened(server.url, tmp_path) as store:
        afterwards = await ask_60_at_once(store)

    assert while_busy == {"budget_unknown": 60}
    assert afterwards["admitted"] == LIMIT
    assert afterwards[BudgetExceeded.code] == 60 - LIMIT
