"""Whatever agents and tools say to each other, the sanitizer keeps its promises turn after turn."""

import asyncio
import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import outputs
from tests.support.conversations import Assistant, Call, Item, Result, User, request
from tests.support.deep import IS_DEEP
from tests.support.fakes import MemoryDecisions, MemoryFacts, MemoryOriginals

from kimi_proxy.core import tokens
from kimi_proxy.core.caller import LOCAL, LOCAL_SCOPE, Caller
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.config.sections import SanitizerSettings as Settings
from kimi_proxy.core.json import JsonObject, JsonValue, is_container
from kimi_proxy.features import recovery
from kimi_proxy.features.chat.pipeline import Draft, run_stages
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target
from kimi_proxy.features.sanitizer.plan import plan
from kimi_proxy.features.sanitizer.policy import POLICIES
from kimi_proxy.features.sanitizer.shorten import HUGE_TOKENS, ShortenedText, Task, shorten
from kimi_proxy.services.chat.decisions import ChatDecisions
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.notes import Notes
from kimi_proxy.services.chat.prompt_cache import PromptCaches
from kimi_proxy.services.chat.sanitizer import Sanitizer
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.workers.pool import Workers

THRESHOLD = 150
SETTINGS = Settings(threshold_tokens=THRESHOLD, preview_length=40, budget_ms=60_000)
# An example is a whole conversation: fewer of them go as far.
FEW = settings(max_examples=1_000 if IS_DEEP else 10)

CACHED: dict[str, JsonValue] = {"cache_control": {"type": "ephemeral"}}  # without it Anthropic caches nothing
LONG = POLICIES["default"].old_tokens

CODE = outputs.source_file().text.split("\n")


def a_log(seed: int, lines: int) -> str:
    rng = random.Random(seed)
    return "\n".join(
        f"ERROR step {i} failed: no route to db-{rng.randrange(9)}"
        if rng.random() < 0.02
        else f"step {i} took {seed} ms"
        for i in range(lines)
    )


def some_code(seed: int, lines: int) -> str:
    start = random.Random(seed).randrange(len(CODE))
    return "\n".join(CODE[start : start + lines])


def some_records(seed: int, count: int) -> str:
    return outputs.records(count, indent=None if seed % 2 else 2, seed=seed).text


MADE = st.builds(
    lambda make, seed, size: make(seed, size),
    st.sampled_from((a_log, some_code, some_records)),
    st.integers(0, 20),
    st.integers(1, 120),
)
ODD = st.text(max_size=400).map(lambda text: text * 9)
TEXTS = st.one_of(
    MADE, MADE, ODD, st.sampled_from(("", "ok", "x" * 3000, "⟦PRUNÉ: prune_id=prn_1 lignes 1-2 (2) raison=x⟧"))
)
WORDS = st.sampled_from(("Find the slow step.", "Why does it fail?", "TODO:\nread move()", "continue"))
SECTIONS = st.one_of(st.just(""), st.builds(lambda text: f"\n<console>{text}</console>\n", MADE))
TOOLS = st.sampled_from(("bash", "read_file", "mcp__pruner__recover_text"))


@st.composite
def steps(draw: st.DrawFn) -> list[Item]:
    """Calls, and their results in the same order; some clients number calls anew each time."""
    names = draw(st.lists(TOOLS, min_size=1, max_size=2))
    ids = [draw(st.sampled_from((f"call_{nth}", f"call_{draw(st.integers(0, 10**9))}"))) for nth in range(len(names))]
    calls = tuple(Call(id, name) for id, name in zip(ids, names, strict=True))
    return [Assistant(draw(WORDS), calls), *(Result(id, draw(TEXTS)) for id in ids)]


@st.composite
def conversations(draw: st.DrawFn) -> list[list[Item]]:
    """One list for each request: what is new in it."""
    turns: list[list[Item]] = []
    for _ in range(draw(st.integers(1, 3))):
        turns.append([User(draw(WORDS) + draw(SECTIONS))])
        turns += draw(st.lists(steps(), max_size=2))
        turns[-1] = [*turns[-1]]
        turns.append([Assistant("Done.")])
    return turns


class Inline(Workers):
    async def shorten(self, task: Task, within_s: float, cpu_s: float) -> ShortenedText:
        return shorten(task)


class World:
    def __init__(self) -> None:
        self.store, self.stored_decisions, self.facts = MemoryOriginals(), MemoryDecisions(), MemoryFacts()
        self.workers = Inline()
        self.last: float | None = None
        self.restart()

    def restart(self) -> None:
        decisions, caches = ChatDecisions(self.store, self.stored_decisions), PromptCaches(self.last_request)
        self.sanitizer = Sanitizer(
            SETTINGS, "http://127.0.0.1:8000", decisions, ChatFacts(Notes(self.facts)), self.workers, Metrics(), caches
        )

    async def last_request(self, who: Caller, session: str) -> float | None:
        return self.last

    async def send(self, request: Request) -> Draft:
        draft = Draft(request, Target("kimi", "kimi-k2"), Session("s"), LOCAL)
        left = await self.sanitizer.change(draft)
        self.last = time.time()
        return left


def messages(request: Request) -> list[bytes]:
    return [request.body[message.start : message.end] for message in request.messages]


def shape(request: Request) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Who says what kind of thing, in answer to which call."""
    return [(m.role, [(part.kind, part.call_id, part.name) for part in m.parts]) for m in request.messages]


@FEW
@given(st.sampled_from(Wire), conversations(), st.booleans())
def test_a_conversation_keeps_its_shape_its_bytes_and_a_way_back(wire: Wire, turns: list[list[Item]], restarts: bool):
    asyncio.run(_follow(wire, turns, restarts))


async def _follow(wire: Wire, turns: list[list[Item]], restarts: bool) -> None:
    world, said, before = World(), list[Item](), list[bytes]()
    for turn in turns:
        said += turn
        came = request(wire, said, **CACHED)
        left = (await world.send(came)).request
        assert messages(left)[: len(before)] == before
        assert shape(left) == shape(came)
        _check_members(came, left)
        await _check_parts(came, left, world)
        before = messages(left)
        if restarts:
            world.restart()
    await world.workers.close()


def _check_members(came: Request, left: Request) -> None:
    """Nothing but the conversation changes, and our tool behind the client's."""
    own, theirs = json.loads(left.body), json.loads(came.body)
    tools, before = ([*_declared(body.pop("tools"))] for body in (own, theirs))
    assert tools[: len(before)] == before
    assert [left.tool_names[-1]] * (len(tools) - 2) == [recovery.NAME] * (len(tools) - 2)
    own.pop(came.format.conversation), theirs.pop(came.format.conversation)
    assert own == theirs


def _declared(tools: list[JsonObject]) -> Iterator[JsonValue]:
    """Yield each tool; Gemini has them in lists."""
    for tool in tools:
        declared = tool.get("functionDeclarations")
        yield from declared if isinstance(declared, list) else (tool,)


async def _check_parts(came: Request, left: Request, world: World) -> None:
    outputs = {(output.spot, output.start): output for output in plan(came, LONG)}
    spots = {output.spot for output in outputs.values()}
    records = world.stored_decisions.records
    # What is old, or stands above already, is cut by its lines; all else that is JSON stays JSON.
    by_lines = {
        output.spot
        for output in outputs.values()
        if (record := records.get((LOCAL_SCOPE, output.key))) is not None and record.why in ("aged", "repeated")
    }
    for at, message in enumerate(came.messages):
        for index, part in enumerate(message.parts):
            shown = left.part(at, index).text
            if shown == part.text:
                continue
            assert (at, index) in spots
            assert tokens.count(shown) < tokens.count(part.text)
            is_huge = tokens.count(part.text) > HUGE_TOKENS  # and never enters whole, JSON or not
            assert not is_container(part.text) or is_container(shown) or is_huge or (at, index) in by_lines
    for output in outputs.values():
        pin = world.stored_decisions.records.get((LOCAL_SCOPE, output.key))
        if pin is not None and pin.shown is not None:
            assert output.whole_because != "recovered"
            assert (await world.store.get(LOCAL, pin.original_ids[0])).text == output.text.encode(
                "utf-8", "surrogatepass"
            )
            for id in pin.original_ids:
                assert await world.store.get(LOCAL, id)


@FEW
@given(st.sampled_from(Wire), conversations())
def test_a_conversation_seen_for_the_first_time_in_its_middle_is_safe_too(wire: Wire, turns: list[list[Item]]):
    """The proxy may be put in place while an agent is at work: then all is decided at once."""
    asyncio.run(_follow(wire, [[item for turn in turns for item in turn]], restarts=False))


@FEW
@given(st.sampled_from(Wire), conversations(), st.integers(0, 6))
def test_a_store_that_falls_ill_and_heals_never_leaves_a_marker_without_an_original(
    wire: Wire, turns: list[list[Item]], ill_at: int
):
    asyncio.run(_with_illness(wire, turns, ill_at))


async def _with_illness(wire: Wire, turns: list[list[Item]], ill_at: int) -> None:
    world, said = World(), list[Item]()
    for nth, turn in enumerate(turns):
        said += turn
        world.store.fall_ill(nth == ill_at)
        came = request(wire, said, **CACHED)
        left = (await world.send(came)).request
        assert shape(left) == shape(came)
        world.store.fall_ill(False)
        await _check_parts(came, left, world)
    await world.workers.close()


def test_the_draft_is_the_same_object_if_nothing_was_done():
    async def run() -> None:
        world = World()
        draft = Draft(request(Wire.CHAT, [User("hi")], tools=()), Target("kimi", "m"), Session("s"), LOCAL)
        assert await world.sanitizer.change(draft) == replace(draft)
        assert (await world.sanitizer.change(draft)).request is draft.request
        await world.workers.close()

    asyncio.run(run())


class Fleet:
    """Servers over one store, each with a memory of its own that may hold next to nothing."""

    def __init__(self, servers: int, remember_max: int) -> None:
        self.originals, self.stored, self.facts = MemoryOriginals(), MemoryDecisions(), MemoryFacts()
        self.workers = Inline()
        self.now, self.remember_max, self.is_shared = 1_000_000.0, remember_max, servers > 1
        self.caches = PromptCaches(now=lambda: self.now)
        self.servers = [self.made() for _ in range(servers)]

    def made(self) -> Sanitizer:
        decisions = ChatDecisions(
            *(self.originals, self.stored, 3600.0, lambda: self.now), self.is_shared, self.remember_max
        )
        settings = Settings(budget_ms=60_000)
        facts = ChatFacts(Notes(self.facts, 3600.0, lambda: self.now, self.is_shared))
        return Sanitizer(settings, "http://127.0.0.1:8000", decisions, facts, self.workers, Metrics(), self.caches)

    async def send(self, server: int, request: Request) -> Request:
        draft = Draft(request, Target("anthropic", "claude-opus-5"), Session("s"), LOCAL)
        stage = self.servers[server % len(self.servers)].change
        return (await run_stages(draft, (stage,), lambda step, error: pytest.fail(f"{step}: {error!r}"))).request


def a_result(seed: int, lines: int) -> str:
    return "\n".join(f"value_{seed}_{row} = settings.lookup({row * seed}, default={row})" for row in range(lines))


MOMENTS = st.tuples(
    st.sampled_from((1.0, 1.0, 1.0, 200.0, 4000.0)),  # seconds after the request before: the cache lives for 5 minutes
    st.integers(0, 2),  # which server gets it
    st.sampled_from((False, False, False, False, True)),  # it was restarted meanwhile
    st.integers(30, 45),  # lines of its result: none is cut when it enters
)


@settings(max_examples=1_000 if IS_DEEP else 30)
@given(
    st.sampled_from(Wire),
    st.lists(MOMENTS, min_size=8, max_size=14),
    st.sampled_from((1, 1, 3)),
    st.sampled_from((1, 1, 1000)),
)
def test_no_decision_once_sent_is_ever_unsent(
    wire: Wire, moments: list[tuple[float, int, bool, int]], servers: int, remember_max: int
):
    asyncio.run(_never_unsent(wire, moments, Fleet(servers, remember_max)))


async def _never_unsent(wire: Wire, moments: list[tuple[float, int, bool, int]], fleet: Fleet) -> None:
    said: list[Item] = [User("Tidy up.")]
    before = messages(await fleet.send(0, request(wire, said, **CACHED)))
    cut: set[int] = set()
    for nth, (pause, server, restarts, lines) in enumerate(moments):
        fleet.now += pause
        if restarts:
            fleet.servers[server % len(fleet.servers)] = fleet.made()
        said += [
            Assistant("", (Call(f"c{nth}", "read_file", {"path": f"src/m{nth}.py"}),)),
            Result(f"c{nth}", a_result(nth, lines)),
        ]
        came = request(wire, said, **CACHED)
        left = messages(await fleet.send(server, came))
        cut_now = {at for at, (sent, whole) in enumerate(zip(left, messages(came), strict=True)) if sent != whole}
        assert cut <= cut_now
        if pause < 300:
            assert left[: len(before)] == before
        before, cut = left, cut_now
    await fleet.workers.close()
