"""The whole product against providers that cache by their own rules: what they charge is what the account says."""

import json
import time
from pathlib import Path

import pytest
from tests.support.cached_days import CASES, FREE, a_day, changed_prefixes, toml
from tests.support.cached_providers import CachedProvider
from tests.support.evil import evil
from tests.support.fakes import Clock

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.chat.handler import ChatRequest
from kimi_proxy.services.runtime import running


@pytest.mark.parametrize("name", list(CASES))
async def test_what_the_provider_charges_is_what_the_account_says(name: str, tmp_path: Path):
    case, clock = CASES[name], Clock(time.time())
    provider, alone = (CachedProvider(clock, case.cache, case.prices) for _ in range(2))
    day = a_day(case)
    async with evil(provider.answer) as upstream:
        kind = "anthropic" if case.wire is Wire.MESSAGES else "openai"
        config = parse(toml(upstream.toml(kind), case), {}, tmp_path)
        async with running(config, thread_max_chars=10**9, now=clock) as runtime:
            for pause_s, raw in day:
                clock.advance(pause_s)
                alone.charge(json.loads(raw), case.wire is Wire.MESSAGES)
                async with runtime.chat.answer(ChatRequest(LOCAL, case.wire, raw)) as answer:
                    assert answer.status == 200
            metrics: list[Metric] = [metric async for page in runtime.sessions.metrics(LOCAL, None) for metric in page]
    accounts = [metric.account for metric in metrics if metric.account]

    assert provider.refused == []
    assert len(accounts) == len(day)
    assert sum(metric.cost_usd or 0 for metric in metrics) == pytest.approx(provider.bill, rel=0.0001)
    assert sum(one.cost_before_usd or 0 for one in accounts) == pytest.approx(alone.bill, rel=0.01)
    assert provider.bill < alone.bill


@pytest.mark.parametrize("name", list(CASES))
async def test_while_the_cache_lives_what_was_sent_stays(name: str, tmp_path: Path):
    case, clock = CASES[name], Clock(time.time())
    provider = CachedProvider(clock, case.cache, case.prices)
    async with evil(provider.answer) as upstream:
        kind = "anthropic" if case.wire is Wire.MESSAGES else "openai"
        config = parse(toml(upstream.toml(kind), case), {}, tmp_path)
        async with running(config, thread_max_chars=10**9, now=clock) as runtime:
            for pause_s, raw in a_day(case):
                clock.advance(pause_s)
                async with runtime.chat.answer(ChatRequest(LOCAL, case.wire, raw)):
                    pass
    # Without marks nothing is cached of the first request.
    expected = FREE | ({1} if name == "anthropic, a client without marks" else set())
    assert changed_prefixes(provider.prompts) <= expected
