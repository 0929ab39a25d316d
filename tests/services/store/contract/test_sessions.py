"""What a store promises of sessions, their requests and the memory in them."""

from dataclasses import replace
from pathlib import Path

from tests.services.store.contract.conftest import Opening
from tests.support.fakes import Clock
from tests.support.services.store.making import a_metric, a_session, all_metrics, an_original

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.features.chat.context import Context, Layout, Sink
from kimi_proxy.features.chat.memory import MemoryFound
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store.protocols import MemoryKind, MemoryTotals

DAY_S = 86_400.0
HALF_A_YEAR_S = 180 * DAY_S
LAYOUT = Layout((MemoryFound("@recall", 2, 30, "@recall(a)"),), (), Sink(5, 0, 10), is_reminded=False)


async def test_what_was_written_comes_back_after_a_restart(tmp_path: Path, opened: Opening) -> None:
    bare = replace(
        a_metric("req_2"), input_tokens=None, cached_tokens=None, output_tokens=None, cost_usd=None, reasons=()
    )
    async with opened(tmp_path) as store:
        await store.sessions.write([a_session(name="mine")], [a_metric(), bare])
    async with opened(tmp_path) as store:
        assert await all_metrics(store.sessions) == [a_metric(), bare]
        assert await store.sessions.get(LOCAL, "ses_a") == replace(
            a_session(name="mine"),
            requests=2,
            input_tokens=100,
            cached_tokens=40,
            output_tokens=7,
            tokens_saved=10,
            cost_usd=0.25,
            cost_before_usd=0.25,
        )
        assert await store.sessions.newest_metric(LOCAL, "ses_a") == bare


async def test_what_is_written_twice_counts_once(tmp_path: Path, opened: Opening) -> None:
    async with opened(tmp_path) as store:
        for _ in range(3):
            await store.sessions.write([a_session()], [a_metric()])
        session = await store.sessions.get(LOCAL, "ses_a")
        assert session is not None
        assert (session.requests, session.input_tokens, session.cost_usd) == (1, 100, 0.25)
        assert await all_metrics(store.sessions) == [a_metric()]


async def test_a_cost_that_nobody_knows_is_not_zero(tmp_path: Path, opened: Opening) -> None:
    async with opened(tmp_path) as store:
        await store.sessions.write([a_session()], [replace(a_metric(), cost_usd=None)])
        session = await store.sessions.get(LOCAL, "ses_a")
    assert session is not None
    assert session.cost_usd is None


async def test_a_request_of_a_session_that_was_deleted_begins_it_again(tmp_path: Path, opened: Opening) -> None:
    async with opened(tmp_path) as store:
        await store.sessions.write([a_session(title="old")], [])
        assert await store.sessions.delete(LOCAL, ["ses_a"]) == ["ses_a"]
        await store.sessions.write([], [a_metric()])
        session = await store.sessions.get(LOCAL, "ses_a")
    assert session is not None
    assert (session.title, session.requests, session.model) == ("", 1, "m")


async def test_a_session_talks_to_whom_its_newest_request_talked(tmp_path: Path, opened: Opening) -> None:
    async with opened(tmp_path) as store:
        await store.sessions.write(
            [a_session(at=50.0)], [a_metric(), replace(a_metric("req_2", at=200.0), model="larger")]
        )
        session = await store.sessions.get(LOCAL, "ses_a")
    assert session is not None
    assert (session.model, session.created, session.last_used) == ("larger", 50.0, 200.0)


async def test_sessions_come_in_pages_the_last_used_first(tmp_path: Path, opened: Opening) -> None:
    sessions = [a_session(f"ses_{n}", at=float(n // 2)) for n in range(9)]
    async with opened(tmp_path) as store:
        await store.sessions.write(sessions, [])
        first = await store.sessions.newest(LOCAL, 4)
        second = await store.sessions.newest(LOCAL, 4, (first[-1].last_used, first[-1].id))
        third = await store.sessions.newest(LOCAL, 4, (second[-1].last_used, second[-1].id))
        assert await store.sessions.count(LOCAL) == 9
    assert [session.id for session in (*first, *second, *third)] == [f"ses_{n}" for n in reversed(range(9))]


async def test_requests_come_by_session_and_in_their_order(tmp_path: Path, opened: Opening) -> None:
    metrics = [a_metric(f"req_{n}", f"ses_{n % 2}", float(n)) for n in range(20)]
    async with opened(tmp_path) as store:
        await store.sessions.write([], metrics)
        assert await all_metrics(store.sessions, "ses_1") == metrics[1::2]
        assert await store.sessions.newest_metrics(LOCAL, 3) == metrics[-3:]
        page = await store.sessions.metrics(LOCAL, None, 0, 7)
        assert [m for _, m in await store.sessions.metrics(LOCAL, None, page[-1][0], 7)] == metrics[7:14]


async def test_renaming_and_deleting_touch_nobody_else(tmp_path: Path, opened: Opening) -> None:
    async with opened(tmp_path) as store:
        session_store = store.sessions
        await session_store.write([a_session("ses_a"), a_session("ses_b")], [a_metric(), a_metric("req_2", "ses_b")])
        assert await session_store.rename(LOCAL, "ses_a", 'it\'s "mine"; DROP TABLE sessions --')
        assert not await session_store.rename(LOCAL, "ses_x", "nobody")
        assert await session_store.delete(LOCAL, ["ses_b", "ses_x", "' OR 1=1 --"]) == ["ses_b"]
        assert [(s.id, s.title) for s in await session_store.newest(LOCAL, 10)] == [
            ("ses_a", 'it\'s "mine"; DROP TABLE sessions --')
        ]
        assert await all_metrics(session_store) == [a_metric()]
        assert await session_store.delete_all(LOCAL) == ["ses_a"]
        assert (await session_store.count(LOCAL), await all_metrics(session_store)) == (0, [])


async def test_what_is_older_than_half_a_year_goes(tmp_path: Path, opened: Opening) -> None:
    clock = Clock(400 * DAY_S)
    old = clock.at - HALF_A_YEAR_S - DAY_S
    async with opened(tmp_path, now=clock) as store:
        await store.sessions.write([a_session("ses_old", old)], [a_metric("req_old", "ses_old", old)])
        await store.sessions.write([a_session("ses_new", clock.at)], [a_metric("req_new", "ses_new", clock.at)])
        assert [m.id for m in await all_metrics(store.sessions)] == ["req_new"]
        assert [s.id for s in await store.sessions.newest(LOCAL, 10)] == ["ses_new"]


async def test_a_clock_that_leaps_ahead_takes_nothing_along(tmp_path: Path, opened: Opening) -> None:
    clock = Clock(400 * DAY_S)
    async with opened(tmp_path, now=clock) as store:
        await store.originals.keep(an_original())
        await store.sessions.write([a_session("ses_a", clock.at)], [a_metric(at=clock.at)])
        clock.advance(10 * 365 * DAY_S)
        await store.sessions.write([], [a_metric("req_2", at=clock.at)])
        assert len(await all_metrics(store.sessions)) == 2


def a_measured(id: str, session: str = "ses_1", context: Context | None = None, at: float = 1.0) -> Metric:
    return Metric(id, session, at, "p", "m", "chat", 100, 0, (), None, context=context)


def a_context(layout: Layout = LAYOUT) -> Context:
    return Context(10, 30, 20, 40, layout)


async def test_requests_are_summed_and_kinds_counted_by_the_newest_of_each_session(tmp_path: Path, opened: Opening):
    more = replace(LAYOUT, found=(MemoryFound("@recall", 3, 45, "@recall(a)"),))
    async with opened(tmp_path) as store:
        requests = [
            a_measured("req_1", context=a_context()),
            a_measured("req_2", context=a_context(more)),
            a_measured("req_3", "ses_2", a_context()),
            a_measured("req_4", "ses_3", Context(1, 0, 2, 3, Layout((), (), Sink(0, 0, None), is_reminded=False))),
            a_measured("req_5", "ses_4"),  # not measured
        ]
        await store.sessions.write((), requests)
        sums = await store.sessions.memory_totals(LOCAL)

    assert sums == MemoryTotals(4, 3, 2, 31, 90, 62, 123, (MemoryKind("@recall", 2, 5, 75),))


async def test_what_is_read_back_has_the_counts_and_the_session_has_the_rest(tmp_path: Path, opened: Opening):
    async with opened(tmp_path) as store:
        await store.sessions.write((), [a_measured("req_1", context=a_context())])
        (read,) = await store.sessions.newest_metrics(LOCAL, 1)
        memory, layout = await store.sessions.newest_context(LOCAL, "ses_1")
        nothing = await store.sessions.newest_context(LOCAL, "ses_2")

    assert read.context == Context(10, 30, 20, 40)
    assert memory == {
        "memory_tokens": 30,
        "memory_ratio": 0.3,
        "kinds": [{"kind": "@recall", "segments": 2, "tokens": 30, "preview": "@recall(a)"}],
    }
    assert isinstance(layout, dict)
    assert layout["attention_sink"]["distance"] == 10
    assert nothing == (None, None)


async def test_a_request_that_is_written_twice_is_there_once(tmp_path: Path, opened: Opening):
    async with opened(tmp_path) as store:
        for _ in range(2):
            await store.sessions.write((), [a_measured("req_1", context=a_context())])
        sums = await store.sessions.memory_totals(LOCAL)

    assert (sums.requests, sums.kinds) == (1, (MemoryKind("@recall", 1, 2, 30),))


async def test_segments_go_with_their_age(tmp_path: Path, opened: Opening):
    now = 1_800_000_000.0
    async with opened(tmp_path, now=lambda: now) as store:
        await store.sessions.write((), [a_measured("req_1", context=a_context(), at=now - HALF_A_YEAR_S - 1)])
        await store.sessions.write((), [a_measured("req_2", "ses_2", at=now)])
        sums = await store.sessions.memory_totals(LOCAL)

    assert sums.kinds == ()
