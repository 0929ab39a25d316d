import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.support.deep import too
from tests.support.fakes import Clock, MemoryOriginals
from tests.support.read_back import read_lines
from tests.support.services.workers import scripted, started
from tests.support.texts import a_log, a_question

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.config import PrunerSettings
from kimi_proxy.core.errors import InvalidParams, InvalidRange, PruneIdNotFound, StoreUnavailable
from kimi_proxy.core.markers import is_id
from kimi_proxy.core.prune import Question
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.recovery import Selection
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.pruner import PruneAnswer, Pruner
from kimi_proxy.services.recover import Recovery
from kimi_proxy.services.store.protocols import Original
from kimi_proxy.services.workers.pool import Workers

LOG = a_log(400)
LONG = a_log(4_000)


@pytest.fixture(scope="module")
async def workers() -> AsyncIterator[Workers]:
    """With a child that many tests share: to start one takes a second of CPU."""
    workers = Workers(limit=1)
    yield workers
    await workers.close()


@pytest.fixture
def store() -> MemoryOriginals:
    return MemoryOriginals()


@pytest.fixture
def pruner(store: MemoryOriginals, workers: Workers) -> Pruner:
    return Pruner(PrunerSettings(), store, workers)


def is_whole(answer: PruneAnswer, question: Question, *warnings: str) -> bool:
    """The fallback of the contract: the text as it came, nothing annotated, and why."""
    pruned = answer.pruned
    assert pruned.text == question.text
    assert pruned.annotations == ()
    assert pruned.used_fallback
    assert pruned.warnings == warnings
    assert pruned.original_lines == question.text.count("\n") + 1
    assert pruned.tokens_after == pruned.tokens_before > 0
    return True


async def recovered(store: MemoryOriginals, answer: PruneAnswer) -> str:
    assert answer.prune_id
    return await read_lines(store, answer.prune_id, [(1, 10**9)])


# What a prune gives.


async def test_a_prune_is_what_the_engine_says_under_an_id_that_recovers_the_text(
    store: MemoryOriginals, pruner: Pruner
) -> None:
    question = a_question(LOG)
    answer = await pruner.prune(LOCAL, question)
    assert answer.prune_id and is_id(answer.prune_id)
    assert answer.pruned == engine.prune(question, answer.prune_id)
    assert answer.pruned.pruned_lines > 100
    assert await recovered(store, answer) == LOG


async def test_a_large_text_is_pruned_in_a_child_with_the_same_promises(store: MemoryOriginals, pruner: Pruner) -> None:
    question = a_question(LONG)
    answer = await pruner.prune(LOCAL, question)
    assert answer.prune_id
    assert answer.pruned == engine.prune(question, answer.prune_id)
    assert await recovered(store, answer) == LONG


@pytest.mark.parametrize("text", ["", "one line", "\n", "\ud800\x00\r\n\x0c\u2028", "a\n" * 50])
async def test_a_text_with_nothing_to_cut_comes_back_as_it_is_with_an_id(
    store: MemoryOriginals, pruner: Pruner, text: str
) -> None:
    answer = await pruner.prune(LOCAL, a_question(text, min_keep_lines=0))
    assert (answer.pruned.text, answer.pruned.used_fallback) == (text, False)
    assert answer.prune_id
    if text:
        assert await recovered(store, answer) == text


async def test_a_text_that_no_cut_would_shorten_says_so(pruner: Pruner) -> None:
    """The first example of the contract: a handful of lines, of which a marker would cost more than it saves."""
    question = a_question("import os\n\ndef main():\n    print(os.getcwd())\n")
    first, again = await pruner.prune(LOCAL, question), await pruner.prune(LOCAL, question)
    assert first.pruned.text == question.text
    assert first.pruned.warnings == ("nothing_worth_cutting",)
    assert not first.pruned.used_fallback
    assert again.pruned.warnings == ("nothing_worth_cutting", "cache_hit")


async def test_limits_that_cannot_be_met_leave_the_text_whole(store: MemoryOriginals, pruner: Pruner) -> None:
    question = a_question(LOG, min_keep_lines=401)
    answer = await pruner.prune(LOCAL, question)
    assert is_whole(answer, question, "constraints_unmet")
    assert await recovered(store, answer) == LOG


async def test_the_original_is_on_disk_before_the_answer_is_given(store: MemoryOriginals, pruner: Pruner) -> None:
    answer = await pruner.prune(LOCAL, a_question(LOG))
    assert [o.text for o in store.kept.values()] == [LOG.encode()]
    assert [o.id for o in store.kept.values()] == [answer.prune_id]


# The same question again.


async def test_the_same_question_gets_the_same_answer_from_the_cache(pruner: Pruner) -> None:
    first = await pruner.prune(LOCAL, a_question(LOG))
    again = await pruner.prune(LOCAL, a_question(LOG))
    assert again.prune_id == first.prune_id
    assert again.pruned == first.pruned.with_warnings("cache_hit")
    assert again.pruned.warnings == ("cache_hit",)
    third = await pruner.prune(LOCAL, a_question(LOG))
    assert third.pruned.warnings == ("cache_hit",)


async def test_the_time_allowed_is_no_part_of_the_question(pruner: Pruner) -> None:
    first = await pruner.prune(LOCAL, a_question(LOG, timeout_ms=120_000))
    again = await pruner.prune(LOCAL, a_question(LOG, timeout_ms=130_000))
    assert again.prune_id == first.prune_id
    assert "cache_hit" in again.pruned.warnings


@pytest.mark.parametrize(
    "other",
    [
        a_question(LOG + "\n"),
        a_question(LOG, "another goal"),
        a_question(LOG, source_type="docs"),
        a_question(LOG, max_prune_ratio=0.7),
        a_question(LOG, min_keep_lines=2),
        a_question(LOG, annotate_lines=True),
        a_question(LOG, include_markers=False),
    ],
)
async def test_another_question_gets_another_id(pruner: Pruner, other: Question) -> None:
    first = await pruner.prune(LOCAL, a_question(LOG))
    second = await pruner.prune(LOCAL, other)
    assert second.prune_id != first.prune_id
    assert "cache_hit" not in second.pruned.warnings


async def test_the_cache_forgets_and_the_store_remembers(store: MemoryOriginals, workers: Workers) -> None:
    clock = Clock()
    pruner = Pruner(PrunerSettings(cache_ttl_s=30), store, workers, now=clock)
    first = await pruner.prune(LOCAL, a_question(LOG))
    clock.advance(31)
    later = await pruner.prune(LOCAL, a_question(LOG))
    assert later.prune_id == first.prune_id
    assert later.pruned == first.pruned


async def test_after_a_restart_the_same_question_gets_the_same_id(store: MemoryOriginals, workers: Workers) -> None:
    first = await Pruner(PrunerSettings(), store, workers).prune(LOCAL, a_question(LOG))
    later = await Pruner(PrunerSettings(), store, workers).prune(LOCAL, a_question(LOG))
    assert (later.prune_id, later.pruned) == (first.prune_id, first.pruned)
    assert len(store.kept) == 1


async def test_an_id_that_is_no_longer_honoured_is_not_given_out_again(store: MemoryOriginals, pruner: Pruner) -> None:
    first = await pruner.prune(LOCAL, a_question(LOG))
    assert first.prune_id
    store.forget(first.prune_id)
    second = await pruner.prune(LOCAL, a_question(LOG))
    assert second.prune_id != first.prune_id
    assert second.pruned.warnings == ()
    assert await recovered(store, second) == LOG


async def test_scopes_share_nothing(store: MemoryOriginals, pruner: Pruner) -> None:
    mine = await pruner.prune(Caller("mine"), a_question(LOG))
    yours = await pruner.prune(Caller("yours"), a_question(LOG))
    assert mine.prune_id and yours.prune_id != mine.prune_id
    assert yours.pruned.warnings == ()
    with pytest.raises(PruneIdNotFound):
        await read_lines(store, mine.prune_id, [(1, 1)], who=Caller("yours"))


async def test_equal_questions_at_the_same_time_are_answered_once(store: MemoryOriginals, pruner: Pruner) -> None:
    answers = await asyncio.gather(*(pruner.prune(LOCAL, a_question(LONG)) for _ in range(6)))
    assert len({a.prune_id for a in answers}) == 1
    assert all(a.pruned == answers[0].pruned for a in answers)
    assert (store.keeps, len(store.kept)) == (1, 1)


async def test_a_caller_who_hangs_up_does_not_take_the_others_answer_along(pruner: Pruner) -> None:
    hasty = asyncio.create_task(pruner.prune(LOCAL, a_question(LONG)))
    patient = asyncio.create_task(pruner.prune(LOCAL, a_question(LONG)))
    await asyncio.sleep(0.05)
    hasty.cancel()
    answer = await patient
    assert hasty.cancelled()
    assert answer.pruned.pruned_lines > 0
    assert answer.pruned.warnings == ()


# When something is wrong with us.


async def test_a_text_that_is_too_large_stays_whole_and_can_be_recovered(
    store: MemoryOriginals, workers: Workers
) -> None:
    pruner = Pruner(PrunerSettings(max_input_chars=1000), store, workers)
    question = a_question(LOG)
    answer = await pruner.prune(LOCAL, question)
    assert is_whole(answer, question, "input_too_large")
    assert await recovered(store, answer) == LOG
    assert (await pruner.prune(LOCAL, question)).prune_id == answer.prune_id


async def test_a_text_of_just_the_limit_is_pruned(store: MemoryOriginals, workers: Workers) -> None:
    pruner = Pruner(PrunerSettings(max_input_chars=len(LOG)), store, workers)
    assert (await pruner.prune(LOCAL, a_question(LOG))).pruned.pruned_lines > 0


@pytest.mark.parametrize("text", [LOG, LONG])
async def test_one_millisecond_is_kept_too(store: MemoryOriginals, pruner: Pruner, text: str) -> None:
    question = a_question(text, timeout_ms=1)
    answer = await pruner.prune(LOCAL, question)
    assert answer.elapsed_ms < 30_000
    assert is_whole(answer, question, "timeout")
    assert await recovered(store, answer) == text


async def test_a_prune_that_takes_too_long_stays_whole_in_time(store: MemoryOriginals) -> None:
    workers = Workers(limit=1, command=scripted("time.sleep(3600)"))
    pruner = Pruner(PrunerSettings(), store, workers)
    await started(workers)
    question = a_question(LONG, timeout_ms=300)
    answer = await pruner.prune(LOCAL, question)
    await workers.close()
    assert is_whole(answer, question, "timeout")
    assert 300 <= answer.elapsed_ms < 30_000
    assert answer.prune_id and (await store.get(LOCAL, answer.prune_id)).text == LONG.encode()


async def test_a_question_that_timed_out_is_pruned_under_the_same_id_later(pruner: Pruner) -> None:
    early = await pruner.prune(LOCAL, a_question(LONG, timeout_ms=1))
    later = await pruner.prune(LOCAL, a_question(LONG))
    assert early.prune_id and early.prune_id == later.prune_id
    assert later.pruned.pruned_lines > 0
    assert later.pruned.warnings == ()
    explained = await pruner.explain(LOCAL, early.prune_id)
    assert sum(not line.kept for line in explained.lines) == later.pruned.pruned_lines


async def test_a_question_that_times_out_later_keeps_its_explanation(store: MemoryOriginals, workers: Workers) -> None:
    clock = Clock()
    pruner = Pruner(PrunerSettings(), store, workers, now=clock)
    early = await pruner.prune(LOCAL, a_question(LONG))
    clock.advance(1_000)
    later = await pruner.prune(LOCAL, a_question(LONG, timeout_ms=1))
    assert is_whole(later, a_question(LONG), "timeout")
    assert early.prune_id and early.prune_id == later.prune_id
    assert list((await pruner.explain(LOCAL, early.prune_id)).cuts) == [a.cut for a in early.pruned.annotations]


@pytest.mark.parametrize("script", ["raise RuntimeError('x')", "os._exit(3)", too("os.abort()")])
async def test_a_fault_of_the_engine_leaves_the_text_whole_and_is_counted(store: MemoryOriginals, script: str) -> None:
    workers, metrics = Workers(limit=1, command=scripted(script)), Metrics()
    pruner = Pruner(PrunerSettings(), store, workers, metrics=metrics)
    question = a_question(LONG)
    answer = await pruner.prune(LOCAL, question)
    await workers.close()
    assert is_whole(answer, question, "internal_error")
    assert await recovered(store, answer) == LONG
    counted = metrics.text().decode()
    assert 'kimi_proxy_prune_faults_total{code="internal_error",step="engine"} 1.0' in counted
    assert 'kimi_proxy_prune_warnings_total{code="internal_error"} 1.0' in counted
    assert 'kimi_proxy_prunes_total{backend="heuristic",outcome="fallback",source_type="logs"} 1.0' in counted


async def test_an_answer_that_a_fault_caused_is_not_remembered(store: MemoryOriginals, workers: Workers) -> None:
    broken = Workers(limit=1, command=("/nonexistent",))
    pruner = Pruner(PrunerSettings(), store, broken)
    for _ in range(2):
        answer = await pruner.prune(LOCAL, a_question(LONG))
        assert is_whole(answer, a_question(LONG), "internal_error")
    await broken.close()


ILLNESSES = [StoreUnavailable("the disk is full"), OSError(5, "Input/output error"), ValueError("a bug of ours")]


@pytest.mark.parametrize("illness", ILLNESSES, ids=lambda e: type(e).__name__)
async def test_without_a_store_nothing_is_cut(store: MemoryOriginals, pruner: Pruner, illness: Exception) -> None:
    store.illness = illness
    question = a_question(LOG)
    answer = await pruner.prune(LOCAL, question)
    assert is_whole(answer, question, "recovery_unavailable")
    assert answer.prune_id is None
    store.illness = None
    healed = await pruner.prune(LOCAL, question)
    assert healed.prune_id
    assert healed.pruned.pruned_lines > 0


async def test_a_cached_answer_is_not_given_when_its_original_cannot_be_vouched_for(
    store: MemoryOriginals, pruner: Pruner
) -> None:
    await pruner.prune(LOCAL, a_question(LOG))
    store.illness = StoreUnavailable("gone")
    answer = await pruner.prune(LOCAL, a_question(LOG))
    assert is_whole(answer, a_question(LOG), "recovery_unavailable")


async def test_a_store_that_hangs_does_not_hold_the_answer(store: MemoryOriginals, pruner: Pruner) -> None:
    store.is_stuck = True
    question = a_question(LOG, timeout_ms=300)
    answer = await pruner.prune(LOCAL, question)
    assert answer.elapsed_ms < 30_000
    assert is_whole(answer, question, "timeout", "recovery_unavailable")
    assert answer.prune_id is None


async def test_a_text_that_timed_out_without_a_store_says_both(store: MemoryOriginals, pruner: Pruner) -> None:
    store.illness = StoreUnavailable("no")
    question = a_question(LONG, timeout_ms=1)
    assert is_whole(await pruner.prune(LOCAL, question), question, "timeout", "recovery_unavailable")


async def test_what_is_logged_of_a_fault_tells_nothing_of_the_text(
    store: MemoryOriginals, caplog: pytest.LogCaptureFixture
) -> None:
    workers = Workers(limit=1, thread_max_chars=0, command=scripted("raise ValueError(question.text)"))
    await Pruner(PrunerSettings(), store, workers).prune(LOCAL, a_question("the user's secret\n" * 50, "a secret goal"))
    await workers.close()
    told = " ".join(str(vars(record)) for record in caplog.records)
    assert "ValueError" in told
    assert "secret" not in told


# The way back.


async def test_recovery_counts_what_it_did(store: MemoryOriginals, pruner: Pruner) -> None:
    metrics = Metrics()
    recovery = Recovery(store, metrics)
    answer = await pruner.prune(LOCAL, a_question(LOG))
    assert answer.prune_id
    numbered = await recovery.read(LOCAL, answer.prune_id, Selection(((2, 3), (1, 1)), with_numbers=True))
    assert numbered.text == "\n".join(f"{n}│ {LOG.split(chr(10))[n - 1]}" for n in (2, 3, 1))
    with pytest.raises(InvalidRange) as beyond:
        await recovery.read(LOCAL, answer.prune_id, Selection(((401, 402),)))
    assert beyond.value.max_line == 400
    with pytest.raises(PruneIdNotFound):
        await recovery.read(LOCAL, "prn_0000000000000000", Selection(((1, 1),)))
    counted = metrics.text().decode()
    for outcome in ("ok", "invalid_range", "prune_id_not_found"):
        assert f'kimi_proxy_recoveries_total{{outcome="{outcome}"}} 1.0' in counted


@pytest.mark.parametrize(
    "forged", ["", "prn_", "prn_\ud800", "../../etc/passwd", "prn_0000000000000000\n", "x" * 10**6]
)
async def test_what_is_not_an_id_recovers_nothing_and_never_reaches_the_store(
    store: MemoryOriginals, pruner: Pruner, forged: str
) -> None:
    store.illness = AssertionError("asked")
    with pytest.raises(PruneIdNotFound) as refused:
        await read_lines(store, forged, [(1, 1)])
    assert refused.value.reason == "unknown"


async def test_a_store_that_cannot_read_says_so(store: MemoryOriginals, pruner: Pruner) -> None:
    answer = await pruner.prune(LOCAL, a_question(LOG))
    store.illness = StoreUnavailable("locked")
    assert answer.prune_id
    with pytest.raises(StoreUnavailable, match="locked"):
        await read_lines(store, answer.prune_id, [(1, 1)])


@pytest.mark.parametrize("text", [LOG, LONG])
async def test_an_explanation_tells_of_every_line_why_it_stayed_or_went(pruner: Pruner, text: str) -> None:
    question = a_question(text)
    answer = await pruner.prune(LOCAL, question)
    assert answer.prune_id
    explained = await pruner.explain(LOCAL, answer.prune_id)
    assert explained.question == replace(question, options=replace(question.options, timeout_ms=0))
    assert list(explained.cuts) == [a.cut for a in answer.pruned.annotations]
    assert [line.line for line in explained.lines] == list(range(1, text.count("\n") + 2))
    gone = {line.line for line in explained.lines if not line.kept}
    assert gone == {n for cut in explained.cuts for n in range(cut.start, cut.end + 1)}


async def test_an_original_that_was_not_pruned_for_a_goal_has_no_explanation(
    store: MemoryOriginals, pruner: Pruner
) -> None:
    await store.keep(Original("msk_0000000000000000", "local", bytes(32), b"text", b"{}"))
    with pytest.raises(InvalidParams, match="was not pruned for a goal"):
        await pruner.explain(LOCAL, "msk_0000000000000000")
