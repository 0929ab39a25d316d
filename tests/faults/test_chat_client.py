"""Clients that are slow, broken or hostile, and a server that has to stop: nobody else is harmed, and all are told."""

import asyncio
import json
import logging
import time
from pathlib import Path

import pytest
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.evil import STREAM_HEAD, Heard, Line, answering, chunk, evil, http
from tests.support.faults.chat_client import HEAD, PHASES, gone_at

GOOD = b'{"choices":[]}'
DELTA = b'data: {"choices":[]}\n\n'


async def raw(p: Proxy, request: bytes, within_s: float = 60) -> bytes:
    """What comes back to bytes that no client library would send."""
    reader, writer = await asyncio.open_connection("127.0.0.1", p.port)
    try:
        writer.write(request)
        async with asyncio.timeout(within_s):
            return await reader.read(4096)
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    ("path", "kind"), [("/v1/messages", "request_too_large"), ("/v1/responses", "invalid_request_error")]
)
async def test_a_body_that_is_too_large_is_refused_in_the_shape_of_the_api(path: str, kind: str, tmp_path: Path):
    async with evil(answering(http(GOOD))) as provider:
        toml = provider.toml() + "[access]\nmax_body_bytes = 100000\n"
        async with proxy(tmp_path, toml) as p:
            response = await p.http.post(path, json={"model": "m", "input": "x" * 200_000})

    assert (response.status_code, response.json()["error"]["type"]) == (413, kind)
    assert provider.heard == []


@pytest.mark.parametrize(
    "more",
    [
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "Content-Length: 2\r\nContent-Length: 5\r\n\r\n{}",
        "Content-Length: -1\r\n\r\n",
        "Content-Length: 2\r\nX: a\r\n b\r\n\r\n{}",
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_a_request_that_two_readers_could_read_differently_reaches_nobody(more: str, tmp_path: Path):
    async with evil(answering(http(GOOD))) as provider, proxy(tmp_path, provider.toml()) as p:
        said = await raw(p, (HEAD.format(path="/v1/chat/completions", port=p.port) + more).encode())

    assert said.startswith(b"HTTP/1.1 4") or said == b""
    assert provider.heard == []


BOMBS = {
    "deep": b'{"model":"m","messages":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}",
    "a long number": b'{"model":' + b"1" * 1_000_000 + b"}",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
async def test_a_bomb_is_refused_quickly(bomb: bytes, tmp_path: Path):
    async with evil(answering(http(GOOD))) as provider, proxy(tmp_path, provider.toml()) as p:
        began = time.monotonic()
        response = await p.http.post("/v1/chat/completions", content=bomb, headers={"content-type": "application/json"})
        took = time.monotonic() - began

    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
    assert took < 50
    assert provider.heard == []


CROWDS = {
    "wide": b'{"model":"m","messages":[' + b"[]," * 1_000_000 + b"[]]}",
    "many keys": b'{"model":"m",' + b",".join([b'"%d":0' % i for i in range(400_000)]) + b"}",
}


@pytest.mark.parametrize("crowd", CROWDS.values(), ids=CROWDS.keys())
async def test_a_crowd_of_values_passes_unread(crowd: bytes, tmp_path: Path):
    async with evil(answering(http(GOOD))) as provider, proxy(tmp_path, provider.toml()) as p:
        began = time.monotonic()
        json = {"content-type": "application/json"}
        response = await p.http.post("/v1/chat/completions", content=crowd, headers=json)
        took = time.monotonic() - began

    assert (response.status_code, provider.heard[0].body) == (200, crowd)
    assert took < 50


async def test_a_long_number_in_a_field_of_no_concern_passes(tmp_path: Path):
    body = b'{"model":"m","seed":' + b"1" * 5000 + b"}"
    async with evil(answering(http(GOOD))) as provider, proxy(tmp_path, provider.toml()) as p:
        await p.http.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})

    assert provider.heard[0].body == body


async def test_an_old_client_gets_its_answer(tmp_path: Path):
    body = b'{"model":"m"}'
    head = HEAD.format(path="/v1/chat/completions", port="{port}").replace("HTTP/1.1", "HTTP/1.0")
    async with evil(answering(http(GOOD))) as provider, proxy(tmp_path, provider.toml()) as p:
        said = await raw(p, head.format(port=p.port).encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    assert said.endswith(GOOD)


async def test_a_body_that_waits_to_be_asked_for_is_asked_for(tmp_path: Path):
    body = b'{"model":"m"}'
    async with evil(answering(http(GOOD))) as provider, proxy(tmp_path, provider.toml()) as p:
        reader, writer = await asyncio.open_connection("127.0.0.1", p.port)
        head = HEAD.format(path="/v1/chat/completions", port=p.port)
        writer.write(head.encode() + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        said = await reader.readuntil(GOOD)
        writer.close()

    assert said.startswith(b"HTTP/1.1 200")
    assert provider.heard[0].header("expect") is None


async def test_words_that_are_no_text_pass_as_they_are(tmp_path: Path):
    odd = b'data: {"model":"\xff\xfe","choices":[{"delta":{"content":"\x80"}}]}\n\ndata: [DONE]\n\n'
    async with (
        evil(answering(STREAM_HEAD, chunk(odd), b"0\r\n\r\n")) as provider,
        proxy(tmp_path, provider.toml()) as p,
    ):
        response = await p.http.post("/v1/chat/completions", json={"model": "m", "stream": True})

    assert response.content == odd


async def test_a_body_where_none_may_be_harms_nobody(tmp_path: Path):
    async def script(heard: Heard, line: Line) -> None:
        good = b"good" in heard.body
        await line.send(http(GOOD) if good else b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello")

    async with evil(script) as provider, proxy(tmp_path, provider.toml()) as p:
        first = await p.http.post("/v1/chat/completions", json={"model": "m"})
        second = await p.http.post("/v1/chat/completions", json={"model": "good"})

    assert first.status_code == 502
    assert (second.status_code, second.content) == (200, GOOD)


async def test_a_server_that_stops_ends_its_streams_without_a_fuss(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async def script(heard: Heard, line: Line) -> None:
        await line.send(STREAM_HEAD, chunk(DELTA))
        await line.until_left()

    async def stream(p: Proxy) -> bytes:
        body = json.dumps({"model": "m", "stream": True}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", p.port)
        head = HEAD.format(path="/v1/chat/completions", port=p.port)
        writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await reader.readuntil(DELTA)
        begun.release()
        rest = await reader.read()
        writer.close()
        return rest

    begun = asyncio.Semaphore(0)
    with caplog.at_level(logging.INFO):
        async with evil(script) as provider:
            async with proxy(tmp_path, provider.toml()) as p:
                streams = [asyncio.create_task(stream(p)) for _ in range(20)]
                for _ in streams:
                    await begun.acquire()
                began = time.monotonic()
            stopped_after = time.monotonic() - began
            ends = await asyncio.gather(*streams)

    assert stopped_after < 60
    assert not any(b"0\r\n\r\n" in end for end in ends), "an end that looks like success"
    assert "Traceback" not in caplog.text
    assert len(provider.left_at) == 20


@pytest.mark.parametrize("phase", PHASES)
async def test_a_client_that_is_gone_at_any_phase_harms_nobody(phase: str, tmp_path: Path):
    async def script(heard: Heard, line: Line) -> None:
        if b"healthy" in heard.body:
            await line.send(http(GOOD))
        else:
            await line.send(STREAM_HEAD, chunk(DELTA))
            await line.until_left()

    async with evil(script) as provider, proxy(tmp_path, provider.toml()) as p:
        await asyncio.gather(*(gone_at(p, phase) for _ in range(5)))
        well = {"model": "m", "messages": [{"role": "user", "content": "healthy"}]}
        response = await p.http.post("/v1/chat/completions", json=well)

    assert (response.status_code, response.content) == (200, GOOD)


async def test_a_client_that_closes_its_half_is_answered_or_left_and_harms_nobody(tmp_path: Path):
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    async with evil(answering(http(GOOD))) as provider, proxy(tmp_path, provider.toml()) as p:
        head = HEAD.format(path="/v1/chat/completions", port=p.port) + f"Content-Length: {len(body)}\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", p.port)
        writer.write(head.encode() + body)
        writer.write_eof()
        async with asyncio.timeout(60):
            said = await reader.read()
        writer.close()
        response = await p.http.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})

    assert said == b"" or said.endswith(GOOD)
    assert response.content == GOOD
