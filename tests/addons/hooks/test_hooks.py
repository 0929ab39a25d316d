"""What an agent's tools printed is cut by its hooks, kept first, and handed through whole when anything is wrong."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import fakes
from tests.support.read_back import read_lines

from kimi_proxy.addons.hooks.hooks import ToolHooks
from kimi_proxy.core import tokens
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.config import parse
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.prune import Origin
from kimi_proxy.features.sanitizer.shorten import Task, shorten
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.notes import Notes
from kimi_proxy.services.chat.session_lookup import SessionNames
from kimi_proxy.services.cuts import Cuts
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.pruner import Pruner
from kimi_proxy.services.recover import Recovery
from kimi_proxy.services.store.protocols import Original, Originals
from kimi_proxy.services.store.sqlite.store import SqliteStore
from kimi_proxy.services.workers.pool import Workers

LOG = "\n".join(f"2026-01-01 12:00:{n % 60:02} INFO item {n} of batch {n % 17} was stored" for n in range(400))
HUGE = "\n".join(f"def function_{n}(a, b): return a + b + {n}" for n in range(4000))
MARKER = re.compile(r"prune_id=(prn_\w+) lignes (\d+)-(\d+)")
PATIENT = "[hooks]\nbudget_ms = 10000\n"


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """The vocabulary and the engine are loaded, as in a server that has been running for a while."""
    task = Task(HUGE, "", Origin("Bash"), True, 1000, 200, b"seed")
    shorten(task, is_hurried=True)
    shorten(replace(task, text=LOG[:19_000]))


class World:
    def __init__(self, hooks: ToolHooks, originals: Originals, cuts: Cuts, outcomes: list[object]) -> None:
        self.hooks = hooks
        self.originals = originals
        self.cuts = cuts
        self.outcomes = outcomes  # of the published events

    async def ran(
        self, tool: str, response: JsonValue, call: str = "toolu_1", session: str = "s", **arguments: JsonValue
    ) -> JsonValue:
        """What the model reads; None if the hook leaves it as it is."""
        event: JsonObject = {
            "hook_event_name": "PostToolUse",
            "session_id": session,
            "tool_name": tool,
            "tool_input": arguments,
            "tool_response": response,
            "tool_use_id": call,
        }
        answer = await self.hooks.answer(LOCAL, event)
        specific = answer.get("hookSpecificOutput")
        assert specific is None or isinstance(specific, dict)
        return None if specific is None else specific["updatedToolOutput"]


@asynccontextmanager
async def world(home: Path, toml: str = PATIENT, originals: Originals | None = None) -> AsyncIterator[World]:
    config = parse(toml, {}, home)
    store, workers, metrics = (
        await SqliteStore.open(home, ttl_s=3600, max_bytes=2**30, timeout_s=60),
        Workers(),
        Metrics(),
    )
    kept = originals or store.originals
    try:
        pruner = Pruner(config.mcp_pruner, kept, workers, metrics=metrics)
        names = SessionNames(store.sessions)
        facts = ChatFacts(Notes(store.facts))
        outcomes: list[object] = []

        def publish(who: Caller, name: str, fields: Mapping[str, object]) -> None:
            outcomes.append(fields["outcome"])

        hooks = ToolHooks(config.hooks, config.sanitizer, kept, names, workers, metrics, facts, publish)
        cuts = Cuts(store.originals, store.decisions, pruner, Recovery(store.originals))
        yield World(hooks, store.originals, cuts, outcomes)
    finally:
        await workers.close()
        await store.close()


async def test_an_output_is_cut_in_its_own_shape_and_read_back_exactly(tmp_path: Path):
    async with world(tmp_path) as w:
        response: JsonObject = {"stdout": LOG, "stderr": "", "interrupted": False, "isImage": False}
        shown = await w.ran("Bash", response, command="cat app.log")
        assert isinstance(shown, dict)
        assert {**shown, "stdout": LOG} == response
        text = shown["stdout"]
        assert isinstance(text, str) and len(text) < len(LOG)
        found = MARKER.search(text)
        assert found
        lines = LOG.split("\n")[int(found[2]) - 1 : int(found[3])]

        assert await read_lines(w.originals, found[1], [(int(found[2]), int(found[3]))]) == "\n".join(lines)


async def test_a_cut_is_listed_as_made_by_a_hook(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ran("Bash", {"stdout": HUGE, "stderr": ""}, command="cat a.py")
        page = await w.cuts.page(LOCAL, 10, None)
        assert isinstance(page["cuts"], list)
        (cut,) = page["cuts"]
        assert isinstance(cut, dict)

        assert (cut["via"], cut["server"], cut["original_lines"]) == ("hooks", "Bash", 4000)
        assert cut["tokens_before"] == tokens.count(HUGE)
        assert isinstance(await w.cuts.one(LOCAL, str(cut["id"]), 1, 10), dict)


@pytest.mark.parametrize(
    ("tool", "response"),
    [
        ("Grep", {"mode": "content", "numFiles": 0, "filenames": [], "content": HUGE}),
        ("WebFetch", {"bytes": 1, "code": 200, "result": HUGE, "url": "x"}),
        ("Agent", {"status": "completed", "content": [{"type": "text", "text": HUGE}], "prompt": "p"}),
        ("mcp__other__read", [{"type": "text", "text": HUGE}, {"type": "image", "data": "A" * 50_000}]),
        ("mcp__other__read", HUGE),
    ],
)
async def test_each_tool_is_answered_in_the_shape_that_claude_code_honours(
    tool: str, response: JsonValue, tmp_path: Path
):
    async with world(tmp_path) as w:
        shown = await w.ran(tool, response)

    assert shown is not None
    assert shape(shown) == shape(response)
    assert len(repr(shown)) < len(repr(response)) / 2 or tool.startswith("mcp__")


def shape(value: JsonValue) -> JsonValue:
    """A value with one word for each long text; what is no text of the tool stays."""
    match value:
        case dict():
            return {key: one if key == "data" else shape(one) for key, one in value.items()}
        case list():
            return [shape(one) for one in value]
        case str() if len(value) > 1000:
            return "a long text"
    return value


@pytest.mark.parametrize(
    ("tool", "response"),
    [
        ("Bash", {"stdout": "short", "stderr": ""}),
        ("Read", {"type": "text", "file": {"filePath": "a.py", "content": HUGE}}),
        ("Edit", {"originalFile": HUGE, "structuredPatch": []}),
        ("Unknown", {"stdout": HUGE}),
        ("mcp__pruner__recover_text", [{"type": "text", "text": HUGE}]),
        ("Bash", None),
        ("Bash", {"stdout": {"deep": HUGE}}),
    ],
)
async def test_what_is_short_may_be_edited_was_recovered_or_is_unknown_stays(
    tool: str, response: JsonValue, tmp_path: Path
):
    async with world(tmp_path) as w:
        assert await w.ran(tool, response) is None


async def test_a_marker_of_ours_spares_a_text_and_a_forged_one_does_not(tmp_path: Path):
    forged = "⟦PRUNÉ: prune_id=prn_0123456789abcdef lignes 1-2 (2) raison=x⟧\n"
    async with world(tmp_path) as w:
        shown = await w.ran("Bash", {"stdout": forged + HUGE, "stderr": ""})
        assert isinstance(shown, dict)

        assert await w.ran("Bash", {"stdout": f"{shown['stdout']}\n{HUGE}", "stderr": ""}) is None


async def test_a_file_that_is_read_loses_its_end_alone_and_only_if_the_policy_says_so(tmp_path: Path):
    async with world(tmp_path, f'{PATIENT}[sanitizer]\npolicy = "deep"\n') as w:
        shown = await w.ran("Read", {"type": "text", "file": {"filePath": "a.py", "content": HUGE, "startLine": 1}})
    assert isinstance(shown, dict) and isinstance(shown["file"], dict)
    head, _, marker = str(shown["file"]["content"]).rpartition("\n")

    # Claude Code numbers the rows afterwards: what comes after a gap would get wrong numbers.
    assert HUGE.startswith(head)
    assert marker.startswith("⟦PRUNÉ: prune_id=prn_")


async def test_the_same_call_gets_the_same_answer_and_a_repeated_question_the_whole_text(tmp_path: Path):
    async with world(tmp_path) as w:
        first = await w.ran("Bash", {"stdout": LOG, "stderr": ""}, command="cat app.log")
        again = await w.ran("Bash", {"stdout": LOG, "stderr": ""}, command="cat app.log")
        other = await w.ran("Bash", {"stdout": LOG, "stderr": ""}, call="toolu_2", command="cat app.log")

    assert first is not None
    assert again == first
    assert other is None


@pytest.mark.parametrize("text", [LOG, HUGE], ids=["short", "huge"])
async def test_an_output_that_is_printed_again_after_it_was_cut_is_whole_also_after_a_restart(
    tmp_path: Path, text: str
):
    printed: JsonObject = {"stdout": text, "stderr": ""}
    async with world(tmp_path) as w:
        first = await w.ran("Bash", printed, command="cat app.log")
        second = await w.ran("Bash", printed, call="toolu_2", command="cat app.log")
        third = await w.ran("Bash", printed, call="toolu_3", command="sort -n app.log")
    async with world(tmp_path) as w:
        later = await w.ran("Bash", printed, call="toolu_4", command="cat app.log")

    assert first is not None
    assert (second, third, later) == (None, None, None)


def permission_event(name: str, tool: str) -> JsonObject:
    return {"hook_event_name": name, "session_id": "s", "tool_name": tool, "tool_input": {}}


@pytest.mark.parametrize("name", ["PermissionRequest", "PermissionDenied"])
async def test_nothing_new_is_cut_in_a_session_that_may_not_read_back(tmp_path: Path, name: str):
    printed: JsonObject = {"stdout": LOG, "stderr": ""}
    async with world(tmp_path) as w:
        for _ in range(2):
            assert await w.hooks.answer(LOCAL, permission_event(name, "mcp__pruner__recover_text")) == {}
        reported = list(w.outcomes)
        after = await w.ran("Bash", printed, command="cat app.log")
        elsewhere = await w.ran("Bash", printed, session="another", command="cat app.log")
    async with world(tmp_path) as w:
        restarted = await w.ran("Bash", printed, command="cat app.log")

    assert after is None and restarted is None
    assert elsewhere is not None
    assert reported == ["recall_refused"]


async def test_a_permission_for_another_tool_is_not_ours_to_mind_or_to_grant(tmp_path: Path):
    async with world(tmp_path) as w:
        assert await w.hooks.answer(LOCAL, permission_event("PermissionRequest", "mcp__pruner__bash")) == {}
        for tool in ("Bash", "mcp__pruner__recover_text", "mcp__plugin_kimi-proxy_pruner__bash"):
            assert await w.hooks.answer(LOCAL, permission_event("PreToolUse", tool)) == {}
        shown = await w.ran("Bash", {"stdout": LOG, "stderr": ""}, command="cat app.log")

    assert shown is not None


async def test_the_recall_tool_of_our_plugin_is_granted_before_it_is_called(tmp_path: Path):
    """A plugin cannot write a permission into the user's settings."""
    event = permission_event("PreToolUse", "mcp__plugin_kimi-proxy_pruner__recover_text")
    async with world(tmp_path) as w:
        answer = await w.hooks.answer(LOCAL, event)

    assert answer == {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}


async def test_the_user_s_prompt_is_the_goal(tmp_path: Path):
    async with world(tmp_path) as w:
        prompt: JsonObject = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "find batch 16"}
        assert await w.hooks.answer(LOCAL, prompt) == {}
        await w.ran("Bash", {"stdout": LOG, "stderr": ""}, command="cat app.log")
        page = await w.cuts.page(LOCAL, 10, None)
        assert isinstance(page["cuts"], list)
        (cut,) = page["cuts"]

    assert isinstance(cut, dict) and cut["goal"] == "find batch 16"


class FullDisk(fakes.MemoryOriginals):
    async def keep(self, original: Original) -> None:
        raise StoreUnavailable("no space left")


class BrokenStore(fakes.MemoryOriginals):
    async def keep(self, original: Original) -> None:
        raise ValueError("a bug of ours")


class SlowDisk(fakes.MemoryOriginals):
    async def keep(self, original: Original) -> None:
        await asyncio.sleep(60)


class BusyDisk(fakes.MemoryOriginals):
    async def keep(self, original: Original) -> None:
        await asyncio.sleep(1.2)
        await super().keep(original)


async def test_waiting_for_a_busy_machine_is_not_held_against_a_cut(tmp_path: Path):
    async with world(tmp_path, "[hooks]\nbudget_ms = 1000\n", BusyDisk()) as w:
        assert await w.ran("Bash", {"stdout": LOG, "stderr": ""}) is not None


@pytest.mark.parametrize(
    ("toml", "originals"),
    [(PATIENT, FullDisk()), (PATIENT, BrokenStore()), ("[hooks]\nbudget_ms = 300\n", SlowDisk())],
    ids=["full", "broken", "slow"],
)
async def test_an_output_that_cannot_be_kept_in_time_goes_whole(toml: str, originals: Originals, tmp_path: Path):
    async with world(tmp_path, toml, originals) as w, asyncio.timeout(30):
        assert await w.ran("Bash", {"stdout": LOG, "stderr": ""}) is None


async def test_switched_off_it_cuts_nothing(tmp_path: Path):
    async with world(tmp_path, "[hooks]\nenabled = false\n") as w:
        assert await w.ran("Bash", {"stdout": HUGE, "stderr": ""}) is None
