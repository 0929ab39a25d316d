"""The client of a swe-pruner server: whatever the server does, an answer or a reason comes within the budget."""

import asyncio
import struct
import time
from socket import SO_LINGER, SOL_SOCKET

import pytest
from tests.support.swe_pruner_server import Script, answering, request_of, response, saying, serving

from kimi_proxy.core.errors import PruneFailed
from kimi_proxy.proxy.pruners import SwePruner

BUDGET_S = 60.0  # an answer comes at once
SHORT_S = 0.4  # for servers that never answer


async def silence() -> None:
    await asyncio.Event().wait()


async def ask(script: Script, budget_s: float = BUDGET_S) -> str:
    async with serving(script) as address:
        pruner = SwePruner(address)
        try:
            return await pruner.prune("a\nb\nc", "what is b?", budget_s)
        finally:
            await pruner.close()


async def failure(script: Script, budget_s: float = BUDGET_S) -> str:
    started = time.monotonic()
    with pytest.raises(PruneFailed) as failed:
        await ask(script, budget_s)
    assert time.monotonic() - started < 30
    return failed.value.reason


async def test_the_text_and_the_question_are_posted_to_prune():
    asked: list[tuple[str, dict[str, object]]] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await request_of(reader))
        writer.write(response(b'{"pruned_code": "b"}'))

    assert await ask(script) == "b"
    assert asked == [("POST /prune HTTP/1.1", {"code": "a\nb\nc", "query": "what is b?"})]


async def test_an_endpoint_with_a_path_is_used_as_it_is():
    asked: list[str] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await request_of(reader))[0])
        writer.write(response(b'{"text": "b"}'))

    async with serving(script) as address:
        pruner = SwePruner(f"{address}/v1/prune?k=1")
        await pruner.prune("a", "q", BUDGET_S)
        await pruner.close()

    assert asked == ["POST /v1/prune?k=1 HTTP/1.1"]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"pruned_code": "p", "content": "c", "text": "t"}, "p"),
        ({"pruned_code": None, "content": "c", "text": "t"}, "c"),
        ({"pruned_code": 5, "content": [], "text": "t"}, "t"),
        ({"pruned_code": "p", "error_msg": None, "token_scores": [["a", 0.5]] * 300_000}, "p"),
    ],
    ids=["pruned_code", "content", "text", "many scores"],
)
async def test_the_first_string_among_the_known_names_is_the_text(answer: object, text: str):
    assert await ask(answering(answer)) == text


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"pruned_code": None},
        {"pruned_code": ""},
        {"code": "x"},
        [],
        "text",
        5,
        {"pruned_code": "a", "error_msg": "x"},
    ],
    ids=repr,
)
async def test_an_answer_without_a_text_is_invalid(answer: object):
    assert await failure(answering(answer)) == "invalid_response"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"<html>", b'{"pruned_code": "\xff"}', b'{"pruned_code": "a"} tail', b"[" * 100_000],
    ids=["empty", "cut", "HTML", "not UTF-8", "more than JSON", "deep"],
)
async def test_an_answer_that_is_not_json_is_invalid(body: bytes):
    assert await failure(saying(response(body))) == "invalid_response"


@pytest.mark.parametrize("status", ["301 Moved", "307 Redirect", "400 Bad", "404 No", "429 Slow", "500 Oh", "503 No"])
async def test_any_status_but_success_is_an_http_error(status: str):
    body = response(b'{"pruned_code": "b"}', status, "location: http://127.0.0.1:1/\r\n")

    assert await failure(saying(body)) == "http_error"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
        b"not http at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}",
    ],
    ids=["nothing", "half a head", "half a body", "no HTTP", "a bad chunk"],
)
async def test_a_connection_that_ends_early_is_an_http_error(raw: bytes):
    assert await failure(saying(raw)) == "http_error"


async def test_a_reset_is_an_http_error():
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))

    assert await failure(script) == "http_error"


async def test_nobody_listening_is_an_http_error():
    async with serving(saying(b"")) as address:
        pass
    pruner = SwePruner(address)
    with pytest.raises(PruneFailed) as failed:
        await pruner.prune("a", "q", BUDGET_S)
    await pruner.close()

    assert failed.value.reason == "http_error"


async def drip(writer: asyncio.StreamWriter) -> None:
    while not writer.is_closing():
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "raw",
    [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n", b'HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"pruned'],
    ids=["before the head", "after the head", "in the body"],
)
async def test_a_stall_ends_with_the_budget(raw: bytes):
    assert await failure(saying(raw, silence), SHORT_S) == "timeout"


async def test_an_answer_that_never_ends_ends_with_the_budget():
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await drip(writer)

    assert await failure(script, SHORT_S) == "timeout"


async def test_a_reader_that_takes_nothing_ends_with_the_budget():
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silence()

    async with serving(script) as address:
        pruner = SwePruner(address)
        with pytest.raises(PruneFailed) as failed:
            await pruner.prune("x" * 50_000_000, "q", SHORT_S)
        await pruner.close()

    assert failed.value.reason == "timeout"


async def test_lone_surrogates_are_sent_as_question_marks():
    seen: list[object] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append((await request_of(reader))[1]["code"])
        writer.write(response(b'{"text": "b"}'))

    async with serving(script) as address:
        pruner = SwePruner(address)
        await pruner.prune("a\ud800b", "q", BUDGET_S)
        await pruner.close()

    assert seen == ["a?b"]
