"""`bash`: what a command wrote, in order, whole, and with its exit code."""

import asyncio
import hashlib
import logging
import os
import time
from pathlib import Path

import pytest
from tests.support.deep import too
from tests.support.fakes import MemoryOriginals
from tests.support.processes import runs_in, until
from tests.support.services.tools.toolbox import Toolbox, toolbox

from kimi_proxy.core import tokens
from kimi_proxy.core.errors import InvalidParams, InvalidRange, StoreUnavailable
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.markers import PruneMarker
from kimi_proxy.core.markers import read as read_marker


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    (place / "sub").mkdir(parents=True)
    return place


async def text_of(folder: Path, command: str, **arguments: JsonValue) -> str:
    async with toolbox(folder) as box:
        return (await box.call("bash", command=command, **arguments)).text


async def whole(box: Toolbox, text: str) -> str:
    """`text` with every marker replaced by what it hides."""
    out: list[str] = []
    for line in text.split("\n"):
        marker = read_marker(line)
        out.append(line if marker is None else await _hidden(box, marker))
    return "\n".join(out)


async def _hidden(box: Toolbox, marker: PruneMarker) -> str:
    return await box.recovered(marker.prune_id, marker.start, marker.end)


async def test_a_command_that_succeeds_gives_its_output_and_nothing_else(folder: Path):
    assert await text_of(folder, "echo out; echo err >&2; printf end") == "out\nerr\nend"


async def test_a_command_that_fails_gives_its_output_and_its_exit_code(folder: Path):
    async with toolbox(folder) as box:
        answer = await box.call("bash", command="echo 3 tests failed; exit 3")

    assert (answer.text, answer.is_error) == ("3 tests failed\n[kimi-proxy] exit code 3", True)
    assert answer.meta["exit_code"] == 3


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("true", "[kimi-proxy] no output"),
        ("exit 7", "exit code 7"),
        ("kill -SEGV $$", "ended by signal 11 (SIGSEGV)"),
        ("sleep 600 & echo x", "x\n[kimi-proxy] 1 background processes were ended with the command"),
        ("no-such-command-here", "no-such-command-here: command not found\n[kimi-proxy] exit code 127"),
    ],
)
async def test_how_it_ended_is_said_in_one_line(folder: Path, command: str, said: str):
    assert (await text_of(folder, command)).endswith(said)


async def test_a_timeout_is_logged_with_the_time_that_was_allowed(folder: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "kimi_proxy.services.tools.request")
    async with toolbox(folder) as box:
        await box.call("bash", command="echo before; sleep 600", timeout_ms=1500)
        await box.call("bash", command="sleep 600", timeout_ms=1400)

    logged = [vars(record) for record in caplog.records if record.msg == "tool.exec_timeout"]
    assert [fields["timeout_ms"] for fields in logged] == [1500, 1400]


async def test_a_timeout_keeps_the_output_so_far(folder: Path):
    started = time.monotonic()
    async with toolbox(folder) as box:
        answer = await box.call("bash", command="echo before; sleep 600", timeout_ms=2000)

    assert time.monotonic() - started < 60
    assert answer.is_error
    assert answer.text == "before\n[kimi-proxy] timed out after 2000 ms and was ended; this is its output so far"


async def test_it_runs_in_the_working_directory_or_below(folder: Path):
    assert await text_of(folder, "pwd") == f"{folder}\n"
    assert await text_of(folder, "pwd", cwd="sub") == f"{folder / 'sub'}\n"
    assert "outside the allowed directories" in await text_of(folder, "pwd", cwd="..")
    assert "does not exist" in await text_of(folder, "pwd", cwd="nowhere")


async def test_keys_and_tokens_are_not_passed_on_unless_listed(folder: Path):
    env = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "secret", "KIMI_PROXY_TOKEN": "secret", "LANG": "C.UTF-8"}
    async with toolbox(folder, env=env) as box:
        answer = await box.call("bash", command="env; env | grep -c KEY; cat /proc/$PPID/environ")

    assert "secret" not in answer.text
    assert "LANG=C.UTF-8\n" in answer.text


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "command"),
        ({"command": ""}, "command"),
        ({"command": "a\0b"}, "command"),
        ({"command": "x" * 30_001}, "command"),
        ({"command": "x", "timeout_ms": 0}, "timeout_ms"),
        ({"command": "x", "timeout_ms": 600_001}, "timeout_ms"),
        ({"command": "x", "cwd": 5}, "cwd"),
        ({"command": "x", "env": {}}, "env"),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_a_wrong_argument_is_refused_by_name(folder: Path, arguments: dict[str, JsonValue], field: str):
    async with toolbox(folder) as box:
        with pytest.raises(InvalidParams) as refused:
            await box.call("bash", **arguments)

    assert refused.value.field == field


@pytest.mark.parametrize("lines", [60_000, 1_500_000, too(5_000_000)], ids=["one part", "some parts", "many parts"])
async def test_the_middle_of_a_long_output_is_recovered_to_the_byte(folder: Path, lines: int):
    async with toolbox(folder) as box:
        answer = await box.call("bash", command=f"seq {lines}")
        assert len(answer.text) < 300_000
        digest = hashlib.sha256((await whole(box, answer.text)).replace("\n\n", "\n").encode()).hexdigest()

    assert digest == hashlib.sha256("".join(f"{n}\n" for n in range(1, lines + 1)).encode()).hexdigest()


@pytest.mark.parametrize("lines", [1_500_000, too(7_000_000)], ids=["10 MB", "50 MB"])
async def test_lines_of_a_huge_output_are_recovered_by_their_own_numbers_in_one_call(folder: Path, lines: int):
    async with toolbox(folder) as box:
        answer = await box.call("bash", command=f"seq {lines}")
        (marker,) = [found for line in answer.text.split("\n") if (found := read_marker(line))]
        middle = lines // 2
        found = await box.recovered(marker.prune_id, middle, middle + 2)
        with pytest.raises(InvalidRange) as refused:
            await box.recovered(marker.prune_id, lines + 5, lines + 6)

    assert found.split("\n") == [str(n) for n in range(middle, middle + 3)]
    assert answer.text.split("\n")[: marker.start - 1] == [str(n) for n in range(1, marker.start)]
    assert refused.value.max_line == marker.end


async def test_of_a_long_table_the_rows_that_are_unlike_the_others_are_shown(folder: Path):
    rows = [f"{n},paid,{n % 50}" for n in range(9000)]
    rows[4321] = "4321,chargeback failed,-7000"
    (folder / "sales.csv").write_text("\n".join(("sale,state,amount", *rows)) + "\n")
    async with toolbox(folder) as box:
        printed = (await box.call("bash", command="cat sales.csv")).text
        shown = (await box.call("read", file_path="sales.csv")).text

    for text in (printed, shown):
        assert "4321,chargeback failed,-7000\n" in text
        assert "sale,state,amount\n" in text
        assert tokens.count(text) <= 8_500


async def test_one_endless_line_is_kept_too(folder: Path):
    async with toolbox(folder) as box:
        answer = await box.call("bash", command="yes é | tr -d '\\n' | head -c 9000000")
        recovered = (await whole(box, answer.text)).replace("\n", "")

    assert recovered == "é" * 4_500_000


async def test_bytes_that_are_no_text_do_not_break_an_answer(folder: Path):
    assert await text_of(folder, r"printf 'a\xff\x00b\ncaf\xc3\xa9\n'") == "aÿ\x00b\ncafé\n"


@pytest.mark.parametrize(
    ("illness", "why"),
    [(StoreUnavailable("the disk is full"), "the disk is full"), (ValueError("a bug of ours"), "internal_error")],
)
async def test_without_a_store_a_long_output_goes_out_whole(folder: Path, illness: Exception, why: str):
    store = MemoryOriginals()
    store.illness = illness
    async with toolbox(folder, store) as box:
        answer = await box.call("bash", command="seq 100000")
        huge = await box.call("bash", command="seq 1000000")

    assert answer.text == "".join(f"{n}\n" for n in range(1, 100_001))
    assert f"bytes are missing here: {why}" in huge.text


async def test_with_a_question_failures_stay_and_chatter_goes(folder: Path):
    script = """
for i in $(seq 600); do echo "2026-01-01 12:00:00 INFO worker $((i % 7)) polled queue $((i % 13)), nothing to do"; done
echo "2026-01-01 12:00:01 ERROR cannot connect to database orders: password expired"
for i in $(seq 600); do echo "2026-01-01 12:00:02 INFO worker $((i % 5)) polled queue $((i % 11)), nothing to do"; done
exit 1
"""
    async with toolbox(folder) as box:
        answer = await box.call("bash", command=script, context_focus_question="Why does the database fail?")
        pruning = answer.meta["pruning"]
        assert isinstance(pruning, dict)
        assert pruning["applied"] is True
        recovered = await box.recovered(str(pruning["prune_id"]))

    assert answer.is_error
    assert "ERROR cannot connect to database orders: password expired\n" in answer.text
    assert "exit code 1" in answer.text.split("\n")[-1]
    assert len(answer.text) < 0.6 * len(recovered)
    assert recovered.count("nothing to do\n") == 1200


async def test_without_a_question_an_answer_holds_about_eight_thousand_tokens(folder: Path):
    async with toolbox(folder) as box:
        answer = await box.call("bash", command="seq 60000")
        small = await box.call("bash", command="seq 60000", max_tokens=300)
        large = await box.call("bash", command="seq 60000", max_tokens=500_000)

    assert 6000 < tokens.count(answer.text) < 8200
    assert tokens.count(small.text) < 500
    assert large.text == "".join(f"{n}\n" for n in range(1, 60_001))


async def test_with_a_question_little_stays_around_one_error(folder: Path):
    script = 'for i in $(seq 3001); do [ $i = 1500 ] && echo "ERROR cannot open the session"; echo "line $i ok"; done'
    async with toolbox(folder) as box:
        answer = await box.call("bash", command=script, context_focus_question="why does it fail?")

    assert "ERROR cannot open the session" in answer.text
    assert answer.text.count(" ok\n") < 350


async def test_a_question_that_is_too_long_is_used_as_far_as_it_goes(folder: Path):
    async with toolbox(folder) as box:
        answer = await box.call("bash", command="seq 2000", context_focus_question="where is 1500? " + "why " * 2000)

    assert "of the question of 8014 characters the first 4000 were used" in answer.text
    assert not answer.is_error


async def test_an_output_too_large_to_prune_is_shown_by_its_ends(folder: Path):
    async with toolbox(folder) as box:
        answer = await box.call("bash", command="seq 400000", context_focus_question="What is there?")

    assert answer.meta["pruning"] == {"attempted": False, "applied": False, "reason": "input_too_large"}
    assert "not pruned: 2688895 bytes are over the limit of 2000000" in answer.text.split("\n")[-1]


async def test_a_cancelled_command_is_ended(folder: Path):
    async with toolbox(folder) as box:
        call = asyncio.create_task(box.call("bash", command="touch started; sleep 600; touch finished"))
        await until((folder / "started").exists)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    await until(lambda: not runs_in(folder))


async def test_an_output_of_which_a_part_was_not_kept_is_not_pruned_as_if_it_were_all(folder: Path):
    async with toolbox(folder, max_output_bytes=1024**2) as box:
        answer = await box.call("bash", command="seq -w 250000", context_focus_question="Which number is first?")

    head, *_, remark = answer.text.split("\n")
    assert head == "000001"
    assert "bytes of output were not kept here: tools.max_output_bytes was reached" in answer.text
    assert answer.meta["pruning"] == {"attempted": False, "applied": False, "reason": "input_too_large"}
    assert remark == "[kimi-proxy] not pruned: a part of the output was not kept"
