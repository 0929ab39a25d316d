"""Rarely used tools are left out of a request, and found and called when the model needs them."""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.cached_providers import Block, CachedProvider, Counts, anthropic, moonshot
from tests.support.conversations import Assistant, Item, Result, User
from tests.support.conversations import Call as Asked
from tests.support.evil import Heard, Line, evil, http
from tests.support.fakes import Clock
from tests.support.model import Call, Says
from tests.support.model import body as model_body
from tests.support.services.chat.deferral import CORE, CREATE, RARE, SEARCHING, USING, ask, body, names
from tests.support.services.chat.recall import Model

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.chat.reply import ReplyReader
from kimi_proxy.core.config import parse as parse_config
from kimi_proxy.core.json import JsonObject

WIRES = pytest.mark.parametrize("wire", list(Wire))
STREAM = pytest.mark.parametrize("stream", [True, False])
ON = '[deferred_tools]\nclients = ["opencode"]\n'


@dataclass
class World:
    home: Path
    model: Model
    clock: Clock
    settings: str = ON

    @asynccontextmanager
    async def runtime(self) -> AsyncIterator[Runtime]:
        kind = self.model.wire.format.provider_types[0]
        async with (
            evil(self.model) as provider,
            running(parse_config(f"{provider.toml(kind)}{self.settings}", {}, self.home), now=self.clock) as runtime,
        ):
            yield runtime


@WIRES
@STREAM
async def test_the_model_finds_a_tool_and_the_client_reads_a_call_of_its_own(tmp_path: Path, wire: Wire, stream: bool):
    model = Model(wire, [Says("Hm.", (SEARCHING,)), Says("Here.", (USING,)), Says("Done.")])
    items: list[Item] = [User("Please file a ticket")]
    async with World(tmp_path, model, Clock(0.0)).runtime() as runtime:
        answer = await ask(runtime, wire, body(wire, items, stream))
        later = [*items, Assistant("Here.", (Asked("call_u1", RARE[0], CREATE),)), Result("call_u1", "filed")]
        await ask(runtime, wire, body(wire, later, stream))

    first, again, last = (parse(raw, wire) for raw in model.requests)
    assert b"find_tools" not in answer and b"use_tool" not in answer
    assert RARE[0].encode() in answer
    assert set(first.tool_names) == {*CORE, "recover_text", "find_tools", "use_tool"}
    found = json.loads(again.messages[-1].parts[-1].text)
    assert found["tools"][0]["name"] == RARE[0] and "inputSchema" in found["tools"][0]
    # What was sent stays byte for byte, and the history tells of the call as the model made it.
    assert last.body.startswith(first.body[: first.messages[-1].end])
    call, result = last.messages[-2].parts[-1], last.messages[-1].parts[-1]
    assert call.name == "use_tool" and json.loads(call.text) == {"name": RARE[0], "arguments": CREATE}
    assert result.text.startswith("filed\n\n[use_tool, {") and "inputSchema" in result.text


async def test_a_tool_that_is_not_there_is_answered_with_the_nearest_and_the_client_does_not_see_it(tmp_path: Path):
    wrong = Call("own_1", "use_tool", {"name": "create_issues", "arguments": {}})
    unreadable = Call("own_2", "use_tool", {"name": RARE[0], "arguments": "no object"})
    model = Model(Wire.CHAT, [Says("", (wrong,)), Says("", (unreadable,)), Says("", (USING,))])
    async with World(tmp_path, model, Clock(0.0)).runtime() as runtime:
        answer = await ask(runtime, Wire.CHAT, body(Wire.CHAT, [User("go")]))

    told = [json.loads(raw)["messages"][-1]["content"] for raw in model.requests[1:]]
    assert told[0].startswith("unknown_tool: ") and RARE[0] in told[0]
    assert told[1].startswith("invalid_arguments: ") and "inputSchema" in told[1]
    (call,) = json.loads(answer)["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": RARE[0], "arguments": json.dumps(CREATE, separators=(",", ":"))}


@WIRES
@STREAM
async def test_beside_a_call_of_the_client_a_deferred_one_reaches_it_too(tmp_path: Path, wire: Wire, stream: bool):
    model = Model(wire, [Says("Both.", (Call("call_b1", "bash", {"command": "ls"}), SEARCHING, USING))])
    async with World(tmp_path, model, Clock(0.0)).runtime() as runtime:
        answer = await ask(runtime, wire, body(wire, [User("go")], stream))

    assert len(model.requests) == 1
    assert all(name in answer for name in (b"call_b1", b"call_u1", RARE[0].encode()))
    assert b"find_tools" not in answer and b"use_tool" not in answer


@WIRES
@STREAM
async def test_a_deferred_tool_that_the_model_calls_by_its_own_name_reaches_the_client(
    tmp_path: Path, wire: Wire, stream: bool
):
    model = Model(wire, [Says("", (Call("call_u1", RARE[0], CREATE),))])
    async with World(tmp_path, model, Clock(0.0)).runtime() as runtime:
        answer = await ask(runtime, wire, body(wire, [User("go")], stream))
    reader = ReplyReader(wire, stream)
    reader.feed(answer)

    assert reader.facts.is_complete and RARE[0].encode() in answer


@WIRES
async def test_by_default_no_tool_is_left_out(tmp_path: Path, wire: Wire):
    model = Model(wire, [Says("ok")])
    raw = body(wire, [User("go")])
    async with World(tmp_path, model, Clock(0.0), "[sanitizer]\nrecover_tool = false\n").runtime() as runtime:
        await ask(runtime, wire, raw)

    assert names(model.requests[0], wire) == {*CORE, *RARE}


@pytest.mark.parametrize(
    ("settings", "left_out"),
    [
        ('clients = ["claude"]', set()),
        ('clients = ["*"]', set(RARE)),
        (
            'clients = ["OpenCode"]\nalways = ["mcp__tickets__create_*"]',
            {name for name in RARE if "create" not in name},
        ),
        ('tools = ["mcp__tickets__*"]', set(RARE)),
        (f'tools = ["bash", "{RARE[0]}", "{RARE[1]}"]', {"bash", *RARE[:2]}),
        ('tools = ["bash"]', set()),  # our two tools would cost more
        ('tools = ["mcp__tickets__*"]\nalways = ["mcp__*"]', set()),
    ],
)
async def test_the_settings_say_for_which_clients_and_which_tools(tmp_path: Path, settings: str, left_out: set[str]):
    model = Model(Wire.MESSAGES, [Says("ok")])
    async with World(tmp_path, model, Clock(0.0), f"[deferred_tools]\n{settings}\n").runtime() as runtime:
        await ask(runtime, Wire.MESSAGES, body(Wire.MESSAGES, [User("go")]))

    assert {*CORE, *RARE} - names(model.requests[0], Wire.MESSAGES) == left_out


@pytest.mark.parametrize(
    "more",
    [
        {"name": "tool_search_tool_bm25", "type": "tool_search_tool_bm25_20251119"},
        {"name": "ToolSearch", "input_schema": {"type": "object"}},
        {"name": "x", "input_schema": {"type": "object"}, "defer_loading": True},
        {"name": "find_tools", "input_schema": {"type": "object"}},
    ],
)
async def test_a_client_that_has_a_search_of_its_own_keeps_its_tools(tmp_path: Path, more: JsonObject):
    model = Model(Wire.MESSAGES, [Says("ok")])
    raw = body(Wire.MESSAGES, [User("go")]).replace(b'"tools": [', b'"tools": [' + json.dumps(more).encode() + b", ")
    async with World(tmp_path, model, Clock(0.0)).runtime() as runtime:
        await ask(runtime, Wire.MESSAGES, raw)

    assert set(RARE) <= names(model.requests[0], Wire.MESSAGES)


async def test_a_tool_that_has_to_be_called_is_there(tmp_path: Path):
    model = Model(Wire.MESSAGES, [Says("ok")])
    forced: JsonObject = {"type": "tool", "name": RARE[0]}
    async with World(tmp_path, model, Clock(0.0)).runtime() as runtime:
        await ask(runtime, Wire.MESSAGES, body(Wire.MESSAGES, [User("go")], tool_choice=forced))

    assert set(RARE) <= names(model.requests[0], Wire.MESSAGES)


async def test_a_tool_with_a_mark_of_the_prompt_cache_stays(tmp_path: Path):
    model = Model(Wire.MESSAGES, [Says("ok")])
    asked = json.loads(body(Wire.MESSAGES, [User("go")]))
    asked["tools"][-1]["cache_control"] = {"type": "ephemeral"}
    async with World(tmp_path, model, Clock(0.0)).runtime() as runtime:
        await ask(runtime, Wire.MESSAGES, json.dumps(asked).encode())

    assert names(model.requests[0], Wire.MESSAGES) & set(RARE) == {RARE[-1]}


async def test_a_signed_request_keeps_its_tools(tmp_path: Path):
    model = Model(Wire.MESSAGES, [Says("ok")])
    asked = json.loads(body(Wire.MESSAGES, [User("go")]))
    asked["system"] = [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=abcde;"}]
    raw = json.dumps(asked).encode()
    async with evil(model) as provider:
        toml = f'[providers.anthropic]\nbase_url = "{provider.url}"\napi_key = ""\n{ON}'
        async with running(parse_config(toml, {}, tmp_path)) as runtime:
            await ask(runtime, Wire.MESSAGES, raw)

    assert model.requests == [raw]


def turns(count: int, name: str = "bash") -> list[Item]:
    """Return a conversation in which a tool was called so many times."""
    items: list[Item] = [User("go")]
    for number in range(count):
        call = Asked(f"c{number}", name, {"command": f"{number}"})
        items += [Assistant(f"Step {number}", (call,)), Result(f"c{number}", "ok")]
    return items


@WIRES
async def test_what_a_conversation_leaves_out_stays_so_until_its_cache_is_cold(tmp_path: Path, wire: Wire):
    clock, model = Clock(0.0), Model(wire, [Says("ok")])
    for count, settings in enumerate((ON, ON, "", "")):
        async with World(tmp_path, model, clock, settings).runtime() as runtime:
            await ask(runtime, wire, body(wire, turns(count)))
            clock.advance(20.0)
    clock.advance(90_000.0)
    async with World(tmp_path, model, clock, "").runtime() as runtime:
        await ask(runtime, wire, body(wire, turns(4)))

    first, *warm, cold = (parse(raw, wire) for raw in model.requests)
    assert all(each.tool_names == first.tool_names for each in warm)
    assert all(
        each.body.startswith(before.body[: before.messages[-1].end]) for before, each in pairwise([first, *warm])
    )
    assert set(cold.tool_names) >= {*CORE, *RARE} and "find_tools" not in cold.tool_names


async def test_a_conversation_that_began_with_all_tools_keeps_them_while_its_cache_is_warm(tmp_path: Path):
    wire, clock, model = Wire.MESSAGES, Clock(0.0), Model(Wire.MESSAGES, [Says("ok")])
    for count, (settings, pause_s) in enumerate((("", 20.0), (ON, 20.0), (ON, 90_000.0), (ON, 0.0))):
        async with World(tmp_path, model, clock, settings).runtime() as runtime:
            await ask(runtime, wire, body(wire, turns(count)))
            clock.advance(pause_s)

    assert [RARE[0] in names(raw, wire) for raw in model.requests] == [True, True, True, False]


async def test_a_tool_that_was_called_stays_from_the_next_day_on_for_a_week(tmp_path: Path):
    wire, clock, model = Wire.CHAT, Clock(1_000_000.0), Model(Wire.CHAT, [Says("ok")])
    async with World(tmp_path, model, clock).runtime() as runtime:
        for at, pause_s in enumerate((0.0, 0.0, 86_400.0, 9 * 86_400.0)):
            clock.advance(pause_s)
            items = turns(1, RARE[0]) if at == 0 else [User(f"another question {at}")]
            await ask(runtime, wire, body(wire, items))

    # In the first conversation it was called; the second begins on the same day.
    assert [RARE[0] in names(raw, wire) for raw in model.requests] == [True, False, True, False]


async def test_without_the_store_every_tool_is_sent(tmp_path: Path):
    """What could not be repeated after a restart is not begun."""
    model = Model(Wire.CHAT, [Says("ok")])
    async with World(tmp_path, model, Clock(0.0)).runtime() as runtime:
        await runtime.store.close()
        await ask(runtime, Wire.CHAT, body(Wire.CHAT, [User("go")]))

    assert names(model.requests[0], Wire.CHAT) >= set(RARE)


PRICES = {
    Wire.MESSAGES: {"plain": 5.0, "read": 0.5, "write": 6.25, "hour": 10.0, "output": 25.0},
    Wire.CHAT: {"plain": 3.0, "read": 0.3, "write": 3.0, "hour": 3.0, "output": 15.0},
}


@dataclass
class WorkingModel:
    """Searches for a tool, calls it, and goes on with the client's own, before a provider that caches by its rules."""

    wire: Wire
    provider: CachedProvider
    first_rounds: list[list[str]] = field(default_factory=list)  # what it read when the client asked

    async def __call__(self, heard: Heard, line: Line) -> None:
        asked = json.loads(heard.body)
        charged = self.provider.charge(asked, self.wire is Wire.MESSAGES)
        is_later_round = "inputSchema" in json.dumps(asked["messages"][-1]) and "searched" in json.dumps(
            asked["messages"][-1]
        )
        number = len(self.first_rounds)
        if not is_later_round:
            self.first_rounds.append(self.provider.prompts[-1])
        has_search = "find_tools" in json.dumps(asked["tools"])
        says = Says("Hm.", (Call("call_b", "bash", {"command": "ls"}),))
        if number in (2, 5):
            says = Says("", (SEARCHING,)) if has_search and not is_later_round else Says("", (USING,))
        if not has_search and number in (2, 5):
            says = Says("", (Call("call_u1", RARE[0], CREATE),))
        await line.send(
            http(json.dumps({**json.loads(model_body(self.wire, says)), "usage": charged["usage"]}).encode())
        )


def a_session(wire: Wire) -> Iterator[bytes]:
    """Yield the requests of a client; a tool that was left out is called in the third and the sixth turn."""
    items: list[Item] = [User("Sort the tickets.")]
    for number in range(12):
        raw = json.loads(body(wire, items, rare=MANY))
        if wire is Wire.MESSAGES:
            last = raw["messages"][-1]
            blocks = (
                [{"type": "text", "text": last["content"]}] if isinstance(last["content"], str) else last["content"]
            )
            last["content"] = [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]
        yield json.dumps(raw).encode()
        call = Asked(f"c{number}", RARE[0], CREATE) if number in (2, 5) else Asked(f"c{number}", "bash", {"n": number})
        items += [Assistant(f"Step {number}.", (call,)), Result(f"c{number}", f"line of {number}\n" * 30)]


MANY = tuple(
    f"mcp__tickets__{verb}_{noun}"
    for verb in ("create", "list", "close", "move", "copy", "find", "rank", "tag")
    for noun in ("issue", "board", "label", "page", "user")
)


@pytest.mark.parametrize(("wire", "cache"), [(Wire.MESSAGES, anthropic), (Wire.CHAT, moonshot)])
async def test_no_warm_prefix_changes_in_a_session_with_restarts_and_the_bill_is_lower(
    tmp_path: Path, wire: Wire, cache: Callable[[CachedProvider, Sequence[Block]], Counts]
):
    bills: dict[str, float] = {}
    for name, settings in (("off", ""), ("on", ON)):
        clock = Clock(0.0)
        provider = CachedProvider(clock, cache, PRICES[wire])
        model = WorkingModel(wire, provider)
        requests = list(a_session(wire))
        for begin in range(0, len(requests), 4):  # three servers, one after the other
            async with World(tmp_path / name, model, clock, settings).runtime() as runtime:  # type: ignore[arg-type]
                for raw in requests[begin : begin + 4]:
                    clock.advance(20.0)
                    await ask(runtime, wire, raw)
        bills[name] = provider.bill
        prompts = model.first_rounds
        changed = [at for at in range(1, len(prompts)) if prompts[at][: len(prompts[at - 1])] != prompts[at - 1]]
        assert (len(prompts), changed, provider.refused) == (12, [], [])

    assert bills["on"] < 0.6 * bills["off"]
