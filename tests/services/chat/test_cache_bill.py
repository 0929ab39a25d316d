"""The whole product against providers that cache by their own rules: what they charge is what the account says."""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.cached_days import (
    CASES,
    FREE,
    RECORDED,
    Case,
    a_day,
    answers,
    changed_prefixes,
    recorded_day,
    toml,
)
from tests.support.cached_providers import CachedProvider
from tests.support.evil import evil
from tests.support.fakes import Clock

from kimi_proxy.assembly.runtime import running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.services.chat.requests import ChatRequest

KINDS: dict[str, dict[str, bool]] = {
    "plain": {},
    "thinking": {"thinks": True},
    "thinking, images and documents": {"thinks": True, "looks": True},
}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("name", list(CASES))
async def test_the_account_s_net_is_the_bill_without_us_minus_the_bill_with_us(name: str, kind: str, tmp_path: Path):
    """Each day is played twice, against providers that count thinking, images and documents in their own way."""
    case = replace(CASES[name], **KINDS[kind])

    played = await play(case, a_day(case), tmp_path)

    assert played.net == pytest.approx(played.saved, abs=0.01 * played.uncut)
    assert played.saved > 0


@pytest.mark.parametrize("kind", ["plain", "thinking"])
@pytest.mark.parametrize("name", list(RECORDED))
async def test_so_it_is_for_recorded_conversations(name: str, kind: str, tmp_path: Path):
    case = replace(RECORDED[name], **KINDS[kind])

    played = await play(case, recorded_day(case, name), tmp_path)

    assert played.net == pytest.approx(played.saved, abs=0.01 * played.uncut)


@pytest.mark.parametrize("kind", list(KINDS))
async def test_so_it_is_if_the_proxy_restarts_before_the_request_that_cuts_most(kind: str, tmp_path: Path):
    case = replace(CASES["anthropic, 5 minutes"], **KINDS[kind])

    played = await play(case, a_day(case), tmp_path, restarts={34})

    assert played.net == pytest.approx(played.saved, abs=0.01 * played.uncut)


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("name", list(CASES))
async def test_so_it_is_where_the_model_reads_back_what_was_cut(name: str, kind: str, tmp_path: Path):
    """Each time it pays for one more answer, and reads the whole conversation again."""
    case = replace(CASES[name], **KINDS[kind])

    played = await play(case, a_day(case), tmp_path, recalls={14: 1, 20: 2, 37: 1})

    assert played.recalled == 4
    assert played.net == pytest.approx(played.saved, abs=0.01 * played.uncut)


@dataclass(frozen=True)
class Played:
    """A day's bills, and what the account says of it."""

    uncut: float
    bill: float
    net: float
    recalled: int = 0

    @property
    def saved(self) -> float:
        return self.uncut - self.bill


async def play(
    case: Case,
    day: Sequence[tuple[float, bytes]],
    home: Path,
    restarts: Collection[int] = (),
    recalls: Mapping[int, int] | None = None,  # how often the model reads back before its answer to a request
) -> Played:
    """Play a day through the proxy and beside it."""
    clock = Clock(time.time())
    provider, alone = (CachedProvider(clock, case.cache, case.prices) for _ in range(2))
    turns = list(zip(day, answers(case, day), strict=True))
    ends = [0, *sorted(restarts), len(turns)]
    async with evil(provider.answer) as upstream:
        config = parse(toml(upstream.toml(case.kind), case), {}, home)
        for first, end in pairwise(ends):
            async with running(config, thread_max_chars=10**9, now=clock) as runtime:
                for at, ((pause_s, raw), (written, hidden)) in enumerate(turns[first:end], first):
                    clock.advance(pause_s)
                    provider.recalls = (recalls or {}).get(at, 0)
                    provider.written, provider.reasoned, alone.written = written, hidden, written
                    alone.charge(json.loads(raw), case.wire is Wire.MESSAGES)
                    async with runtime.chat.answer(ChatRequest(LOCAL, case.wire, raw)) as answer:
                        assert answer.status == 200
                metrics = [metric async for page in runtime.sessions.metrics(LOCAL, None) for metric in page]
    accounts = [metric.account for metric in metrics if metric.account]
    assert provider.refused == []
    assert len(accounts) == len(day)
    assert sum(metric.cost_usd or 0 for metric in metrics) == pytest.approx(provider.bill, rel=0.0001)
    net = sum(one.net_saved_usd or 0 for one in accounts)
    return Played(alone.bill, provider.bill, net, provider.recalled)


@pytest.mark.parametrize("name", list(CASES))
async def test_while_the_cache_lives_what_was_sent_stays(name: str, tmp_path: Path):
    case, clock = CASES[name], Clock(time.time())
    provider = CachedProvider(clock, case.cache, case.prices)
    async with evil(provider.answer) as upstream:
        config = parse(toml(upstream.toml(case.kind), case), {}, tmp_path)
        async with running(config, thread_max_chars=10**9, now=clock) as runtime:
            for pause_s, raw in a_day(case):
                clock.advance(pause_s)
                async with runtime.chat.answer(ChatRequest(LOCAL, case.wire, raw)):
                    pass
    # Without marks nothing is cached of the first request.
    expected = FREE | ({1} if name == "anthropic, a client without marks" else set())
    assert changed_prefixes(provider.prompts) <= expected
