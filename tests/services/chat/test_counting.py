"""A growing conversation costs its new part, and counts as a plain recount would."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.support.conversations import Assistant, Call, Result, User, request
from tests.support.texts import a_log

from kimi_proxy.core import tokens
from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.chat.edit import with_tool
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.chat.context import MESSAGE_TOKENS, Composition, composition, tokens_of
from kimi_proxy.features.chat.memory import weigh_text
from kimi_proxy.services.chat.context import MAX_COUNTED_CHARS, SHORT_BYTES, SHORT_CHARS, TokenCounter

TOOLS: JsonValue = [
    {"type": "function", "function": {"name": "bash", "description": "Run it.", "parameters": {"type": "object"}}}
]
CALL: JsonValue = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls -la"}'}}
IMAGE: JsonValue = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}


def a_request(turns: int, lines: int = 40) -> Request:
    messages: list[JsonValue] = [{"role": "system", "content": "You are brief. 🦊"}]
    for turn in range(turns):
        messages += [
            {"role": "user", "content": [{"type": "text", "text": f"où est l'erreur {turn} ?"}, IMAGE]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": f"{turn}\n{a_log(lines)}"},
        ]
    return parse(json.dumps({"model": "m", "messages": messages, "tools": TOOLS}).encode(), Wire.CHAT)


@pytest.fixture
def counting() -> Iterator[TokenCounter]:
    made = TokenCounter()
    yield made
    made.close()


@pytest.mark.parametrize("turns", [0, 1, 30])
async def test_an_estimate_is_what_a_plain_recount_gives(counting: TokenCounter, turns: int):
    request = a_request(turns)

    for _ in range(2):
        weighed = await counting.composition(request)
        assert weighed == composition(request, lambda text: weigh_text(text, tokens.count))
        assert weighed.total == tokens_of(request, tokens.count)


async def test_both_ways_of_a_request_are_counted(counting: TokenCounter):
    came, leaves = a_request(3, lines=200), a_request(3, lines=20)

    before, after = await counting.both(came, leaves)
    assert (before.total, after.total) == (tokens_of(came, tokens.count), tokens_of(leaves, tokens.count))


@pytest.mark.parametrize("wire", Wire)
async def test_a_request_that_only_gets_our_tool_is_counted_as_a_plain_recount_does(counting: TokenCounter, wire: Wire):
    came = request(wire, [User("why?"), Assistant("", (Call("c1"),)), Result("c1", a_log(40)), User("fix it")])
    leaves = with_tool(came, "recover_text", "Give the lines back.", {"type": "object"})

    assert await counting.both(came, leaves) == tuple(
        composition(each, lambda text: weigh_text(text, tokens.count)) for each in (came, leaves)
    )


async def test_a_growing_conversation_costs_only_its_new_part():
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return tokens.count(text)

    counting = TokenCounter(count)
    await counting.both(a_request(20), a_request(20))
    before = len(counted)
    await counting.both(a_request(21), a_request(21))
    counting.close()

    assert len(counted) - before == 2  # a question and an output; the call is an old one


async def test_counting_never_holds_up_the_loop_for_long(counting: TokenCounter):
    await counting.both(a_request(1), a_request(1))
    large = a_request(10, lines=4_000)
    assert len(large.body) > 2_000_000
    gaps: list[float] = []

    async def look() -> None:
        while True:
            before = time.process_time()  # not the clock on the wall: the machine may be busy
            await asyncio.sleep(0.001)
            gaps.append(time.process_time() - before)

    looking = asyncio.create_task(look())
    await counting.both(large, large)
    looking.cancel()

    assert sorted(gaps)[len(gaps) * 9 // 10] < 0.05


def counted_at_once(counting: TokenCounter, request: Request) -> int | None:
    """What is counted before anybody else has a turn."""
    coroutine = counting.composition(request)
    try:
        coroutine.send(None)
    except StopIteration as counted:
        found: Composition = counted.value
        return found.total
    coroutine.close()
    return None


async def test_what_takes_a_moment_is_counted_at_once_when_all_is_loaded():
    threads: set[int] = set()

    def count(text: str) -> int:
        threads.add(threading.get_ident())
        return tokens.count(text)

    small, other = a_request(1), a_request(2)
    assert len(other.body) < SHORT_BYTES
    with closing(TokenCounter(count)) as counting:
        await counting.composition(small)
        assert threading.get_ident() not in threads

        assert counted_at_once(counting, other) == tokens_of(other, tokens.count)
        assert threading.get_ident() in threads


async def test_a_long_conversation_that_is_known_is_counted_at_once_with_its_new_part(counting: TokenCounter):
    known, longer = a_request(15), a_request(16)
    await counting.both(known, known)

    assert len(longer.body) > SHORT_CHARS
    assert counted_at_once(counting, longer) == tokens_of(longer, tokens.count)


async def test_much_that_is_new_is_left_to_the_thread(counting: TokenCounter):
    await counting.both(a_request(0), a_request(0))

    assert counted_at_once(counting, a_request(8, lines=300)) is None


async def test_a_text_that_fits_no_window_is_estimated_from_its_length():
    counting = TokenCounter(lambda text: 10**9)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * (MAX_COUNTED_CHARS + 1)}]}).encode()
    request = parse(body, Wire.CHAT)
    counted = await counting.composition(request)
    counting.close()

    assert counted.total == MESSAGE_TOKENS + MAX_COUNTED_CHARS // 4 + 1


async def test_lone_surrogates_are_counted_too(counting: TokenCounter):
    body = b'{"model": "m", "messages": [{"role": "user", "content": "a \\ud800 b"}]}'

    request = parse(body, Wire.CHAT)
    assert (await counting.composition(request)).total > MESSAGE_TOKENS


async def test_memory_is_remembered_with_the_tokens_of_its_text(counting: TokenCounter):
    text = "avant <mcp-memory>la clé est verte 🦊</mcp-memory> après, @recall(la clé)"
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}] * 2}).encode()

    first, again = [await counting.composition(parse(body, Wire.CHAT)) for _ in range(2)]

    pieces = ("<mcp-memory>la clé est verte 🦊</mcp-memory>", "@recall(la clé)")
    assert first == again
    assert first.memory == 2 * sum(tokens.count(piece) for piece in pieces)
    assert [(found.kind, found.count) for found in first.found] == [("mcp-memory", 2), ("@recall", 2)]


async def test_who_waits_for_an_answer_does_not_wait_for_what_is_only_noted():
    noting, may_end = threading.Event(), threading.Event()

    def count(text: str) -> int:
        if "noted" in text:
            noting.set()
            assert may_end.wait(60)
        return len(text)

    counting = TokenCounter(count)
    noted = parse(b'{"model": "m", "messages": [{"role": "user", "content": "noted"}]}', Wire.CHAT)
    behind = asyncio.create_task(counting.both(noted, noted))
    await asyncio.to_thread(noting.wait, 30)
    async with asyncio.timeout(60):
        await counting.composition(a_request(1))
    assert not behind.done()
    may_end.set()
    await behind
    counting.close()
