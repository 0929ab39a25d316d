"""A result is cut only where the model can read it back: with our tool, or with a tool of the client that answered."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support import outputs
from tests.support.conversations import Assistant, Call, Item, Result, User, body, request, results, tool
from tests.support.services.chat.sanitizing import PATIENT, Clock, World, world

from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.config.sections import SanitizerSettings as Settings
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features import recovery
from kimi_proxy.features.chat.pipeline import Draft

WIRES = pytest.mark.parametrize("wire", list(Wire))
LOG = outputs.pytest_log(300)
BUILD = outputs.build_log(300)
MCP = "mcp__pruner__recover_text"
COLD_S = 100_000
REFUSAL = f"Claude requested permissions to use {MCP}, but you haven't granted it yet."
ANSWER = json.dumps({"raw_text": "line 7", "metadata": {"prune_id": "prn_0123456789abcdef"}})


def asked(call_id: str, text: str, name: str = "bash", **arguments: JsonValue) -> list[Item]:
    return [Assistant("", (Call(call_id, name, dict(arguments)),)), Result(call_id, text)]


def recalled(call_id: str, text: str) -> list[Item]:
    return asked(call_id, text, MCP, prune_id="prn_0123456789abcdef")


BEGUN: list[Item] = [User(LOG.goal)]
PRINTED: list[Item] = [*BEGUN, *asked("c1", LOG.text, command="pytest")]
CACHED: dict[str, JsonValue] = {"cache_control": {"type": "ephemeral"}}  # without it Anthropic caches nothing


def with_mcp(wire: Wire, items: Sequence[Item], **more: JsonValue) -> Request:
    """A request of a client that offers the recall tool of our MCP server from the beginning."""
    value = json.loads(body(wire, items, **CACHED, **more))
    value["tools"].append(tool(wire, MCP, {"prune_id": {"type": "string"}}))
    return parse(json.dumps(value).encode(), wire)


def in_namespace(items: Sequence[Item]) -> Request:
    """The same as Codex offers it, which calls read-only tools without asking."""
    value = json.loads(body(Wire.RESPONSES, items))
    ours: JsonValue = {"type": "function", "name": "recover_text", "parameters": {"properties": {"prune_id": {}}}}
    value["tools"].append({"type": "namespace", "name": "mcp__pruner", "tools": [ours]})
    return parse(json.dumps(value).encode(), Wire.RESPONSES)


def message_bytes(draft: Draft) -> list[bytes]:
    return [draft.request.body[message.start : message.end] for message in draft.request.messages]


async def begin_without_our_tool(here: World, first: Request) -> None:
    """Start a conversation while the sanitizer is off, as one from before it was switched on."""
    here.sanitizer.is_on = False
    assert (await here.send(first)).own_tool == ""
    here.sanitizer.is_on = True


@WIRES
async def test_a_client_that_offers_the_tool_by_mcp_gets_ours_too_and_keeps_it(tmp_path: Path, wire: Wire):
    items = [*PRINTED, *recalled("r1", ANSWER)]
    async with world(tmp_path) as here:
        first = await here.send(with_mcp(wire, BEGUN))
        printed = await here.send(with_mcp(wire, PRINTED))
        answered = await here.send(with_mcp(wire, items))
    async with world(tmp_path) as here:
        restarted = await here.send(with_mcp(wire, [*items, Assistant("ok"), User("next")]))

    drafts = (first, printed, answered, restarted)
    assert [draft.own_tool for draft in drafts] == [recovery.NAME] * 4
    assert first.request.tool_names == ("bash", "read_file", MCP, recovery.NAME)
    assert len(results(printed.request)["c1"]) < len(LOG.text) / 2


@WIRES
@pytest.mark.parametrize(
    ("recall", "reason"),
    [([], "not_worth_resending"), (recalled("r1", REFUSAL), "recall_refused"), (recalled("r1", ANSWER), "")],
    ids=["never called", "refused", "answered"],
)
async def test_in_a_warm_conversation_without_ours_the_client_s_tool_counts_once_it_was_answered(
    tmp_path: Path, wire: Wire, recall: list[Item], reason: str
):
    before = [*BEGUN, *asked("c0", "ok"), *recall]
    async with world(tmp_path, clock=Clock()) as here:
        await begin_without_our_tool(here, with_mcp(wire, before))
        draft = await here.send(with_mcp(wire, [*before, *asked("c1", LOG.text, command="pytest")]))

    assert draft.own_tool == ""
    assert (results(draft.request)["c1"] == LOG.text) == bool(reason)
    assert draft.reasons == ((reason,) if reason else ())


@WIRES
async def test_after_a_refusal_cuts_keep_their_bytes_while_the_cache_is_warm_and_come_back_whole_when_it_is_cold(
    tmp_path: Path, wire: Wire
):
    clock = Clock()
    begun = [*BEGUN, *recalled("r1", ANSWER)]
    cut = [*begun, *asked("c1", LOG.text, command="pytest")]
    refused = [*cut, *recalled("r2", REFUSAL), *asked("c2", BUILD.text, command="make")]
    async with world(tmp_path, clock=clock) as here:
        await begin_without_our_tool(here, with_mcp(wire, begun))
        before = await here.send(with_mcp(wire, cut))
        warm = await here.send(with_mcp(wire, refused))
        clock.now += COLD_S
        cold = await here.send(with_mcp(wire, [*refused, Assistant("ok"), User("next")]))
        clock.now += 10
        after = await here.send(with_mcp(wire, [*refused, Assistant("ok"), User("next"), *asked("c3", "fine")]))

    assert len(results(before.request)["c1"]) < len(LOG.text) / 2
    assert message_bytes(warm)[: len(message_bytes(before))] == message_bytes(before)
    assert results(warm.request)["c2"] == BUILD.text and warm.reasons == ("recall_refused",)
    assert results(cold.request)["c1"] == LOG.text
    assert cold.own_tool == recovery.NAME, "the cache has nothing to lose by it"
    assert message_bytes(after)[: len(message_bytes(cold))] == message_bytes(cold)


@WIRES
async def test_a_refusal_changes_nothing_where_our_tool_is_in_the_conversation(tmp_path: Path, wire: Wire):
    items = [*BEGUN, *recalled("r1", REFUSAL), *asked("c1", LOG.text, command="pytest")]
    async with world(tmp_path) as here:
        await here.send(with_mcp(wire, BEGUN))
        draft = await here.send(with_mcp(wire, items))

    assert draft.own_tool == recovery.NAME and draft.reasons == ()
    assert len(results(draft.request)["c1"]) < len(LOG.text) / 2


@WIRES
async def test_an_error_of_ours_is_no_refusal(tmp_path: Path, wire: Wire):
    begun = [*BEGUN, *recalled("r1", ANSWER), *recalled("r2", "invalid_range: start_line 9 is beyond the last line, 4")]
    async with world(tmp_path, clock=Clock()) as here:
        await begin_without_our_tool(here, with_mcp(wire, begun))
        draft = await here.send(with_mcp(wire, [*begun, *asked("c1", LOG.text, command="pytest")]))

    assert len(results(draft.request)["c1"]) < len(LOG.text) / 2


async def test_codex_needs_no_tool_of_ours_until_it_refuses_its_own(tmp_path: Path):
    clock = Clock()
    refused = [*PRINTED, *recalled("r1", "MCP tool call requires approval, but approval policy is never")]
    later = [*refused, *asked("c2", BUILD.text, command="make")]
    async with world(tmp_path, clock=clock) as here:
        first = await here.send(in_namespace(BEGUN))
        cut = await here.send(in_namespace(PRINTED))
        whole = await here.send(in_namespace(later))
        clock.now += COLD_S
        cold = await here.send(in_namespace([*later, Assistant("ok"), User("next")]))

    assert (first.own_tool, cut.own_tool, whole.own_tool) == ("", "", "")
    assert len(results(cut.request)["c1"]) < len(LOG.text) / 2
    assert results(whole.request)["c2"] == BUILD.text and whole.reasons == ("recall_refused",)
    assert results(cold.request)["c1"] == LOG.text and cold.own_tool == recovery.NAME


async def test_where_the_user_wants_no_tool_of_ours_nothing_is_cut_that_only_a_command_could_read(tmp_path: Path):
    async with world(tmp_path, Settings(budget_ms=60_000, threshold_tokens=1000, recover_tool=False)) as here:
        offered = await here.send(with_mcp(Wire.MESSAGES, PRINTED))
        answered = await here.send(with_mcp(Wire.MESSAGES, [User("go"), *recalled("r1", ANSWER), *PRINTED[1:]]))
        without = await here.send(request(Wire.MESSAGES, [User("Now"), *PRINTED[1:]]))

    assert results(offered.request)["c1"] == results(without.request)["c1"] == LOG.text
    assert len(results(answered.request)["c1"]) < len(LOG.text) / 2
    assert answered.own_tool == ""


async def test_after_a_refusal_and_a_restart_nothing_new_is_cut(tmp_path: Path):
    begun = [*BEGUN, *recalled("r1", REFUSAL)]
    clock = Clock()
    async with world(tmp_path, PATIENT, clock=clock) as here:
        await begin_without_our_tool(here, with_mcp(Wire.MESSAGES, begun))

    async def a_moment_ago(who: object, session: str) -> float:
        return clock.now - 5

    async with world(tmp_path, PATIENT, clock=clock, last_request=a_moment_ago) as here:
        draft = await here.send(with_mcp(Wire.MESSAGES, [*begun, *asked("c1", LOG.text, command="pytest")]))

    assert draft.own_tool == "" and draft.reasons == ("recall_refused",)
