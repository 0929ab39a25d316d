"""Budgets hold however a model is spelled, whatever the path, and however fast or unfinished requests are."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from tests.support.api.team import TEAM, Team, team
from tests.support.api.watching import completion
from tests.support.evil import Heard, Line, answering, http
from tests.support.processes import until

from kimi_proxy.core.chat import Wire
from kimi_proxy.proxy.headers import UpstreamRequest
from kimi_proxy.services.chat.admission import charge_of
from kimi_proxy.services.store.usage import UsageKey
from kimi_proxy.team.records import UsageRange
from kimi_proxy.team.tables import team_tables

SAID = [{"role": "user", "content": "hello"}]
PRICED = """
[models."openai-evil/big-model"]
provider = "openai-evil"
max_context_size = 1000000
input_usd_per_million = 1.0
output_usd_per_million = 2.0
"""
MONEY = '[team.budgets.each]\nperson = "*"\nusd = 5\n'
USE = UsageKey("2000-01-01", "ada", "", "m")
TWO_DOLLARS = completion(prompt=2_000_000, cached=0, written=0)


async def ask(client: httpx.AsyncClient, model: str = "openai-evil/big-model", **more: object) -> httpx.Response:
    return await client.post("/v1/chat/completions", json={"model": model, "messages": SAID, **more})


async def report(t: Team, client: httpx.AsyncClient) -> list[dict[str, float]]:
    await t.proxy.runtime.sessions.caught_up()
    rows: list[dict[str, float]] = (await client.get("/api/report", params={"by": "model"})).json()["rows"]
    return rows


async def spent(t: Team) -> float:
    """What the account has of ada's requests, with those that are still open."""
    await t.proxy.runtime.sessions.caught_up()
    tables = team_tables(t.proxy.runtime.store)
    (ada,) = [one for one in await tables.people() if one.name == "ada"]
    (one,) = await tables.admit(USE, [UsageRange("2000-01-01", person=ada.id)], lambda sums: False)
    return round(one.usd, 4)


@pytest.mark.parametrize("budgeted", ["anthropic/claude-opus-5", "claude-opus-5", "Claude-Opus-5-20260101"])
async def test_a_budget_of_a_model_counts_every_spelling_of_its_name(tmp_path: Path, budgeted: str):
    budget = f'[team.budgets.model]\nmodel = "{budgeted}"\nrequests = 3\n'
    spellings = "claude-opus-5", "x/claude-opus-5", "openai-evil/claude-opus-5-20260101", "claude-opus-5-latest"
    async with team(tmp_path, budget) as t, t.person("ada") as ada:
        answers = [await ask(ada, name) for name in (*spellings, "CLAUDE-OPUS-5", "other-model")]

    assert [one.status_code for one in answers] == [200, 200, 200, 429, 429, 200]


async def test_the_price_of_a_model_holds_for_every_spelling_of_its_name(tmp_path: Path):
    spellings = "openai-evil/big-model", "big-model", "Big-Model-latest", "big-model-2026-01-01", "x/big-model"
    async with team(tmp_path, PRICED, script=answering(http(TWO_DOLLARS))) as t, t.person("ada") as ada:
        for name in spellings:
            assert (await ask(ada, name)).status_code == 200
        (row,) = await report(t, ada)

    assert (row["model"], row["requests"], row["cost_usd"]) == ("openai-evil/big-model", 5, 10.0)


async def test_requests_one_right_after_the_other_stop_at_a_budget_in_money(tmp_path: Path):
    async with team(tmp_path, MONEY + PRICED, script=answering(http(TWO_DOLLARS))) as t, t.person("ada") as ada:
        answers = [await ask(ada) for _ in range(6)]

    assert [one.status_code for one in answers] == [200, 200, 200, 429, 429, 429]


async def test_requests_at_once_stop_at_what_they_will_probably_cost(tmp_path: Path):
    """Each of them is 4 MB, which is about a million tokens, a dollar."""
    go_on = asyncio.Event()

    async def script(heard: Heard, line: Line) -> None:
        await go_on.wait()
        await line.send(http(TWO_DOLLARS))

    long = [{"role": "user", "content": "word " * 800_000}]
    async with team(tmp_path, MONEY + PRICED, script=script) as t, t.person("ada") as ada:
        body = json.dumps({"model": "openai-evil/big-model", "messages": long}).encode()
        headers = {"content-type": "application/json"}
        asked = [asyncio.create_task(ada.post("/v1/chat/completions", content=body, headers=headers)) for _ in range(9)]
        await until(lambda: sum(one.done() for one in asked) >= 4)
        go_on.set()
        statuses = sorted(one.status_code for one in await asyncio.gather(*asked))

    assert statuses.count(200) == 5 and statuses.count(429) == 4


async def test_a_client_that_hangs_up_before_the_count_pays_what_was_reserved(tmp_path: Path):
    async def script(heard: Heard, line: Line) -> None:
        await line.stream(b'data: {"choices":[{"delta":{"content":"h"}}]}\n\n', ends=False)
        await line.until_left()

    async with team(tmp_path, MONEY + PRICED, script=script) as t, t.person("ada") as ada:
        body = {"model": "openai-evil/big-model", "messages": SAID, "stream": True, "max_tokens": 5000}
        async with ada.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for _ in answer.aiter_bytes():
                break
        await until(lambda: len(t.provider.left_at) == 1)
        (row,) = await report(t, ada)

    assert 0.01 <= row["cost_usd"] < 0.011


async def test_relayed_requests_are_in_the_account(tmp_path: Path):
    answer = json.dumps({"data": [], "usage": {"prompt_tokens": 1_000_000, "total_tokens": 1_000_000}}).encode()
    async with team(tmp_path, PRICED, script=answering(http(answer))) as t, t.person("ada") as ada:
        asked = {"model": "openai-evil/big-model", "input": "x", "prompt": "x"}
        for path in ("/v1/embeddings", "/v1/completions"):
            assert (await ada.post(path, json=asked)).status_code == 200
        cost = await spent(t)

    assert cost == 2.0


async def test_relayed_requests_stop_at_a_budget_in_money(tmp_path: Path):
    answer = json.dumps({"data": [], "usage": {"prompt_tokens": 2_000_000, "total_tokens": 2_000_000}}).encode()
    async with team(tmp_path, MONEY + PRICED, script=answering(http(answer))) as t, t.person("ada") as ada:
        asked = {"model": "openai-evil/big-model", "input": "x"}
        answers = [await ada.post("/v1/embeddings", json=asked) for _ in range(5)]

    assert [one.status_code for one in answers] == [200, 200, 200, 429, 429]


async def test_what_has_no_price_when_it_is_sent_is_refused_under_a_budget_in_money(tmp_path: Path):
    async with team(tmp_path, MONEY + PRICED) as t, t.person("ada") as ada:
        body = {"model": "openai-evil/big-model", "prompt": "x", "requests": []}
        image = await ada.post("/v1/images/generations", json=body)
        speech = await ada.post("/v1/audio/speech", json=body)

        assert [one.status_code for one in (image, speech)] == [403, 403]
        assert "'each' is in money" in image.json()["error"]["message"]
        assert t.provider.heard == []


REQUESTS = '[team.budgets.each]\nperson = "*"\nrequests = 5\n'


@pytest.mark.parametrize("budget", [MONEY, REQUESTS])
@pytest.mark.parametrize(
    ("choice", "status"),
    [("", 503), ('budgets_without_store = "allow"', 200), ('budgets_without_store = "refuse"', 503)],
)
async def test_a_setting_says_which_way_budgets_fail_without_a_store(
    tmp_path: Path, choice: str, status: int, budget: str
):
    async with team(tmp_path, budget + PRICED, f"{TEAM}{choice}\n") as t, t.person("ada") as ada:
        assert (await ask(ada)).status_code == 200
        await t.proxy.runtime.store.close()
        assert (await ask(ada)).status_code == status


@pytest.mark.parametrize(
    ("method", "path", "charge"),
    [
        ("POST", "", "counted"),
        ("POST", "/v1/completions", "counted"),
        ("POST", "/v1/messages/batches", "unpriced"),
        ("POST", "/v1/batches/", "unpriced"),
        ("POST", "/v1/images/edits", "unpriced"),
        ("POST", "/v1/batches/batch_1/cancel", "free"),
        ("POST", "/v1/messages/batches/anything", "unpriced"),
        ("POST", "/v1/responses/resp_1", "unpriced"),
        ("POST", "/v1internal:anything", "unpriced"),
        ("POST", "/v1internal:loadCodeAssist", "free"),
        ("GET", "/v1/batches", "free"),
        ("POST", "/v1/messages/count_tokens", "free"),
        ("POST", "/v1/files", "free"),
    ],
)
def test_a_path_says_how_its_provider_charges(method: str, path: str, charge: str):
    assert charge_of(UpstreamRequest(Wire.CHAT, b"", path=path, method=method)) == charge
