"""A client that hangs up takes its request back: before the first token, in the middle of a stream, and without one."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.evil import STREAM_HEAD, Evil, Heard, Line, chunk, evil
from tests.support.processes import until

TRIALS = 20
WITHIN_S = 20  # a hundredth of this where the machine is idle; without a hang-up it would be 60
DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'


async def silent(heard: Heard, line: Line) -> None:
    """Takes the request, and thinks."""
    await line.until_left()


async def headers_only(heard: Heard, line: Line) -> None:
    await line.send(STREAM_HEAD)
    await line.until_left()


async def in_the_middle(heard: Heard, line: Line) -> None:
    await line.send(STREAM_HEAD, chunk(DELTA))
    await line.until_left()


async def half_an_answer(heard: Heard, line: Line) -> None:
    await line.send(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"half":')
    await line.until_left()


async def endless(heard: Heard, line: Line) -> None:
    """Writes as fast as it is read."""
    await line.send(STREAM_HEAD)
    try:
        while True:
            await line.send(chunk(DELTA * 100))
    except ConnectionError:
        line.finish()


@asynccontextmanager
async def asking(p: Proxy, stream: bool) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client that has sent its request."""
    body = json.dumps({"model": "m", "stream": stream, "messages": []}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{p.port}\r\nContent-Type: application/json\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", p.port)
    writer.write(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("ending", ["close", "abort"])
@pytest.mark.parametrize(
    ("window", "stream", "sign"),
    [
        (silent, True, None),
        (headers_only, True, b"text/event-stream"),
        (in_the_middle, True, DELTA),
        (silent, False, None),
        (half_an_answer, False, None),
    ],
)
async def test_the_provider_is_left_at_once(window, stream: bool, sign: bytes | None, ending: str, tmp_path: Path):
    async with evil(window) as provider, proxy(tmp_path, provider.toml()) as p:
        for trial in range(TRIALS):
            async with asking(p, stream) as (reader, writer):
                await until(lambda: len(provider.heard) == trial + 1)  # noqa: B023 - waited for in this round
                if sign is not None:
                    await reader.readuntil(sign)
                writer.close() if ending == "close" else writer.transport.abort()
                assert await left_within(provider, trial + 1) < WITHIN_S
        counted = p.runtime.metrics.text().decode()

    assert f'outcome="client_gone",provider="openai-evil",status="{200 if sign else 0}"}} {TRIALS}.0' in counted or (
        window is half_an_answer
    )


async def test_the_provider_is_left_by_a_client_that_had_stopped_reading(tmp_path: Path):
    async with evil(endless) as provider, proxy(tmp_path, provider.toml()) as p:
        for trial in range(TRIALS):
            async with asking(p, stream=True) as (reader, writer):
                await reader.readuntil(DELTA)
                await asyncio.sleep(0.05)  # buffers fill up on the way
                writer.transport.abort()
                assert await left_within(provider, trial + 1) < WITHIN_S


async def test_a_client_that_reads_nothing_lets_nothing_pile_up(tmp_path: Path):
    sent: list[int] = []

    async def script(heard: Heard, line: Line) -> None:
        await line.send(STREAM_HEAD)
        while True:
            await line.send(chunk(b"data: " + b"x" * 60_000 + b"\n\n"))
            sent.append(60_000)

    async with evil(script) as provider, proxy(tmp_path, provider.toml()) as p, asking(p, stream=True) as (reader, _):
        await reader.readuntil(b"data: ")
        before = -1
        while before != len(sent):  # until the provider has to wait
            before = len(sent)
            await asyncio.sleep(0.3)

    assert sum(sent) < 32 * 1024**2


async def left_within(provider: Evil, times: int) -> float:
    """Seconds until the provider saw that many connections end."""
    began = time.monotonic()
    await until(lambda: len(provider.left_at) >= times, within_s=60)
    return provider.left_at[times - 1] - began


async def test_one_client_s_hanging_up_leaves_the_others_alone(tmp_path: Path):
    go_on = asyncio.Event()

    async def script(heard: Heard, line: Line) -> None:
        await line.send(STREAM_HEAD, chunk(DELTA))
        await go_on.wait()
        await line.send(chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n")

    async with (
        evil(script) as provider,
        proxy(tmp_path, provider.toml()) as p,
        asking(p, stream=True) as (staying, _),
    ):
        await staying.readuntil(DELTA)
        async with asking(p, stream=True) as (leaving, _):
            await leaving.readuntil(DELTA)
        go_on.set()
        assert (await staying.readuntil(b"0\r\n\r\n")).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
