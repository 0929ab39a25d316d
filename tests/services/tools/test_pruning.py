"""Outputs pruned by a swe-pruner server: its choice of lines, our markers, and never less than the raw output."""

import asyncio
import time
from pathlib import Path

import pytest
from tests.support.fakes import MemoryOriginals
from tests.support.services.tools.toolbox import toolbox
from tests.support.swe_pruner_server import Script, answering, request_of, response, saying, serving

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.markers import read as read_marker
from kimi_proxy.features.tool import ToolAnswer

LINES = [f"line {n} of the file, with words enough to be worth a marker" for n in range(1, 101)]
TEXT = "\n".join(LINES)
KEPT = "\n".join([*LINES[:5], "(filtered 90 lines)", *LINES[95:]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "file.txt").write_text(TEXT)
    return place


async def ask(
    folder: Path, script: Script, store: MemoryOriginals | None = None, budget_ms: int = 60_000
) -> ToolAnswer:
    async with serving(script) as address:
        variables = {"JEEVES_PRUNER_ENDPOINT": address, "PRUNER_TIMEOUT_MS": str(budget_ms)}
        async with toolbox(folder, store, **variables) as box:
            return await box.call("read", file_path="file.txt", context_focus_question="What is in line 3?")


async def test_the_servers_gaps_get_our_markers_and_can_be_recovered(folder: Path):
    store = MemoryOriginals()
    answer = await ask(folder, answering({"pruned_code": KEPT}), store)

    *shown, remark = answer.text.split("\n")
    marker = read_marker(shown[5])
    assert marker is not None
    assert (marker.start, marker.end) == (6, 95)
    assert [*shown[:5], *shown[6:]] == [*LINES[:5], *LINES[95:]]
    assert "(filtered" not in answer.text
    assert "90 of 100 lines pruned" in remark
    async with toolbox(folder, store) as box:
        assert await box.recovered(marker.prune_id, marker.start, marker.end) == "\n".join(LINES[5:95])


async def test_the_server_is_sent_the_output_and_the_question(folder: Path):
    asked: list[dict[str, object]] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await request_of(reader))[1])
        writer.write(response(b'{"content": "line 1 of the file, with words enough to be worth a marker"}'))

    await ask(folder, script)

    assert asked == [{"code": TEXT, "query": "What is in line 3?"}]


async def test_a_text_that_is_not_made_of_our_lines_says_so_and_the_original_can_be_recovered(folder: Path):
    store = MemoryOriginals()
    answer = await ask(folder, answering({"text": "The file holds a hundred lines."}), store)

    assert answer.text.startswith("The file holds a hundred lines.\n[kimi-proxy] rewritten by the pruner")
    assert "lines 1-100" in answer.text
    pruning = answer.meta["pruning"]
    assert isinstance(pruning, dict)
    async with toolbox(folder, store) as box:
        assert await box.recovered(str(pruning["prune_id"])) == TEXT


async def test_an_answer_longer_than_the_output_is_not_used(folder: Path):
    answer = await ask(folder, answering({"pruned_code": TEXT + "\nand more\n" * 50}))

    assert answer.text == TEXT
    assert isinstance(answer.meta["pruning"], dict)
    assert answer.meta["pruning"]["applied"] is False


FAULTS = {
    "timeout": saying(b"", lambda: asyncio.sleep(600)),
    "timeout after the head": saying(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", lambda: asyncio.sleep(600)),
    "http_error": saying(response(b"{}", "500 Oh")),
    "http_error by hanging up": saying(b""),
    "invalid_response": saying(response(b"<html>")),
    "invalid_response without a text": answering({"score": 1.0}),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_whatever_goes_wrong_the_raw_output_comes_within_the_budget(folder: Path, fault: str):
    started = time.monotonic()
    answer = await ask(folder, FAULTS[fault], budget_ms=400 if "timeout" in fault else 60_000)

    assert time.monotonic() - started < 60
    error = fault.split()[0]
    assert answer.text == f"{TEXT}\n[kimi-proxy] not pruned: {error}"
    assert answer.meta["pruning"] == {"attempted": True, "applied": False, "fallback": True, "error": error}
    assert not answer.is_error


@pytest.mark.parametrize(
    ("illness", "why"),
    [(StoreUnavailable("the disk is full"), "recovery_unavailable"), (ValueError("a bug of ours"), "internal_error")],
)
async def test_without_a_store_nothing_is_cut(folder: Path, illness: Exception, why: str):
    store = MemoryOriginals()
    store.illness = illness
    answer = await ask(folder, answering({"pruned_code": KEPT}), store)

    assert answer.text == f"{TEXT}\n[kimi-proxy] not pruned: {why}"


async def test_the_same_question_gets_the_same_id(folder: Path):
    asking = {"file_path": "file.txt", "context_focus_question": "What is in line 3?"}
    async with (
        serving(answering({"pruned_code": KEPT})) as address,
        toolbox(folder, JEEVES_PRUNER_ENDPOINT=address) as box,
    ):
        answers = {(await box.call("read", **asking)).text for _ in range(2)}

    assert len(answers) == 1
