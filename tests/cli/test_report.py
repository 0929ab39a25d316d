"""`kimi-proxy report`, from a store that a proxy has written and may still be writing."""

import csv
import io
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from kimi_proxy.features.accounting import Account
from kimi_proxy.features.chat.sessions import LOCAL_IDS
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store.sqlite.store import SqliteStore

from .conftest import Cli

DAY_S = 86_400
MINE = LOCAL_IDS.session_named("day-1").id


def metric(
    id: str, session: str = MINE, days_ago: float = 0.0, model: str = "kimi", account: Account | None = None
) -> Metric:
    at, reasons = time.time() - days_ago * DAY_S, () if account else ("below_threshold", "nothing_to_cut")
    return Metric(
        id, session, at, "p", model, "chat", 900, 0, reasons, None, 200, "ok", "", 1000, 400, 7, 0.5, account=account
    )


SAVED = Account(5000, 1000, 200, 1, 1, 300, 1, 100, 3400, 2.0, 1.4)
LOST = Account(1000, 1000, 800, net_saved_tokens=-800, cost_before_usd=0.4, net_saved_usd=-0.1)


@pytest.fixture
def kept(cli: Cli) -> Cli:
    """Three sessions, one of them a month old."""

    async def write() -> None:
        store = await SqliteStore.open(Path(cli.env["KIMI_PROXY_HOME"]), ttl_s=DAY_S, max_bytes=2**30, timeout_s=60)
        await store.sessions.write(
            (),
            [
                metric("req_1", account=SAVED),
                metric("req_2"),
                replace(metric("req_5"), status=429, outcome="refused", input_tokens=None, cost_usd=None),
                metric("req_3", "ses_other", model="other", account=LOST),
                metric("req_4", "ses_old", days_ago=30, account=SAVED),
            ],
        )
        await store.close()

    anyio.run(write)
    return cli


def test_a_person_reads_what_was_saved_after_all(kept: Cli):
    done = kept("report")

    told = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert told.startswith("4 requests in 3 sessions\n")
    assert "6,000 tokens" in told
    assert "nothing was saved because: below_threshold (1), nothing_to_cut (1)" in told


def test_a_program_reads_one_object(kept: Cli):
    told = json.loads(kept("report", "--json").stdout)

    totals = told["totals"]
    assert (totals["requests"], totals["tokens_before"], totals["tokens_after"]) == (4, 12_000, 4_000)
    assert (totals["cache_lost_tokens"], totals["recovery_tokens"], totals["summary_tokens"]) == (1_200, 600, 200)
    assert (totals["net_saved_tokens"], totals["net_saved_usd"], totals["cost_usd"]) == (6_000, 2.7, 2.0)
    assert totals["cost_before_usd"] == 4.9
    assert {model["model"]: model["net_saved_tokens"] for model in told["models"]} == {"kimi": 6_800, "other": -800}


def test_only_what_is_asked_for_is_told(kept: Cli):
    lately = json.loads(kept("report", "--json", "--since", "7d").stdout)
    mine = list(csv.DictReader(io.StringIO(kept("report", "--csv", "--session", "day-1").stdout.decode())))
    none = kept("report", "--since", "2999-01-01", env={"TZ": "UTC"}).stdout

    assert lately["totals"]["requests"] == 3
    assert [(row["session"], row["requests"], row["reasons"]) for row in mine] == [
        (MINE, "2", "below_threshold=1 nothing_to_cut=1")
    ]
    assert none == b"no requests since 2999-01-01T00:00:00Z\n"


def test_an_empty_home_has_no_requests(cli: Cli):
    assert cli("report").stdout == b"no requests\n"


@pytest.mark.parametrize("arguments", [("--since", "yesterday"), ("--json", "--csv")])
def test_what_makes_no_sense_is_refused(cli: Cli, arguments: tuple[str, ...]):
    done = cli("report", *arguments)

    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["report", "--session"], ["compress"], ["mcp", "logs"]])
def test_a_name_that_is_not_utf8_is_nobodys_and_no_traceback(cli: Cli, command: list[str]):
    done = cli(*command, os.fsdecode(b"caf\xe9"))

    assert b"Traceback" not in done.stderr
    assert done.returncode in (2, 3)
