"""Long outputs are cut once, kept first, and sent in the same bytes from then on."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from tests.support import outputs
from tests.support.conversations import Assistant, Call, Item, Result, User, body, request, results, texts, tool
from tests.support.fakes import MemoryDecisions, MemoryFacts, MemoryOriginals
from tests.support.services.chat.sanitizing import PATIENT, Clock, World, world

from kimi_proxy.core import tokens
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.config.sections import SanitizerSettings as Settings
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.lines import decode_text
from kimi_proxy.features import recovery
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target
from kimi_proxy.features.sanitizer.shorten import ShortenedText, Task
from kimi_proxy.services.chat.sanitizer import Sanitizer
from kimi_proxy.services.cuts import describe
from kimi_proxy.services.originals import read_source
from kimi_proxy.services.store.protocols import NEWEST, DecisionRecord, Decisions, FactKind
from kimi_proxy.services.workers.pool import Workers

WIRES = pytest.mark.parametrize("wire", list(Wire))
LOG = outputs.pytest_log(300)
FILE = outputs.source_file().text
ID = re.compile(r"(?:prn|msk)_[0-9a-z]{16}")


def asked(call_id: str, text: str, name: str = "bash", **arguments: str) -> list[Item]:
    return [Assistant("", (Call(call_id, name, dict(arguments)),)), Result(call_id, text)]


BEGUN: list[Item] = [User(LOG.goal), *asked("call_a1", LOG.text, command="pytest")]


async def original(world: World, shown: str) -> str:
    (found,) = set(ID.findall(shown))
    return decode_text((await world.store.originals.get(LOCAL, found)).text)


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


def printed(lines: int) -> str:
    return "\n".join(
        f"2026-01-01 12:{n // 60:02}:{n % 60:02} INFO batch {n} took {n * 37 % 911} ms" for n in range(lines)
    )


@WIRES
@pytest.mark.parametrize("lines", [420, 2_000])
async def test_an_output_that_is_printed_again_after_it_was_cut_is_whole(tmp_path: Path, wire: Wire, lines: int):
    """The model missed a line of it, and asks for the whole: that is a recall by other means."""
    text, items = printed(lines), list[Item]([User("How long did batch 77 take?")])
    async with world(tmp_path, Settings(budget_ms=60_000)) as here:
        for call in ("c1", "c2", "c3", "c4"):
            items += asked(call, text, command="cat app.log")
            shown = results((await here.send(request(wire, items, **CACHED))).request)

    assert len(shown.pop("c1")) < len(text) / 2
    assert shown == dict.fromkeys(("c2", "c3", "c4"), text)


async def test_a_duration_before_the_output_does_not_make_it_another_one(tmp_path: Path):
    text, items = printed(420), list[Item]([User("How long did batch 77 take?")])
    async with world(tmp_path) as here:
        for call, seconds in (("c1", "0.1"), ("c2", "0.2")):
            items += asked(call, f"Wall time: {seconds} seconds\nOutput:\n{text}", "exec_command", cmd="cat app.log")
            shown = results((await here.send(request(Wire.RESPONSES, items))).request)

    assert text not in shown["c1"] and shown["c2"] == f"Wall time: 0.2 seconds\nOutput:\n{text}"


@WIRES
async def test_a_request_with_nothing_to_cut_leaves_byte_for_byte(tmp_path: Path, wire: Wire):
    whole = request(wire, [User("hello"), *asked("c1", "short")], tools=())
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
async def test_our_tool_is_there_from_the_first_request_and_stays(tmp_path: Path, wire: Wire):
    async with world(tmp_path) as here:
        first = await here.send(request(wire, BEGUN[:1]))
        cut = await here.send(request(wire, BEGUN))
        here.sanitizer.is_on = False
        after = await here.send(request(wire, [*BEGUN, Assistant("ok"), User("next")]))

    assert first.request.tool_names == cut.request.tool_names == ("bash", "read_file", recovery.NAME)
    assert after.request.tool_names == cut.request.tool_names
    assert (first.own_tool, cut.own_tool, after.own_tool) == (recovery.NAME,) * 3
    assert _bytes(cut)[0] == _bytes(first)[0]


async def test_our_tool_is_left_out_of_a_request_that_forces_a_tool_and_back_in_the_next(tmp_path: Path):
    async with world(tmp_path) as here:
        first = await here.send(request(Wire.CHAT, BEGUN[:1]))
        forced = await here.send(request(Wire.CHAT, BEGUN, tool_choice="required"))
        after = await here.send(request(Wire.CHAT, [*BEGUN, Assistant("ok"), User("next")]))

    assert (first.own_tool, forced.own_tool, after.own_tool) == (recovery.NAME, "", recovery.NAME)
    assert forced.request.tool_names == ("bash", "read_file")
    assert results(forced.request)["call_a1"] == LOG.text, "nothing new is cut while it cannot be read"


@WIRES
async def test_our_tool_never_joins_a_conversation_whose_cache_is_warm(tmp_path: Path, wire: Wire):
    clock = Clock()
    async with world(tmp_path, clock=clock) as here:
        here.sanitizer.is_on = False
        before = await here.send(request(wire, BEGUN[:1], **CACHED))
        here.sanitizer.is_on = True
        warm = await here.send(request(wire, BEGUN, **CACHED))
        clock.now += 3601
        cold = await here.send(request(wire, [*BEGUN, Assistant("ok"), User("next")], **CACHED))

    assert before.own_tool == warm.own_tool == ""
    assert warm.reasons == ("not_worth_resending",) and results(warm.request)["call_a1"] == LOG.text
    assert cold.own_tool == recovery.NAME


@pytest.mark.parametrize("wire", [Wire.CHAT, Wire.MESSAGES])
async def test_our_tool_stays_when_the_client_loads_its_own_in_mid_conversation(tmp_path: Path, wire: Wire):
    """Claude Code's tool search does that."""
    ours = tool(wire, "mcp__pruner__recover_text", {"prune_id": {"type": "string"}})

    def with_ours(items: Sequence[Item], **more: JsonValue) -> Request:
        value = json.loads(body(wire, items, **CACHED))
        value["tools"].append({**ours, **more})  # type: ignore[dict-item]
        return parse(json.dumps(value).encode(), wire)

    async with world(tmp_path) as here:
        first = await here.send(with_ours(BEGUN[:1], defer_loading=True))
        loaded = await here.send(with_ours(BEGUN))
    async with world(tmp_path) as here:
        restarted = await here.send(with_ours([*BEGUN, Assistant("ok"), User("next")]))

    for draft in (first, loaded, restarted):
        assert draft.request.tool_names == ("bash", "read_file", "mcp__pruner__recover_text", recovery.NAME)
        assert draft.own_tool == recovery.NAME


BY_POLICY = Settings(budget_ms=60_000)
CACHED: dict[str, JsonValue] = {"cache_control": {"type": "ephemeral"}}  # without it Anthropic caches nothing


def outlines(count: int, first: int = 0, tool: str = "list_symbols") -> list[Item]:
    """Results that came one after the other; none of them is long enough to be cut when it enters."""
    items: list[Item] = []
    for n in range(first, first + count):
        text = "\n".join(f"value_{n}_{row} = settings.lookup({row * n}, default={row})" for row in range(40))
        items += asked(f"r{n}", text, tool, path=f"src/module_{n}.py")
    return items


def shown_whole(draft: Draft) -> list[str]:
    return [call for call, text in results(draft.request).items() if "⟦PRUNÉ" not in text]


@WIRES
async def test_what_was_cut_at_a_cold_moment_stays_cut_in_the_warm_requests_after_it(tmp_path: Path, wire: Wire):
    clock, items = Clock(), [User("Tidy up."), *outlines(6)]
    after: list[Item] = [*items, Assistant("Done."), User("And now the tests.")]
    async with world(tmp_path, BY_POLICY, clock=clock) as here:
        for end in range(1, len(items) + 1, 2):  # each result is new in one of them
            await here.send(request(wire, items[:end], **CACHED))
        clock.now += 3 * 3600
        cold = await here.send(request(wire, after, **CACHED))
        clock.now += 10
        warm = await here.send(request(wire, [*after, *asked("more", "ok")], **CACHED))

    assert shown_whole(cold) == ["r4", "r5"]
    assert _bytes(warm)[: len(_bytes(cold))] == _bytes(cold)


@WIRES
async def test_old_results_are_cut_when_the_prompt_cache_is_cold_anyway(tmp_path: Path, wire: Wire):
    clock, items = Clock(), [User("Tidy up."), *outlines(8)]
    async with world(tmp_path, BY_POLICY, clock=clock) as here:
        await here.send(request(wire, items[:1], **CACHED))
        warm = await here.send(request(wire, items, **CACHED))
        clock.now += 3601
        cold = await here.send(request(wire, [*items, Assistant("Done."), User("And now the tests.")], **CACHED))
        (found,) = set(ID.findall(results(cold.request)["r0"]))
        kept = decode_text((await here.store.originals.get(LOCAL, found)).text)

    assert len(shown_whole(warm)) == 8
    assert shown_whole(cold) == ["r6", "r7"]
    assert kept == results(warm.request)["r0"]
    assert "résultat ancien : list_symbols src/module_0.py" in results(cold.request)["r0"]
    assert len(results(cold.request)["r0"]) < 400


@WIRES
async def test_a_file_stays_when_old_results_go_unless_a_newer_result_shows_it(tmp_path: Path, wire: Wire):
    read = outlines(2, tool="read_file")
    again = [
        Assistant(calls=(replace(read[0].calls[0], id="again"),)),
        Result("again", f"{read[1].text}\nchanged = 1\n"),
    ]
    items = [User("Tidy up."), *read, *outlines(22, first=100), *again, *outlines(4, first=200)]
    async with world(tmp_path, BY_POLICY) as here:
        cold = await here.send(request(wire, [*items, Assistant("Done."), User("And now the tests.")]))

    assert shown_whole(cold) == ["r1", "again", "r202", "r203"]


@pytest.mark.parametrize(("model", "whole"), [("claude-opus-5", 2), ("claude-fable-5-1", 8)])
async def test_what_stands_before_thinking_that_is_bound_to_it_never_changes(tmp_path: Path, model: str, whole: int):
    """Anthropic rejects a request in which the thinking of Fable 5.1 stands behind anything else than before."""
    came = json.loads(body(Wire.MESSAGES, [User("Tidy up."), *outlines(8), Assistant("Done."), User("And the tests?")]))
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    answer = next(message for message in reversed(came["messages"]) if message["role"] == "assistant")
    said = answer["content"]
    answer["content"] = [thinking, *(said if isinstance(said, list) else [{"type": "text", "text": said}])]
    tools = [{"name": "list_symbols", "input_schema": {"type": "object"}}]
    sent = parse(json.dumps({**came, "model": model, "tools": tools}).encode(), Wire.MESSAGES)
    async with world(tmp_path, BY_POLICY) as here:
        draft = Draft(sent, Target("anthropic", model), Session("s-1"), LOCAL)
        left = await here.sanitizer.change(draft)

    assert len(shown_whole(left)) == whole
    assert ("recover_text" in left.request.tool_names) is (whole < 8)


@WIRES
async def test_while_the_prompt_cache_is_warm_nothing_that_was_sent_changes(tmp_path: Path, wire: Wire):
    clock, items = Clock(), [User("Tidy up."), *outlines(8)]
    async with world(tmp_path, BY_POLICY, clock=clock) as here:
        await here.send(request(wire, items[:1], **CACHED))
        first = await here.send(request(wire, items, **CACHED))
        clock.now += 325  # the cache of 5 minutes is cold half a minute after that
        later = await here.send(request(wire, [*items, Assistant("ok"), *outlines(2, first=8)], **CACHED))

    assert _bytes(later)[: len(_bytes(first))] == _bytes(first)


async def test_what_a_cold_cut_left_is_sent_in_the_same_bytes_from_then_on(tmp_path: Path):
    clock, items = Clock(), [User("Tidy up."), *outlines(8), Assistant("Done."), User("And now the tests.")]
    async with world(tmp_path, BY_POLICY, clock=clock) as here:
        cold = await here.send(request(Wire.CHAT, items))
        clock.now += 10
        later = await here.send(request(Wire.CHAT, [*items, *outlines(3, first=20)]))

    assert len(shown_whole(cold)) == 2
    assert _bytes(later)[: len(_bytes(cold))] == _bytes(cold)


async def test_records_that_stay_are_written_as_a_table_when_the_prompt_cache_is_cold(tmp_path: Path):
    records = json.dumps([{"id": n, "state": "paid", "currency": "EUR", "total": n * 3} for n in range(30)], indent=2)
    answered = [
        *asked("j1", records, "query", sql="select"),
        *asked("j2", records[:-1] + " ]", "read_file", path="a.json"),
    ]
    items = [User("Tidy up."), *answered, Assistant("Done."), User("And now the tests.")]
    async with world(tmp_path, BY_POLICY) as here:
        cold = await here.send(request(Wire.CHAT, items))
        (found,) = ID.findall(results(cold.request)["j1"])
        kept = decode_text((await here.store.originals.get(LOCAL, found)).text)

    assert '"columns":["id","total"]' in results(cold.request)["j1"]
    assert kept == records


async def test_an_old_result_that_is_named_or_failed_last_stays(tmp_path: Path):
    items = [User("Tidy up."), *outlines(8), Assistant("Done."), User("Now mend module_1.py, please.")]
    async with world(tmp_path, BY_POLICY) as here:
        cold = await here.send(request(Wire.CHAT, items))

    assert shown_whole(cold) == ["r1", "r6", "r7"]


async def test_a_cut_that_another_has_replaced_is_listed_with_its_session(tmp_path: Path):
    clock, later = Clock(), [*outlines(5), Assistant("Done."), User("And now the docs.")]
    async with world(tmp_path, clock=clock) as here:
        entered = await here.send(request(Wire.CHAT, BEGUN))
        clock.now += 7200
        aged = await here.send(request(Wire.CHAT, [*BEGUN, *later]))
        listed = {one.id: one for one in await here.store.originals.page(LOCAL, NEWEST, 50)}

    ids = [set(ID.findall(results(draft.request)["call_a1"])) for draft in (entered, aged)]
    notes = [describe(id, read_source(listed[id].about), listed[id].decision) for (id,) in ids]
    assert ids[0] != ids[1]
    assert [(note.via, note.session) for note in notes] == [("chat", "s-1"), ("chat", "s-1")]


async def test_an_old_result_that_is_json_stays_json(tmp_path: Path):
    rows = json.dumps([{"id": n, "name": f"row {n}", "size": n * n} for n in range(60)])
    items = [User("go"), *asked("call_j", rows, "query"), *outlines(5), Assistant("Done."), User("And now the docs.")]
    async with world(tmp_path, BY_POLICY) as here:
        shown = results((await here.send(request(Wire.CHAT, items))).request)["call_j"]

        assert len(json.loads(shown)) < 10 and len(shown) < 500
        assert await original(here, shown) == rows


async def test_another_model_makes_the_prompt_cache_cold(tmp_path: Path):
    items = [User("Tidy up."), *outlines(8)]
    later = [*items, Assistant("Done."), User("next")]
    async with world(tmp_path, BY_POLICY) as here:
        await here.send(request(Wire.CHAT, items[:1]))
        await here.send(request(Wire.CHAT, items))
        cold = await here.send(request(Wire.CHAT, later, model="kimi-k2-turbo"))

    assert len(shown_whole(cold)) == 2


EDITOR = ("bash", "read_file", "edit")


async def test_a_file_that_is_read_again_is_shown_by_what_changed(tmp_path: Path):
    before = FILE.split("\n")[600:760]
    after = [*before[:80], "    # a line that was added", *before[80:]]
    items = [User("go"), *asked("c1", "\n".join(before), "read_file", path="a.py")]
    again = [*items, *asked("c2", "\n".join(after), "read_file", path="a.py")]
    async with world(tmp_path, BY_POLICY) as here:
        await here.send(request(Wire.CHAT, items[:1], EDITOR))
        await here.send(request(Wire.CHAT, items, EDITOR))
        draft = await here.send(request(Wire.CHAT, again, EDITOR))
        shown = results(draft.request)["c2"]
        (found,) = set(ID.findall(shown))
        kept = decode_text((await here.store.originals.get(LOCAL, found)).text)

    assert "    # a line that was added" in shown and len(shown) < 400
    assert "déjà montré plus haut : read_file a.py" in shown
    assert kept == "\n".join(after)


async def test_a_numbered_file_keeps_every_line_and_a_tenth_of_its_numbers(tmp_path: Path):
    lines = FILE.split("\n")[600:760]
    numbered = "\n".join(f"{n:6}\t{line}" for n, line in enumerate(lines, 601))
    items = [User("go"), *asked("c1", numbered, "Read", file_path="a.py")]
    async with world(tmp_path, BY_POLICY) as here:
        draft = await here.send(request(Wire.CHAT, items))
        shown = results(draft.request)["c1"].split("\n")

    assert [line.partition("\t")[2] if line[:6].strip().isdigit() else line for line in shown] == lines
    assert sum(line[:6].strip().isdigit() for line in shown) == 17


async def test_a_result_over_8000_tokens_never_enters_whole(tmp_path: Path):
    words = "\n".join(f"{n * 7919 % 100003:x} {n * 104729 % 99991:x} {n * 31337 % 65521:x}" for n in range(4000))
    async with world(tmp_path, within(50), workers=Stuck()) as here:
        draft = await here.send(request(Wire.CHAT, [User("go"), *asked("c1", words)]))
        shown = results(draft.request)["c1"]

    assert tokens.count(shown) <= 8_000 < tokens.count(words)
    assert shown.startswith(words[:200]) and shown.endswith(words[-200:])


@WIRES
async def test_a_client_without_tools_is_told_where_the_rest_is(tmp_path: Path, wire: Wire):
    async with world(tmp_path) as here:
        draft = await here.send(request(wire, BEGUN, tools=()))
        shown = results(draft.request)["call_a1"]
        (found,) = set(ID.findall(shown))

    assert draft.request.tool_names == () and draft.own_tool == ""
    assert f"GET http://127.0.0.1:8000/api/mask/{found}?lines=" in shown and "recover_text" in shown


@WIRES
async def test_what_an_agent_says_around_a_result_is_never_cut(tmp_path: Path, wire: Wire):
    head = "Chunk ID: 3f2a\nWall time: 0.05 seconds\nProcess exited with code 1\nOutput:\nTotal output lines: 300\n\n"
    wrapped = [*BEGUN[:-1], Result("call_a1", head + LOG.text)]
    async with world(tmp_path) as here:
        draft = await here.send(request(wire, wrapped))
        again = await here.send(request(wire, [*wrapped, Assistant("ok")]))
        shown = results(draft.request)["call_a1"]
        kept = await original(here, shown)

    assert shown.startswith(head) and len(shown) < len(LOG.text)
    assert results(again.request)["call_a1"] == shown
    assert kept == LOG.text, "lines are counted from what the tool printed"


async def test_a_client_with_tools_that_ours_cannot_join_is_not_cut(tmp_path: Path):
    """Its tools may run in a sandbox that reaches no address."""
    several = request(Wire.CHAT, BEGUN, n=2)
    async with world(tmp_path) as here:
        draft = await here.send(several)

    assert results(draft.request) == results(several)


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
    # Our tool joins without waiting for the store, so that what comes later can be cut.
    assert "⟦PRUNÉ" in results(new.request)["c2"]
    assert draft.own_tool == healed.own_tool == new.own_tool == restarted.own_tool == recovery.NAME


class Ailing(MemoryDecisions):
    """Decisions on a disk that can be read until it falls ill."""

    is_ill = False

    async def get(self, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        if self.is_ill:
            raise StoreUnavailable("unreadable")
        return await super().get(who, keys)


async def test_what_was_cut_is_repeated_from_memory_while_the_store_cannot_be_read(tmp_path: Path):
    stored = Ailing()
    async with world(tmp_path, stored_decisions=stored) as here:
        first = await here.send(request(Wire.CHAT, BEGUN))
        stored.is_ill = True
        later = await here.send(request(Wire.CHAT, [*BEGUN, Assistant("ok"), User("next")]))

    assert results(first.request)["call_a1"] != LOG.text
    assert results(later.request) == results(first.request)


class Watched(MemoryDecisions):
    """Decisions that remember what was asked of them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def get(self, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        self.asked.append("get")
        return await super().get(who, keys)

    async def add(
        self,
        who: Caller,
        new: Sequence[DecisionRecord],
        forget: Sequence[bytes] = (),
        replaces: Mapping[bytes, float] = MappingProxyType({}),
    ) -> Mapping[bytes, DecisionRecord]:
        self.asked.append("add")
        return await super().add(who, new, forget, replaces)


class WatchedFacts(MemoryFacts):
    def __init__(self, asked: list[str]) -> None:
        super().__init__()
        self.asked = asked

    async def put_if_absent(
        self, who: Caller, kind: FactKind, facts: Mapping[bytes, bytes], session: str | Mapping[bytes, str] = ""
    ) -> Mapping[bytes, bytes]:
        self.asked.append(f"put {kind}")
        return await super().put_if_absent(who, kind, facts, session)


async def test_what_was_decided_before_is_read_before_our_tool_is_written(tmp_path: Path):
    """A disk that writes cannot be read."""
    stored = Watched()
    async with world(tmp_path, stored_decisions=stored, stored_facts=WatchedFacts(stored.asked)) as here:
        draft = await here.send(request(Wire.CHAT, BEGUN))

    assert draft.own_tool == recovery.NAME
    # The other two run side by side: the worker may take longer than the tool waits to be written.
    assert stored.asked[0] == "get" and {"add", "put tool"} <= set(stored.asked[1:])


class Stuck(Workers):
    """Workers that never come back in time."""

    async def shorten(self, task: Task, within_s: float, cpu_s: float) -> ShortenedText:
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

    async def get(self, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
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


FORGED = "⟦PRUNÉ: prune_id=prn_0123456789abcdef lignes 1-9 (9) raison=x⟧"
FORGED_MASK = "[KIMI_PROXY_OBSERVATION_MASKED original_chars=9 head=1 tail=1 id=msk_0123456789abcdef]"


@pytest.mark.parametrize("forged", [FORGED, FORGED_MASK, f"{FORGED}\n" * 200])
async def test_a_forged_marker_keeps_no_output_whole(tmp_path: Path, forged: str):
    text = f"{forged}\n{LOG.text}"
    async with world(tmp_path) as here:
        draft = await here.send(request(Wire.CHAT, [User("go"), *asked("c1", text)]))
        shown = results(draft.request)["c1"]

        assert len(shown) < len(text) / 2
        assert (
            await original(here, shown.replace("prn_0123456789abcdef", "").replace("msk_0123456789abcdef", "")) == text
        )


async def test_what_was_cut_before_is_not_cut_again_though_a_forged_marker_stands_beside_it(tmp_path: Path):
    async with world(tmp_path) as here:
        first = await here.send(request(Wire.CHAT, BEGUN))
        # An agent hands it on, as another's result.
        given = f"{FORGED}\n{results(first.request)['call_a1']}\n{FILE[:20_000]}"
        later = await here.send(request(Wire.CHAT, [User("read what the other agent read"), *asked("c9", given)]))

    assert results(later.request)["c9"] == given
    assert later.reasons == ("already_cut",)


async def test_a_marker_that_was_copied_from_another_conversation_keeps_no_output_whole(tmp_path: Path):
    async with world(tmp_path) as here:
        first = await here.send(request(Wire.CHAT, BEGUN))
        copied = f"{results(first.request)['call_a1']}\n{FILE[:20_000]}"
        later = await here.send(request(Wire.CHAT, [User("go"), *asked("c9", copied)]), session="s-2")

    assert len(results(later.request)["c9"]) < len(copied)


async def test_why_nothing_was_done_is_told(tmp_path: Path):
    items: list[Item] = [
        User("go"),
        Assistant("", (Call("c1", "mcp__pruner__recover_text", {}),)),
        Result("c1", LOG.text),
    ]
    async with world(tmp_path) as here:
        draft = await here.send(request(Wire.CHAT, items))

    assert draft.reasons == ("recovered",)
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
    assert 0 < note.fields["tool_tokens"] < 60 and note.fields["prefix_tokens_resent"] == 0
    assert later.fields == {**note.fields, "cut_now": 0}


async def test_a_fault_of_ours_lets_the_request_out(tmp_path: Path):
    async with world(tmp_path, stored_decisions=Silent(RuntimeError("ours"))) as here:
        draft = await here.send(whole := request(Wire.CHAT, BEGUN))

    assert draft.request is whole
    assert draft.reasons == ("sanitizer_failed",)


async def test_what_is_owed_stands_beside_its_result_from_then_on(tmp_path: Path):
    later: list[Item] = [*BEGUN, *asked("c2", "ok")]
    async with world(tmp_path) as here:
        await here.send(request(Wire.CHAT, BEGUN))
        await here.facts.save_pending_result(LOCAL, "s-1", "c2", "[recover_text …]\nline 7")
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
        kept = await here.store.originals.page(LOCAL, NEWEST, 100)

    assert first.request.body == again.request.body
    # All but the newest two are old, and the newest has just come.
    assert len([original for original in kept if original.decision]) == 29


async def test_a_store_that_fails_while_keeping_fails_open(tmp_path: Path):
    full = MemoryOriginals()
    full.illness = StoreUnavailable("full")
    async with world(tmp_path, originals=full) as here:
        draft = await here.send(request(Wire.CHAT, BEGUN))

    assert results(draft.request) == {"call_a1": LOG.text}
    assert draft.reasons == ("store_unavailable",)
    assert draft.notes == ()


async def test_an_output_that_nobody_can_shorten_leaves_the_cuts_before_it_as_they_are(tmp_path: Path):
    class Stumbling(Workers):
        async def shorten(self, task: Task, within_s: float, cpu_s: float) -> ShortenedText:
            if "stumble" in task.text:
                task = replace(task, goal=None)  # type: ignore[arg-type]
            return await super().shorten(task, within_s, cpu_s)

    later: list[Item] = [*BEGUN, *asked("c2", "\n".join(f"stumble over line {n * 7919 % 1009}" for n in range(600)))]
    async with world(tmp_path, workers=Stumbling(thread_max_chars=10**9)) as here:
        first = await here.send(request(Wire.CHAT, BEGUN))
        second = await here.send(request(Wire.CHAT, later))

    assert second.request.body.startswith(first.request.body[: first.request.messages[-1].end])
    assert second.own_tool == first.own_tool != ""
    assert "failed" in second.reasons


async def test_a_fault_in_deciding_leaves_the_cuts_before_it_as_they_are(tmp_path: Path):
    """The secret that ids are made of is drawn for each new result, when it is shortened and decided on."""
    text = "\n".join(f"line {n * 7919 % 1009} of another output" for n in range(600))
    later: list[Item] = [*BEGUN, *asked("c2", text)]

    def draw(size: int) -> bytes:
        raise ValueError("no random numbers")

    async with world(tmp_path) as here:
        first = await here.send(request(Wire.CHAT, BEGUN))
        broken = Sanitizer(PATIENT, "", here.decisions, here.facts, Workers(), here.metrics, draw=draw)
        second = await broken.change(replace(first, request=request(Wire.CHAT, later)))
        counted = here.metrics.text().decode()

    assert second.request.body.startswith(first.request.body[: first.request.messages[-1].end])
    assert results(second.request)["c2"] == text
    assert "failed" in second.reasons
    assert 'kimi_proxy_chat_faults_total{code="internal_error",stage="shorten"} 1.0' in counted
    assert 'kimi_proxy_chat_faults_total{code="internal_error",stage="decide"} 1.0' in counted


async def test_what_was_decided_is_repeated_even_if_the_time_was_over_before_anybody_looked(tmp_path: Path):
    """A long conversation takes its time to be read; all that was cut in it must not come back for that."""
    later = request(Wire.CHAT, [*BEGUN, Assistant("I see.")])
    async with world(tmp_path) as here:
        first = await here.send(later)
        ticks = iter((0.0, 60.0))
        late = Sanitizer(
            PATIENT, "", here.decisions, here.facts, Workers(), here.metrics, now=lambda: next(ticks, 60.0)
        )
        for _ in range(5):  # a busy disk may take longer than the grace that there is
            ticks = iter((0.0, 60.0))
            again = await replace(here, sanitizer=late).send(later)
            if "store_unavailable" not in again.reasons:
                break

    assert again.request.body == first.request.body
