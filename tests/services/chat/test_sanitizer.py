"""Long outputs are cut once, kept first, and sent in the same bytes from then on."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests import outputs
from tests.conversations import Assistant, Call, Item, Result, User, request, results, texts
from tests.fakes import MemoryOriginals
from tests.services.chat.sanitizing import PATIENT, World, world

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config.sections import SanitizerSettings as Settings
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.lines import decoded
from kimi_proxy.features import recovery
from kimi_proxy.features.pipeline import Draft
from kimi_proxy.features.sanitizer.shorten import ShortenedText, Task
from kimi_proxy.services.chat.decisions import SCOPE
from kimi_proxy.services.chat.sanitizer import Sanitizer
from kimi_proxy.services.store.protocols import NEWEST, DecisionRecord, Decisions
from kimi_proxy.services.workers import Workers

WIRES = pytest.mark.parametrize("wire", list(Wire))
LOG = outputs.pytest_log(300)
FILE = outputs.source_file().text
ID = re.compile(r"(?:prn|msk)_[0-9a-z]{16}")


def asked(call_id: str, text: str, name: str = "bash", **arguments: str) -> list[Item]:
    return [Assistant("", (Call(call_id, name, dict(arguments)),)), Result(call_id, text)]


BEGUN: list[Item] = [User(LOG.goal), *asked("call_a1", LOG.text, command="pytest")]


async def original(world: World, shown: str) -> str:
    (found,) = set(ID.findall(shown))
    return decoded((await world.store.originals.get(SCOPE, found)).text)


@WIRES
async def test_a_long_output_is_cut_and_its_original_is_kept(tmp_path: Path, wire: Wire):
    async with world(tmp_path) as here:
        draft = await here.send(request(wire, BEGUN))
        shown = results(draft.request)["call_a1"]

        assert len(shown) < len(LOG.text) / 2
        assert [needle for needle in LOG.needles if needle not in shown] == []
        assert await original(here, shown) == LOG.text


@WIRES
async def test_what_was_cut_leaves_in_the_same_bytes_from_then_on(tmp_path: Path, wire: Wire):
    later: list[Item] = [
        *BEGUN,
        Assistant("I see."),
        User("Now something else: the mail templates."),
        *asked("c2", FILE),
    ]
    async with world(tmp_path) as here:
        first = await here.send(request(wire, BEGUN))
        second = await here.send(request(wire, later))
    # Another process, another day.
    async with world(tmp_path) as here:
        third = await here.send(request(wire, [*later, Assistant("Done.")]))

    for draft, before in ((second, first), (third, second)):
        cut = min(len(draft.request.messages), len(before.request.messages))
        assert _bytes(draft)[:cut] == _bytes(before)[:cut]


def _bytes(draft: Draft) -> list[bytes]:
    return [draft.request.body[message.start : message.end] for message in draft.request.messages]


@WIRES
async def test_what_was_recovered_stays_whole_while_the_old_cut_stays_cut(tmp_path: Path, wire: Wire):
    recovered: list[Item] = [*BEGUN, *asked("c2", LOG.text, "mcp__pruner__recover_text", prune_id="prn_x")]
    async with world(tmp_path) as here:
        first = results((await here.send(request(wire, BEGUN))).request)
        for _ in range(3):
            later = results((await here.send(request(wire, recovered))).request)
            assert later == {"call_a1": first["call_a1"], "c2": LOG.text}


@WIRES
async def test_a_request_with_nothing_to_cut_leaves_byte_for_byte(tmp_path: Path, wire: Wire):
    whole = request(wire, [User("hello"), *asked("c1", "short")])
    async with world(tmp_path) as here:
        draft = await here.send(whole)

    assert draft.request is whole


@WIRES
async def test_a_section_of_a_users_text_is_cut_and_the_words_around_stay(tmp_path: Path, wire: Wire):
    text = f"Why does this fail?\n<console>{LOG.text}</console>\nTell me."
    async with world(tmp_path) as here:
        draft = await here.send(request(wire, [User(text)]))
    (shown,) = [said for said in texts(draft.request) if "Why does" in said]

    assert shown.startswith("Why does this fail?\n<console>") and shown.endswith("</console>\nTell me.")
    assert "⟦PRUNÉ" in shown and len(shown) < len(text) / 2


@WIRES
async def test_our_tool_joins_with_the_first_cut_and_stays(tmp_path: Path, wire: Wire):
    async with world(tmp_path) as here:
        before = await here.send(request(wire, [User("hello")]))
        cut = await here.send(request(wire, BEGUN))
        after = await here.send(request(wire, [*BEGUN, Assistant("ok"), User("next")]))

    assert recovery.NAME not in before.request.tool_names
    assert cut.request.tool_names == after.request.tool_names == ("bash", "read_file", recovery.NAME)
    assert (before.own_tool, cut.own_tool) == ("", recovery.NAME)


@WIRES
async def test_a_client_without_tools_is_told_where_the_rest_is(tmp_path: Path, wire: Wire):
    async with world(tmp_path) as here:
        draft = await here.send(request(wire, BEGUN, tools=()))
        shown = results(draft.request)["call_a1"]
        (found,) = set(ID.findall(shown))

    assert draft.request.tool_names == () and draft.own_tool == ""
    assert f"GET http://127.0.0.1:8000/api/mask/{found}?lines=" in shown and "recover_text" in shown


async def test_the_goal_of_a_cut_is_the_one_of_its_time(tmp_path: Path):
    items: list[Item] = [User("What does move() do?"), *asked("c1", FILE)]
    async with world(tmp_path) as here:
        first = results((await here.send(request(Wire.CHAT, items))).request)["c1"]
        later = [*items, Assistant("It moves."), User("And what does make_archive() do?")]
        again = results((await here.send(request(Wire.CHAT, later))).request)["c1"]

    assert "def move(" in first
    assert again == first


async def test_a_store_that_cannot_keep_lets_everything_out_whole_and_that_stays_so(tmp_path: Path):
    items, later = BEGUN, [*BEGUN, Assistant("ok"), User("next")]
    async with world(tmp_path) as here:
        file = tmp_path / "store" / "originals.sqlite3"
        file.rename(tmp_path / "away")
        file.mkdir()
        draft = await here.send(request(Wire.CHAT, items))
        file.rmdir()
        (tmp_path / "away").rename(file)
        healed = await here.send(request(Wire.CHAT, later))
        new = await here.send(request(Wire.CHAT, [*later, *asked("c2", FILE)]))
    async with world(tmp_path) as here:
        restarted = await here.send(request(Wire.CHAT, [*later, *asked("c2", FILE), Assistant("ok")]))

    assert results(draft.request)["call_a1"] == LOG.text
    assert "store_unavailable" in draft.reasons
    assert results(healed.request)["call_a1"] == LOG.text
    assert results(new.request) == results(restarted.request)
    assert "⟦PRUNÉ" in results(new.request)["c2"]


class Stuck(Workers):
    """Workers that never come back in time."""

    async def shorten(self, task: Task, within_s: float) -> ShortenedText:
        async with asyncio.timeout(within_s):
            await asyncio.Event().wait()
        raise AssertionError


async def test_what_is_not_decided_in_time_goes_out_whole_and_stays_so(tmp_path: Path):
    later = [*BEGUN, Assistant("ok"), User("next")]
    async with world(tmp_path, within(50), workers=Stuck()) as here:
        late = await here.send(request(Wire.CHAT, BEGUN))
    async with world(tmp_path) as here:
        again = await here.send(request(Wire.CHAT, later))

    assert (late.reasons, again.reasons) == (("out_of_time",), ("out_of_time",))
    assert results(late.request) == results(again.request) == {"call_a1": LOG.text}


def within(budget_ms: int) -> Settings:
    return PATIENT.model_copy(update={"budget_ms": budget_ms})


class Silent(Decisions):
    """Decisions on a disk that hangs, or on one that is worse."""

    def __init__(self, fault: Exception | None = None) -> None:
        self._fault = fault

    async def get(self, scope: str, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        if self._fault:
            raise self._fault
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_store_that_does_not_answer_costs_no_more_than_the_budget(tmp_path: Path):
    async with world(tmp_path, within(100), stored_decisions=Silent()) as here, asyncio.timeout(60):
        draft = await here.send(request(Wire.CHAT, BEGUN))

    assert results(draft.request) == {"call_a1": LOG.text}
    assert draft.reasons == ("store_unavailable",)


async def test_switched_off_it_cuts_nothing_new_and_what_was_cut_stays(tmp_path: Path):
    later = [*BEGUN, *asked("c2", FILE)]
    async with world(tmp_path) as here:
        first = await here.send(request(Wire.CHAT, BEGUN))
        here.sanitizer.is_on = False
        off = await here.send(request(Wire.CHAT, later))
        here.sanitizer.is_on = True
        on = await here.send(request(Wire.CHAT, [*later, Assistant("ok")]))

    assert results(off.request) == results(on.request)
    assert results(off.request)["call_a1"] == results(first.request)["call_a1"]
    assert results(off.request)["c2"] == FILE


async def test_an_original_that_is_gone_is_kept_again_under_its_id(tmp_path: Path):
    async with world(tmp_path) as here:
        first = results((await here.send(request(Wire.CHAT, BEGUN))).request)["call_a1"]
        await here.store.decisions.database.write(lambda connection, moment: connection.execute("DELETE FROM record"))
        again = results((await here.send(request(Wire.CHAT, BEGUN))).request)["call_a1"]

        assert again == first
        assert await original(here, again) == LOG.text


async def test_two_that_send_the_same_at_once_send_the_same_bytes(tmp_path: Path):
    async with world(tmp_path) as here:
        drafts = await asyncio.gather(*(here.send(request(Wire.CHAT, BEGUN)) for _ in range(4)))

    assert len({draft.request.body for draft in drafts}) == 1


async def test_why_nothing_was_done_is_told(tmp_path: Path):
    short = "\n".join(FILE.split("\n")[600:760])
    items: list[Item] = [
        User("go"),
        *asked("c1", LOG.text, "mcp__pruner__recover_text"),
        *asked("c2", f"⟦PRUNÉ: prune_id=prn_0123456789abcdef lignes 1-9 (9) raison=x⟧\n{FILE}"),
        *asked("c3", short, "read_file", path="a.py"),
    ]
    async with world(tmp_path) as here:
        draft = await here.send(request(Wire.CHAT, items))

    assert draft.reasons == ("already_cut", "recovered", "unread")
    assert draft.notes == ()
    assert 'kimi_proxy_sanitizer_outputs_total{why="recovered"} 1.0' in here.metrics.text().decode()


async def test_what_was_done_is_told(tmp_path: Path):
    async with world(tmp_path) as here:
        first = await here.send(request(Wire.CHAT, BEGUN))
        again = await here.send(request(Wire.CHAT, [*BEGUN, Assistant("ok")]))
    (note,), (later,) = first.notes, again.notes

    assert note.event == "sanitizer_event"
    assert (note.fields["outputs"], note.fields["cut"], note.fields["cut_now"]) == (1, 1, 1)
    assert note.fields["tokens_saved"] == note.fields["tokens_before"] - note.fields["tokens_after"] > 1000
    assert note.fields["tool_tokens"] > 0 and note.fields["prefix_tokens_resent"] > 0
    assert later.fields == {**note.fields, "cut_now": 0, "prefix_tokens_resent": 0}


async def test_a_fault_of_ours_lets_the_request_out(tmp_path: Path):
    async with world(tmp_path, stored_decisions=Silent(RuntimeError("ours"))) as here:
        draft = await here.send(whole := request(Wire.CHAT, BEGUN))

    assert draft.request is whole
    assert draft.reasons == ("sanitizer_failed",)


async def test_what_is_owed_stands_beside_its_result_from_then_on(tmp_path: Path):
    later: list[Item] = [*BEGUN, *asked("c2", "ok")]
    async with world(tmp_path) as here:
        await here.send(request(Wire.CHAT, BEGUN))
        await here.decisions.save_pending_result("s-1", "c2", "[recover_text …]\nline 7")
        first = await here.send(request(Wire.CHAT, later))
    async with world(tmp_path) as here:
        again = await here.send(request(Wire.CHAT, [*later, Assistant("ok")]))
        other = await here.send(request(Wire.CHAT, later), session="s-2")

    assert results(first.request)["c2"] == results(again.request)["c2"] == "ok\n\n[recover_text …]\nline 7"
    assert results(other.request)["c2"] == "ok"


async def test_many_outputs_of_one_conversation_are_all_remembered(tmp_path: Path):
    items: list[Item] = [User("go")]
    for i in range(30):
        items += asked(f"c{i}", f"{i}\n{LOG.text}")
    async with world(tmp_path) as here:
        first = await here.send(request(Wire.MESSAGES, items))
        again = await here.send(request(Wire.MESSAGES, items))
        kept = await here.store.originals.page(SCOPE, NEWEST, 100)

    assert first.request.body == again.request.body
    assert len([original for original in kept if original.decision]) == 30


async def test_a_store_that_fails_while_keeping_fails_open(tmp_path: Path):
    full = MemoryOriginals()
    full.illness = StoreUnavailable("full")
    async with world(tmp_path, originals=full) as here:
        draft = await here.send(request(Wire.CHAT, BEGUN))

    assert results(draft.request) == {"call_a1": LOG.text}
    assert draft.reasons == ("store_unavailable",)
    assert draft.notes == ()


async def test_a_first_cut_that_loses_more_of_the_cache_than_it_saves_is_not_made(tmp_path: Path):
    told = "We talked about this for a long time. " * 4000
    small: list[Item] = [User(LOG.goal), Assistant(told), User("go on"), *asked("c1", LOG.text)]
    large = "\n".join(f"{at} {LOG.text}" for at in range(20))
    later: list[Item] = [*small, Assistant("hm"), *asked("c2", large)]
    async with world(tmp_path) as here:
        first = await here.send(whole := request(Wire.CHAT, small))
        worth = await here.send(request(Wire.CHAT, later))
        after = results(worth.request)

    assert first.request is whole and first.reasons == ("not_worth_resending",)
    assert after["c1"] == LOG.text and len(after["c2"]) < len(large) / 2  # what was sent whole stays whole


async def test_an_output_that_nobody_can_shorten_leaves_the_cuts_before_it_as_they_are(tmp_path: Path):
    class Stumbling(Workers):
        async def shorten(self, task: Task, within_s: float) -> ShortenedText:
            if "stumble" in task.text:
                task = replace(task, goal=None)  # type: ignore[arg-type]
            return await super().shorten(task, within_s)

    later: list[Item] = [*BEGUN, *asked("c2", "stumble over this line\n" * 2000)]
    async with world(tmp_path, workers=Stumbling(thread_max_chars=10**9)) as here:
        first = await here.send(request(Wire.CHAT, BEGUN))
        second = await here.send(request(Wire.CHAT, later))

    assert second.request.body.startswith(first.request.body[: first.request.messages[-1].end])
    assert second.own_tool == first.own_tool != ""
    assert "failed" in second.reasons


async def test_what_was_decided_is_repeated_even_if_the_time_was_over_before_anybody_looked(tmp_path: Path):
    """A long conversation takes its time to be read; all that was cut in it must not come back for that."""
    later = request(Wire.CHAT, [*BEGUN, Assistant("I see.")])
    async with world(tmp_path) as here:
        first = await here.send(later)
        ticks = iter((0.0, 60.0))
        late = Sanitizer(PATIENT, "", here.decisions, Workers(), here.metrics, now=lambda: next(ticks, 60.0))
        for _ in range(5):  # a busy disk may take longer than the grace that there is
            ticks = iter((0.0, 60.0))
            again = await replace(here, sanitizer=late).send(later)
            if "store_unavailable" not in again.reasons:
                break

    assert again.request.body == first.request.body
