import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from tests.support.deep import deep, too
from tests.support.processes import Children, children_of, is_there, until
from tests.support.services.workers import FREEZING, ID, LONG, a_task, open_workers, scripted, started
from tests.support.texts import a_log, a_question

from kimi_proxy.core.prune import Origin
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.structure.syntax import parsing_by
from kimi_proxy.features.sanitizer.shorten import Task, shorten
from kimi_proxy.services.workers.pool import SMALL_CHARS, Workers, without_secrets

JSON = json.dumps({"output": a_log(400)})


QUICK_OR_STUCK = scripted("return prune(question, *rest) if 'quick' in question.goal else time.sleep(3600)")


ODD = "\n".join(["\ud800\x00\r\x0c\u2028é😀"] * 3 + a_log(300).split("\n") + ["\udfff"])


async def test_a_child_answers_what_a_thread_answers_whatever_the_text_holds() -> None:
    plain, odd = a_question(a_log(400)), a_question(ODD, goal="payment \udc80")
    scores = [1.0 if i < 100 else 0.0 for i in range(400)]
    async with open_workers(thread_max_chars=10**9) as threads, open_workers(limit=1) as children:
        for question, given in ((plain, None), (plain, scores), (odd, None)):
            in_thread = await threads.prune(question, ID, given, 60)
            in_child = await children.prune(question, ID, given, 60)
            assert in_child == in_thread == engine.prune(question, ID, given)
            assert in_child.pruned_lines > 0
        assert await children.local_scores(plain, 60) == await threads.local_scores(plain, 60)
        for text in (a_log(400) + "\n\ud800\x00\r\u2028" + JSON, JSON):
            done = await children.shorten(a_task(text), 60, 60)
            assert done == shorten(a_task(text))
            assert done.hidden


async def test_warm_workers_have_a_child_ready(my_children: Children) -> None:
    async with open_workers(limit=2) as workers:
        await asyncio.gather(workers.warm(), workers.warm())
        await until(lambda: len(my_children()) == 1)
        warm = my_children()
        await workers.prune(a_question(LONG), ID, None, 60)
        assert my_children() == warm


async def test_a_small_text_of_a_command_starts_no_process(my_children: Children) -> None:
    async with open_workers(thread_max_chars=SMALL_CHARS) as workers:
        before = my_children()
        await workers.prune(a_question(a_log(100)), ID, None, 60)
        assert my_children() == before


async def test_a_deadline_is_kept_in_a_thread() -> None:
    async with open_workers(thread_max_chars=10**9) as workers:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await workers.prune(a_question(LONG), ID, None, 0.02)
        assert time.monotonic() - began < 30


async def test_a_child_is_killed_at_the_deadline_and_replaced(my_children: Children) -> None:
    async with open_workers(
        limit=1, command=scripted("time.sleep(0 if len(question.text) < 10**5 else 3600)")
    ) as workers:
        await started(workers)
        (stuck,) = my_children()
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await workers.prune(a_question(LONG), ID, None, 2)
        assert time.monotonic() - began < 40
        await until(lambda: not is_there(stuck))
        # It answers None, which is no answer: what counts is that somebody is there to give it.
        with pytest.raises(ChildProcessError, match="AttributeError"):
            await workers.prune(a_question(a_log(1000)), ID, None, 60)


async def test_a_child_that_runs_out_of_time_gives_up_by_itself_and_goes_on(my_children: Children) -> None:
    async with open_workers(limit=1) as workers:
        await started(workers)
        before = my_children()
        with pytest.raises(TimeoutError):
            await workers.prune(a_question(a_log(100_000)), ID, None, 60, cpu_s=0.2)
        assert (await workers.prune(a_question(a_log(1000)), ID, None, 60)).pruned_lines > 0
        assert my_children() == before


async def test_a_spare_answers_while_another_child_is_stuck_and_ends_when_it_is_idle(my_children: Children) -> None:
    async with open_workers(limit=1, idle_s=0.5, command=QUICK_OR_STUCK) as workers:
        await workers.warm()
        workers.keep_spare()
        workers.keep_spare()
        await until(lambda: len(my_children()) == 2)
        await until(lambda: len(my_children()) == 1)
        with pytest.raises(TimeoutError):
            await workers.prune(a_question(LONG), ID, None, 2)
        await until(lambda: len(my_children()) == 2)
        assert (await workers.prune(a_question(LONG, "quick"), ID, None, 60)).pruned_lines > 0


async def test_a_deadline_that_passes_while_a_child_starts_does_not_kill_it(my_children: Children) -> None:
    async with open_workers(limit=1) as workers:
        with pytest.raises(TimeoutError):
            await workers.prune(a_question(a_log(50)), ID, None, 0.001)
        await until(lambda: len(my_children()) == 1)
        (starting,) = my_children()
        await workers.prune(a_question(a_log(50)), ID, None, 60)
        assert my_children() == [starting]


@pytest.mark.parametrize("thread_max_chars", [0, 10**9])
async def test_a_prune_may_be_limited_by_its_cpu_time_and_not_by_the_clock(thread_max_chars: int) -> None:
    async with open_workers(limit=1, thread_max_chars=thread_max_chars) as workers:
        with pytest.raises(TimeoutError):
            await workers.prune(a_question(LONG), ID, None, 60, cpu_s=0.0)
        # The child that gave up goes on with the next one.
        assert (await workers.prune(a_question(LONG), ID, None, 60, cpu_s=60.0)).pruned_lines > 0


async def test_a_child_that_dies_is_replaced(my_children: Children) -> None:
    async with open_workers(limit=1, command=QUICK_OR_STUCK) as workers:
        await workers.prune(a_question(LONG, "quick"), ID, None, 60)
        (idle,) = my_children()
        os.kill(idle, signal.SIGKILL)
        await until(lambda: not is_there(idle))
        await asyncio.sleep(0.01)  # the event loop hears of it in its next turn
        assert (await workers.prune(a_question(LONG, "quick"), ID, None, 60)).pruned_lines > 0
        (working,) = my_children()
        job = asyncio.create_task(workers.prune(a_question(LONG), ID, None, 60))
        await asyncio.sleep(0.02)
        os.kill(working, signal.SIGKILL)
        with pytest.raises(ChildProcessError, match="middle of a job"):
            await job
        assert (await workers.prune(a_question(LONG, "quick"), ID, None, 60)).pruned_lines > 0
        assert not {idle, working} & set(my_children())


async def test_a_caller_who_gives_up_frees_the_child() -> None:
    async with open_workers(limit=1, command=QUICK_OR_STUCK) as workers:
        await started(workers)
        job = asyncio.create_task(workers.prune(a_question(LONG), ID, None, 600))
        await asyncio.sleep(0.1)
        job.cancel()
        await asyncio.wait([job])
        assert (await workers.prune(a_question(LONG, "quick"), ID, None, 60)).pruned_lines > 0


async def test_a_fault_of_the_engine_is_named_without_the_users_text(my_children: Children) -> None:
    command = scripted("raise KeyError('a line of the user')")
    async with open_workers(limit=1, command=command) as workers:
        with pytest.raises(ChildProcessError, match="KeyError at") as fault:
            await workers.prune(a_question(a_log(50)), ID, None, 60)
        assert "user" not in str(fault.value)
        # The child did its part: it is asked again.
        (child,) = my_children()
        with pytest.raises(ChildProcessError, match="KeyError at"):
            await workers.prune(a_question(a_log(50)), ID, None, 60)
        assert my_children() == [child]


async def test_what_a_library_prints_does_not_become_part_of_an_answer(capfd: pytest.CaptureFixture[str]) -> None:
    command = scripted(
        "print('noise', flush=True); os.system('echo more noise; echo and more >&2'); return prune(question, *rest)"
    )
    question = a_question(a_log(400))
    async with open_workers(limit=1, command=command) as workers:
        assert await workers.prune(question, ID, None, 60) == engine.prune(question, ID)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("command", [("/nonexistent/python",), (sys.executable, "-c", "pass")])
async def test_workers_that_cannot_start_fail_their_jobs_at_once(command: tuple[str, ...]) -> None:
    async with open_workers(limit=2, command=command) as workers:
        began = time.monotonic()
        jobs = [workers.prune(a_question(LONG), ID, None, 120) for _ in range(5)]
        failed = await asyncio.gather(*jobs, return_exceptions=True)
        assert [type(f) for f in failed] == [ChildProcessError] * 5
        assert time.monotonic() - began < 60


async def test_idle_children_end(my_children: Children) -> None:
    async with open_workers(limit=1, idle_s=0.05) as workers:
        await workers.prune(a_question(LONG), ID, None, 60)
        await until(lambda: my_children() == [])
        assert (await workers.prune(a_question(LONG), ID, None, 60)).pruned_lines > 0


@pytest.mark.parametrize("are_ready", [False, True])
async def test_closing_ends_children_and_fails_their_jobs(are_ready: bool, my_children: Children) -> None:
    workers = Workers(limit=2, command=scripted("time.sleep(3600)"))
    if are_ready:
        await asyncio.gather(started(workers), started(workers))
    jobs = [asyncio.create_task(workers.prune(a_question(LONG), ID, None, 600)) for _ in range(3)]
    await until(lambda: len(my_children()) == 2)
    await workers.close()
    failed = await asyncio.gather(*jobs, return_exceptions=True)
    assert [type(f) for f in failed] == [ChildProcessError] * 3
    await until(lambda: my_children() == [])


async def test_closed_workers_start_nobody(my_children: Children) -> None:
    workers = Workers(limit=1)
    await workers.close()
    with pytest.raises(ChildProcessError):
        await workers.prune(a_question(LONG), ID, None, 60)
    await workers.close()
    await until(lambda: my_children() == [])


PARENT = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from tests.support.services.workers import ID, LONG, scripted
from tests.support.texts import a_question
from kimi_proxy.services.workers.pool import Workers

async def main():
    workers = Workers(limit=1, command=scripted("while True: pass"))
    await workers.prune(a_question(LONG), ID, None, 600)

asyncio.run(main())
"""


@pytest.mark.parametrize("after_s", [0.0, too(1.5)])
async def test_children_do_not_outlive_a_parent_that_was_killed(after_s: float) -> None:
    root = str(Path(__file__).parents[2])
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, root)
    await until(lambda: len(children_of(parent.pid)) == 1)
    (orphan,) = children_of(parent.pid)
    await asyncio.sleep(after_s)
    parent.kill()
    await parent.wait()
    await until(lambda: not is_there(orphan))


async def test_the_users_directory_cannot_replace_our_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("numpy", "msgspec", "signal", "kimi_proxy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not yours')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TESTS_FORKS", raising=False)  # for a worker that imports them itself
    async with open_workers(limit=1) as workers:
        assert (await workers.prune(a_question(LONG), ID, None, 60)).pruned_lines > 0


async def test_the_event_loop_keeps_turning_while_large_texts_are_pruned() -> None:
    lags: list[float] = []

    async def watch() -> None:
        while True:
            began = time.process_time()
            await asyncio.sleep(0.005)
            lags.append(time.process_time() - began)

    async with open_workers() as workers:
        watcher = asyncio.create_task(watch())
        await asyncio.gather(*(workers.prune(a_question(a_log(10_000, i)), ID, None, 120) for i in range(2)))
        watcher.cancel()
    lags.sort()
    # In this process's CPU time, because the machine may be busy with other things: no prune ever held the loop.
    assert lags[int(len(lags) * 0.95)] < 0.05
    assert lags[-1] < 0.5


def test_a_child_inherits_no_secret() -> None:
    given = {"PATH": "/bin", "DEEPINFRA_API_KEY": "a", "KIMI_PROXY_TOKEN": "b", "DB_PASSWORD": "c", "LANG": "C"}
    assert without_secrets(given) == {"PATH": "/bin", "LANG": "C"}


NEVER_READY = (sys.executable, "-c", "import time; time.sleep(600)")


async def test_a_chat_request_does_not_wait_for_a_child_that_does_not_start(my_children: Children) -> None:
    task = a_task(a_log(2000))
    async with open_workers(command=NEVER_READY) as workers:
        with parsing_by(None):
            expected = shorten(task)
        assert await workers.shorten(task, 6, 60) == expected
        assert len(my_children()) == 1


@deep("it measures milliseconds, which needs a quiet machine")
async def test_the_event_loop_keeps_turning_while_somebody_is_in_a_hurry() -> None:
    async with open_workers(command=NEVER_READY) as workers:
        await workers.warm()
        busy = asyncio.gather(*(workers.shorten(a_task(a_log(6000, at)), 4, 60) for at in (10, 20)))
        worst, last = 0.0, time.process_time()
        while not busy.done():
            await asyncio.sleep(0)
            now = time.process_time()
            worst, last = max(worst, now - last), now
        assert all(done.hidden for done in await busy)
        # In CPU time of three threads that share the interpreter.
        assert worst < 0.5


@pytest.mark.parametrize(("within_s", "cpu_s"), [(0.0, 60.0), (60.0, 0.0)], ids=["clock", "CPU"])
@pytest.mark.parametrize("thread_max_chars", [0, 10**9], ids=["child", "thread"])
async def test_a_log_that_cannot_be_scored_in_time_loses_its_routine_lines(
    within_s: float, cpu_s: float, thread_max_chars: int
) -> None:
    task = a_task(a_log(2000) + "\nERROR payment refused: card expired\n")
    async with open_workers(limit=1, thread_max_chars=thread_max_chars) as workers:
        await started(workers)
        done = await workers.shorten(task, within_s, cpu_s)

    assert done == shorten(task, is_hurried=True)
    assert done.tokens_after < done.tokens_before / 5
    assert "ERROR payment refused: card expired" in done.shown
    assert done.hidden[0].text == task.text


WITHOUT_PARSER = """
import asyncio, resource, sys
sys.path.insert(0, sys.argv[1])
from tests.support.services.workers import CLEAN, FREEZING, ID, a_task
from tests.support.texts import a_question
from kimi_proxy.core.prune import Question
from kimi_proxy.services.workers.pool import Workers

async def main():
    workers = Workers(limit=1)
    await workers.warm()
    for text in (CLEAN, FREEZING):
        question = a_question(text, source_type="code")
        assert (await workers.prune(question, ID, None, 120)).pruned_lines > 0
        assert (await workers.shorten(a_task(text), 120, 60)).hidden
    await workers.close()
    print([name for name in sys.modules if name.startswith("tree_sitter")], resource.getrusage(0).ru_utime < 30)

asyncio.run(main())
"""


async def test_no_text_is_parsed_in_a_server_and_one_that_freezes_a_parser_is_cut_by_line_rules() -> None:
    root = str(Path(__file__).parents[2])
    asked = await asyncio.create_subprocess_exec(sys.executable, "-c", WITHOUT_PARSER, root, stdout=PIPE)
    printed, _ = await asked.communicate()
    assert printed == b"[] True\n"


@deep("it waits for a parser to be given up: 10 s")
async def test_a_text_that_freezes_a_parser_gets_the_same_cut_in_a_child_and_in_a_command() -> None:
    question = a_question(FREEZING, source_type="code")
    with parsing_by(None):
        expected = engine.prune(question, ID)
    async with open_workers(limit=1) as children, open_workers(thread_max_chars=10**9) as command:
        assert await children.prune(question, ID, None, 120) == expected
        assert await command.prune(question, ID, None, 120) == expected


async def test_small_texts_do_not_wait_for_long_ones() -> None:
    command = scripted("return time.sleep(3600) if len(question.text) > 10**5 else prune(question, *rest)")
    async with open_workers(limit=1, command=command) as workers:
        stuck = [asyncio.create_task(workers.prune(a_question(LONG), ID, None, 600)) for _ in range(3)]
        assert (await workers.prune(a_question(a_log(300)), ID, None, 60)).pruned_lines > 0
        for job in stuck:
            job.cancel()
        await asyncio.wait(stuck)


async def test_a_warm_child_stays_and_is_replaced_when_it_dies(my_children: Children) -> None:
    async with open_workers(limit=2, idle_s=0.05) as workers:
        await workers.warm()
        await workers.prune(a_question(LONG), ID, None, 60)
        await asyncio.sleep(0.3)
        (warm,) = my_children()
        os.kill(warm, signal.SIGKILL)
        await until(lambda: my_children() not in ([], [warm]))


async def test_a_fault_in_a_thread_is_told_as_one_in_a_child_is() -> None:
    """Whoever shortens several outputs loses only this one."""
    task = Task("a line of the user\n" * 500, None, Origin(), False, 100, 10, b"seed")  # type: ignore[arg-type]
    async with open_workers(limit=1, thread_max_chars=10**9) as workers:
        with pytest.raises(ChildProcessError, match="TypeError at") as fault:
            await workers.shorten(task, 60, 60)
    assert "user" not in str(fault.value)
