"""A long conversation in a small window: the provider never has to refuse it as too long."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User, body
from tests.support.deep import IS_DEEP
from tests.support.evil import Heard, Line, evil, http
from tests.support.fakes import Clock
from tests.support.model import Says
from tests.support.model import body as answer

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.config import parse
from kimi_proxy.core.tokens import count
from kimi_proxy.features.chat.context import tokens_of
from kimi_proxy.services.chat.requests import ChatRequest

WINDOW, OUTPUT = 16_000, 1_000
KINDS = {Wire.CHAT: "openai", Wire.MESSAGES: "anthropic", Wire.RESPONSES: "openai", Wire.GEMINI: "gemini"}
TURNS = 300 if IS_DEEP else 120
LIMITS = {
    Wire.CHAT: {"max_completion_tokens": OUTPUT},
    Wire.MESSAGES: {},
    Wire.RESPONSES: {"max_output_tokens": OUTPUT, "store": False},
    Wire.GEMINI: {"generationConfig": {"maxOutputTokens": OUTPUT}},
}


@dataclass
class SmallModel:
    """Refuses what does not fit into its window with the output that is asked for, as providers do."""

    wire: Wire
    output: int = OUTPUT
    sent: list[bytes] = field(default_factory=list)
    refused: int = 0

    async def __call__(self, heard: Heard, line: Line) -> None:
        self.sent.append(heard.body)
        # Counted as the provider would: a tenth more than we do.
        tokens = round(1.1 * tokens_of(Request(self.wire, heard.body), count))
        if tokens + self.output > WINDOW:
            self.refused += 1
            await line.send(http(b'{"error":{"message":"context length exceeded"}}', "400 Bad Request"))
            return
        await line.send(http(answer(self.wire, Says("Done.", tokens=(tokens, 20), id=f"a{len(self.sent)}"))))


@asynccontextmanager
async def world(wire: Wire, home: Path, settings: str = "") -> AsyncIterator[tuple[Runtime, SmallModel]]:
    model = SmallModel(wire)
    async with evil(model) as provider:
        url = provider.url.removesuffix("/v1") if wire is Wire.GEMINI else provider.url
        config = parse(
            f'[providers.small]\ntype = "{KINDS[wire]}"\nbase_url = "{url}"\n'
            f'[models."m"]\nprovider = "small"\nmax_context_size = {WINDOW}\n'
            f"[sanitizer]\nbudget_ms = 60_000\n{settings}",
            {},
            home,
        )
        async with running(config, thread_max_chars=10**9, now=Clock(1_767_600_000.0)) as runtime:
            yield runtime, model


def asked(wire: Wire, items: Sequence[Item]) -> bytes:
    raw = body(wire, items, ("bash",), model="m", **LIMITS[wire])
    return json.dumps({**json.loads(raw), "max_tokens": OUTPUT}).encode() if wire is Wire.MESSAGES else raw


async def send(runtime: Runtime, wire: Wire, items: Sequence[Item]) -> int:
    return await send_raw(runtime, wire, asked(wire, items))


async def send_raw(runtime: Runtime, wire: Wire, raw: bytes) -> int:
    headers = ((b"content-type", b"application/json"), (b"x-session-id", b"long"))
    async with runtime.chat.answer(ChatRequest(LOCAL, wire, raw, headers)) as got:
        async for _ in got.pieces():
            pass
    await runtime.sessions.caught_up()
    return got.status


def exchange(number: int) -> list[Item]:
    call = Call(f"c{number}", "bash", {"command": f"step {number}"})
    words = " ".join(f"word{number}x{at}" for at in range(40))
    return [User(f"Do step {number}: {words}"), Assistant("", (call,)), Result(call.id, f"step {number}: {words}")]


@pytest.mark.parametrize("wire", list(Wire))
async def test_a_conversation_of_many_turns_never_exceeds_the_window(wire: Wire, tmp_path: Path):
    items: list[Item] = []
    async with world(wire, tmp_path) as (runtime, model):
        for number in range(TURNS):
            items += exchange(number)
            if number % 4 == 3 or number > TURNS - 8:
                assert await send(runtime, wire, items) == 200, number
            items.append(Assistant(f"Step {number} is done."))
        newest = model.sent[-1]
        await runtime.compressions.undo(LOCAL, "long")
        whole = model.refused
        await send(runtime, wire, [*items, User("And?")])

    assert whole == 0
    assert len(asked(wire, items)) > 3 * len(newest)
    assert f"Do step {TURNS - 1}:".encode() in newest
    assert f"Do step {TURNS - 2}:".encode() in newest
    assert model.refused == 1, "what a person took back is not compressed again"


@pytest.mark.parametrize("output", [WINDOW // 2, WINDOW * 3 // 4])
async def test_an_answer_may_take_half_of_the_window_and_more(output: int, tmp_path: Path):
    items: list[Item] = []
    async with world(Wire.MESSAGES, tmp_path) as (runtime, model):
        model.output = output
        for number in range(40):
            items += exchange(number)
            raw = json.dumps({**json.loads(asked(Wire.MESSAGES, items)), "max_tokens": output}).encode()
            assert await send_raw(runtime, Wire.MESSAGES, raw) == 200, number
            items.append(Assistant(f"Step {number} is done."))

    assert model.refused == 0


async def test_a_limit_as_large_as_the_window_reserves_nothing(tmp_path: Path):
    """Some clients name the window itself: a provider that counted that could answer none of their requests."""
    items: list[Item] = []
    for number in range(20):
        items += [*exchange(number), Assistant("Done.")]
    async with world(Wire.MESSAGES, tmp_path) as (runtime, model):
        model.output = 0
        raw = json.dumps({**json.loads(asked(Wire.MESSAGES, items)), "max_tokens": WINDOW}).encode()
        assert await send_raw(runtime, Wire.MESSAGES, raw) == 200
    assert b"Do step 0:" in model.sent[0]


async def test_repeated_instructions_do_not_fill_the_window_either(tmp_path: Path):
    rules = {"role": "system", "content": " ".join(f"Rule {at}: never touch file {at}." for at in range(150))}
    items: list[Item] = []
    reminded = 0
    async with world(Wire.CHAT, tmp_path, "[reinjection]\nenabled = true\n") as (runtime, model):
        for number in range(60):
            items += exchange(number)
            asked_now = json.loads(asked(Wire.CHAT, items))
            raw = json.dumps({**asked_now, "messages": [rules, *asked_now["messages"]]}).encode()
            assert await send_raw(runtime, Wire.CHAT, raw) == 200, number
            reminded += model.sent[-1].count(b"Rule 149") - 1
            items.append(Assistant(f"Step {number} is done."))

    assert reminded > 0
    assert model.refused == 0


async def test_between_two_rescues_what_was_sent_stays(tmp_path: Path):
    items: list[Item] = []
    async with world(Wire.CHAT, tmp_path) as (runtime, model):
        for number in range(60):
            items += exchange(number)
            await send(runtime, Wire.CHAT, items)
            items.append(Assistant(f"Step {number} is done."))
    sent = [json.loads(raw)["messages"] for raw in model.sent]
    rewritten = [at for at, (a, b) in enumerate(pairwise(sent)) if b[: len(a)] != a]

    assert model.refused == 0
    assert 1 <= len(rewritten) <= 60 / 8, "each leaves room for several turns"


async def test_one_message_that_alone_exceeds_the_window_goes_out_with_a_warning(tmp_path: Path):
    text = " ".join(f"word{at}" for at in range(20_000))
    async with world(Wire.CHAT, tmp_path) as (runtime, model):
        status = await send(runtime, Wire.CHAT, [User(text)])
        (metric,) = [metric async for page in runtime.sessions.metrics(LOCAL, None) for metric in page]

    assert status == 400
    assert text.encode() in model.sent[0]
    assert "exceeds_window" in metric.reasons


@pytest.mark.parametrize("settings", ["[compression]\nrescue = false\n", 'mode = "observe"\n'])
async def test_it_can_be_turned_off_and_is_only_counted_under_observe(settings: str, tmp_path: Path):
    items: list[Item] = []
    for number in range(100):
        items += [*exchange(number), Assistant("Done.")]
    async with world(Wire.CHAT, tmp_path, settings) as (runtime, model):
        assert await send(runtime, Wire.CHAT, [*items, User("And?")]) == 400
        state = await runtime.compressions.session_stats(LOCAL, runtime.compressions.usual, "long")

    assert state["active"] is None
    assert json.loads(model.sent[0])["messages"] == json.loads(asked(Wire.CHAT, [*items, User("And?")]))["messages"]


async def test_a_larger_model_answers_where_only_the_answer_would_not_fit(tmp_path: Path):
    items: list[Item] = []
    for number in range(26):
        items += [*exchange(number), Assistant("Done.")]
    larger = '[models."larger"]\nprovider = "small"\nmax_context_size = 200_000\n'
    async with world(Wire.MESSAGES, tmp_path, larger) as (runtime, model):
        raw = json.dumps({**json.loads(asked(Wire.MESSAGES, items)), "max_tokens": WINDOW // 2}).encode()
        await send_raw(runtime, Wire.MESSAGES, raw)
        tokens = tokens_of(Request(Wire.MESSAGES, model.sent[0]), count)

    assert WINDOW / 2 < tokens < 0.9 * WINDOW
    assert json.loads(model.sent[0])["model"] == "larger"


async def test_where_a_larger_model_is_left_the_request_is_routed_there_whole(tmp_path: Path):
    items: list[Item] = []
    for number in range(60):
        items += [*exchange(number), Assistant("Done.")]
    larger = '[models."larger"]\nprovider = "small"\nmax_context_size = 200_000\n'
    async with world(Wire.CHAT, tmp_path, larger) as (runtime, model):
        await send(runtime, Wire.CHAT, [*items, User("And?")])

    asked_of = json.loads(model.sent[0])
    assert asked_of["model"] == "larger"
    assert "Do step 0:" in json.dumps(asked_of["messages"][1])
