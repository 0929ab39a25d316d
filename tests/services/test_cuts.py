"""What was cut, for people: listed, laid beside what was sent, searched."""

import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.services.store.making import opened

from kimi_proxy.core import json
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import PrunerSettings
from kimi_proxy.core.errors import InvalidParams, PruneIdNotFound
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.prune import Options, Question
from kimi_proxy.services.cuts import Cuts
from kimi_proxy.services.originals import Keeper, PrintedText
from kimi_proxy.services.pruner import Pruner
from kimi_proxy.services.recover import Recovery
from kimi_proxy.services.store.protocols import DecisionRecord, Original
from kimi_proxy.services.store.sqlite.store import SqliteStore
from kimi_proxy.services.workers.pool import Workers

OPTIONS = Options(0.8, 5, 60_000, annotate_lines=False, include_markers=True)
TEXT = "\n".join(["def needle():", "    return 1", "", *(f"def other_{n}():\n    return {n}\n" for n in range(80))])


@dataclass(frozen=True)
class World:
    cuts: Cuts
    pruner: Pruner
    store: SqliteStore

    async def pruned(self, text: str = TEXT, goal: str = "where is the needle?") -> str:
        answer = await self.pruner.prune(LOCAL, Question(text, goal, "code", OPTIONS))
        assert answer.prune_id is not None
        return answer.prune_id

    async def listed(self, limit: int = 50, before: int | None = None) -> list[JsonObject]:
        rows = (await self.cuts.page(LOCAL, limit, before))["cuts"]
        assert isinstance(rows, list)
        return [row for row in rows if isinstance(row, dict)]


@asynccontextmanager
async def world(home: Path, now: Callable[[], float] = time.monotonic) -> AsyncIterator[World]:
    workers = Workers(thread_max_chars=10**9)
    try:
        async with opened(home) as store:
            pruner = Pruner(PrunerSettings(), store.originals, workers)
            cuts = Cuts(store.originals, store.decisions, pruner, Recovery(store.originals), now)
            yield World(cuts, pruner, store)
    finally:
        await workers.close()


async def test_a_prune_is_listed_with_its_reasons_lines_and_tokens(tmp_path: Path):
    async with world(tmp_path) as w:
        id = await w.pruned()
        (row,) = await w.listed()

    assert (row["id"], row["kind"], row["via"], row["goal"]) == (id, "prune", "pruner", "where is the needle?")
    assert row["original_lines"] == TEXT.count("\n") + 1
    assert isinstance(row["lines_cut"], int)
    assert 0 < row["lines_cut"] <= 0.8 * row["original_lines"]  # type: ignore[operator]
    assert isinstance(row["tokens_before"], int)
    assert row["tokens_before"] > row["tokens_after"]  # type: ignore[operator]
    assert row["reasons"]


async def test_what_was_asked_and_not_cut_is_not_listed(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.pruned("one line")

        assert await w.listed() == []


async def test_pages_go_on_where_the_last_one_ended(tmp_path: Path):
    async with world(tmp_path) as w:
        ids = [await w.pruned(TEXT + f"\n# {n}") for n in range(5)]
        first = await w.cuts.page(LOCAL, 2, None)
        before = first["before"]
        assert isinstance(before, int)
        rest = await w.cuts.page(LOCAL, 10, before)

    found = [row["id"] for page in (first, rest) for row in page["cuts"]]  # type: ignore[union-attr,index,call-overload]
    assert found == ids[::-1]
    assert rest["before"] is None


async def test_one_is_told_line_by_line_with_a_reason_for_each(tmp_path: Path):
    async with world(tmp_path) as w:
        told = await w.cuts.one(LOCAL, await w.pruned(), 1, 10_000)

    lines = told["lines"]
    assert isinstance(lines, list)
    assert told["by"] == "lines"
    assert [line["text"] for line in lines] == TEXT.split("\n")  # type: ignore[index,call-overload]
    assert all(line["why"] for line in lines)  # type: ignore[index,call-overload]
    gone = {line["line"] for line in lines if not line["kept"]}  # type: ignore[index,call-overload]
    assert gone == {n for cut in told["cuts"] for n in range(cut.start, cut.end + 1)}


async def test_a_text_that_cannot_be_explained_is_shown_all_the_same(tmp_path: Path):
    async with world(tmp_path) as w:
        id = await w.pruned()
        broken = Pruner(PrunerSettings(), w.store.originals, Workers(command=("/nonexistent",)))
        cuts = Cuts(w.store.originals, w.store.decisions, broken, Recovery(w.store.originals))
        told = await cuts.one(LOCAL, id, 3, 2)

    assert (told["by"], told["original"], told["sent"]) == ("text", "\n".join(TEXT.split("\n")[2:4]), None)


async def test_a_part_of_the_lines_can_be_asked_for(tmp_path: Path):
    async with world(tmp_path) as w:
        told = await w.cuts.one(LOCAL, await w.pruned(), 10, 3)

    assert [line["line"] for line in told["lines"]] == [10, 11, 12]  # type: ignore[union-attr,index,call-overload]


async def test_a_line_without_end_does_not_keep_the_others_from_being_shown(tmp_path: Path):
    async with world(tmp_path) as w:
        told = await w.cuts.one(LOCAL, await w.pruned(TEXT + "\npass" * 3000 + ("\n" + "x" * 150_000) * 6), 1, 10_000)

    lines = told["lines"]
    assert isinstance(lines, list)
    assert len(lines) == told["original_lines"]
    assert len(lines[-1]["text"]) == 4000  # type: ignore[index,call-overload,arg-type]


async def test_an_output_of_a_conversation_is_told_with_what_was_sent(tmp_path: Path):
    async with world(tmp_path) as w:
        id = "msk_0123456789abcdef"
        await w.store.originals.keep(
            Original(id, "local", b"k" * 32, b"a long answer", json.encode({"what": "output"}))
        )
        record = DecisionRecord(
            b"p" * 32, "masked", b"a ... answer", (id, "msk_1123456789abcdef"), "a long", "ses_1", 900, 90
        )
        await w.store.decisions.add(LOCAL, [record])
        (row,) = await w.listed()
        told = await w.cuts.one(LOCAL, id, 1, 10)

    assert (row["via"], row["why"], row["session_id"], row["tokens_before"]) == ("chat", "masked", "ses_1", 900)
    assert (told["by"], told["original"], told["sent"]) == ("text", "a long answer", "a ... answer")


async def test_an_output_of_a_command_is_listed_under_the_tools(tmp_path: Path):
    async with world(tmp_path) as w:
        await Keeper(w.store.originals).keep_text(LOCAL, b"the middle of what it printed", PrintedText())
        (row,) = await w.listed()

    assert (row["kind"], row["via"], row["session_id"]) == ("output", "tools", "")


async def test_a_history_that_a_summary_replaced_is_told_with_its_session(tmp_path: Path):
    note = json.encode({"what": "history", "session": "ses_1"})
    async with world(tmp_path) as w:
        await w.store.originals.keep(Original("msk_0123456789abcdef", "local", b"k" * 32, b"[]", note))
        (row,) = await w.listed()

    assert (row["kind"], row["via"], row["session_id"]) == ("history", "chat", "ses_1")


async def test_a_masked_answer_is_told_as_it_was_sent(tmp_path: Path):
    limits: JsonObject = {"max_chars": 400, "head_chars": 100, "tail_chars": 50}
    text = "x" * 5000
    note: JsonObject = {"what": "mask", "server": "files", "chars": 5000, "lines": 1, "limits": limits}
    id = "msk_0123456789abcdef"
    async with world(tmp_path) as w:
        await w.store.originals.keep(Original(id, "local", b"k" * 32, text.encode(), json.encode(note)))
        (row,) = await w.listed()
        told = await w.cuts.one(LOCAL, id, 1, 10)

    assert (row["kind"], row["server"], row["chars"], row["tokens_before"]) == ("mask", "files", 5000, 1250)
    sent = str(told["sent"])
    assert sent.startswith("x" * 100 + "\n... [KIMI_PROXY_OBSERVATION_MASKED")
    assert f"id={id}]" in sent


@pytest.mark.parametrize("note", [b"", b"not json", b"[]", b'{"what": "mask", "server": "s"}', b'{"what": "history"}'])
async def test_a_note_of_another_version_is_listed_with_what_is_known(tmp_path: Path, note: bytes):
    async with world(tmp_path) as w:
        await w.store.originals.keep(Original("msk_0123456789abcdef", "local", b"k" * 32, b"text", note))
        (row,) = await w.listed()
        told = await w.cuts.one(LOCAL, "msk_0123456789abcdef", 1, 10)

    assert row["tokens_before"] is None
    assert (told["original"], told["sent"]) == ("text", None)


@pytest.mark.parametrize("id", ["prn_0000000000000000", "../../etc/passwd", ""])
async def test_an_id_that_nobody_gave_is_refused(tmp_path: Path, id: str):
    async with world(tmp_path) as w:
        with pytest.raises(PruneIdNotFound):
            await w.cuts.one(LOCAL, id, 1, 10)


async def test_originals_are_searched_whatever_the_case(tmp_path: Path):
    async with world(tmp_path) as w:
        id = await w.pruned()
        found = await w.cuts.search(LOCAL, "DEF NEEDLE", 10)

    assert found == {"hits": [{"id": id, "line": 1, "text": "def needle():"}], "searched": 1, "stopped": None}


async def test_a_search_says_when_it_has_enough(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.pruned()
        found = await w.cuts.search(LOCAL, "return", 3)

    assert len(found["hits"]) == 3  # type: ignore[arg-type]
    assert found["stopped"] == "enough"


async def test_a_search_says_when_its_time_is_over(tmp_path: Path):
    ticks = iter(range(10**6))  # every look at the clock takes a second
    async with world(tmp_path, lambda: float(next(ticks))) as w:
        for n in range(45):
            note = json.encode({"what": "output"})
            await w.store.originals.keep(Original(f"prn_{n:016d}", "local", bytes([n]) * 32, b"text %d" % n, note))
        found = await w.cuts.search(LOCAL, "nowhere at all", 3)

    assert (found["hits"], found["searched"], found["stopped"]) == ([], 40, "time")


async def test_a_search_goes_on_behind_an_original_that_is_damaged(tmp_path: Path):
    async with world(tmp_path) as w:
        oldest = "msk_oldestoldestold1"
        await w.store.originals.keep(Original(oldest, "local", b"k" * 32, b"def needle():\n", b"{}"))
        for at in range(25):
            await w.store.originals.keep(Original(f"msk_{at:016}", "local", bytes([at]) * 32, b"words %d" % at, b"{}"))
        with sqlite3.connect(tmp_path / "store" / "originals.sqlite3") as database:
            database.execute(
                "UPDATE text SET frame = x'00' WHERE seq = (SELECT text FROM record WHERE id = ?)",
                (b"msk_%016d" % 20,),
            )
        found = await w.cuts.search(LOCAL, "def needle", 3)

    assert found["hits"] == [{"id": oldest, "line": 1, "text": "def needle():"}]


async def test_nothing_is_no_search(tmp_path: Path):
    async with world(tmp_path) as w:
        with pytest.raises(InvalidParams):
            await w.cuts.search(LOCAL, "  ", 3)
