"""What is noted of the memory in requests."""

from dataclasses import replace
from pathlib import Path

from tests.services.store.making import opened

from kimi_proxy.features.context import Context, Layout, Sink
from kimi_proxy.features.memory import MemoryFound
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store import MemoryTotals
from kimi_proxy.services.store.sqlite.sessions import KEEP_S, MemoryKind

LAYOUT = Layout((MemoryFound("@recall", 2, 30, "@recall(a)"),), (), Sink(5, 0, 10), is_reminded=False)


def a_metric(id: str, session: str = "ses_1", context: Context | None = None, at: float = 1.0) -> Metric:
    return Metric(id, session, at, "p", "m", "chat", 100, 0, (), None, context=context)


def a_context(layout: Layout = LAYOUT) -> Context:
    return Context(10, 30, 20, 40, layout)


async def test_requests_are_summed_and_kinds_counted_by_the_newest_of_each_session(tmp_path: Path):
    more = replace(LAYOUT, found=(MemoryFound("@recall", 3, 45, "@recall(a)"),))
    async with opened(tmp_path) as store:
        requests = [
            a_metric("req_1", context=a_context()),
            a_metric("req_2", context=a_context(more)),
            a_metric("req_3", "ses_2", a_context()),
            a_metric("req_4", "ses_3", Context(1, 0, 2, 3, Layout((), (), Sink(0, 0, None), is_reminded=False))),
            a_metric("req_5", "ses_4"),  # nobody looked
        ]
        await store.sessions.write((), requests)
        sums = await store.sessions.memory_totals()

    assert sums == MemoryTotals(4, 3, 2, 31, 90, 62, 123, (MemoryKind("@recall", 2, 5, 75),))


async def test_what_is_read_back_has_the_counts_and_the_session_has_the_rest(tmp_path: Path):
    async with opened(tmp_path) as store:
        await store.sessions.write((), [a_metric("req_1", context=a_context())])
        (read,) = await store.sessions.newest_metrics(1)
        memory, layout = await store.sessions.newest_context("ses_1")
        nothing = await store.sessions.newest_context("ses_2")

    assert read.context == Context(10, 30, 20, 40)
    assert memory == {
        "memory_tokens": 30,
        "memory_ratio": 0.3,
        "kinds": [{"kind": "@recall", "segments": 2, "tokens": 30, "preview": "@recall(a)"}],
    }
    assert isinstance(layout, dict)
    assert layout["attention_sink"]["distance"] == 10
    assert nothing == (None, None)


async def test_a_request_that_is_written_twice_is_there_once(tmp_path: Path):
    async with opened(tmp_path) as store:
        for _ in range(2):
            await store.sessions.write((), [a_metric("req_1", context=a_context())])
        sums = await store.sessions.memory_totals()

    assert (sums.requests, sums.kinds) == (1, (MemoryKind("@recall", 1, 2, 30),))


async def test_segments_go_with_their_age(tmp_path: Path):
    now = 1_800_000_000.0
    async with opened(tmp_path, now=lambda: now) as store:
        await store.sessions.write((), [a_metric("req_1", context=a_context(), at=now - KEEP_S - 1)])
        await store.sessions.write((), [a_metric("req_2", "ses_2", at=now)])
        sums = await store.sessions.memory_totals()

    assert sums.kinds == ()
