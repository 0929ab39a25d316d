"""Every way in which a provider can fail: the client is told in its own API, and the next request is answered."""

import asyncio
import json
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.evil import LAST_CHUNK, STREAM_HEAD, Heard, Line, Script, answering, chunk, evil, http
from tests.support.faults.chat_upstream import (
    BREAKS,
    DELTA,
    GOOD,
    HEALTHY,
    ask,
    broken_off,
    headers_then_silence,
    junk,
    sick,
    silence,
)

DONE = b"data: [DONE]\n\n"
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}


@asynccontextmanager
async def world(tmp_path: Path, script: Script, kind: str = "openai", **settings: float) -> AsyncIterator[Proxy]:
    """A proxy in front of a failing provider; at the end the provider is well, and so are we."""
    async with evil(sick(script)) as provider, proxy(tmp_path, provider.toml(kind, **settings)) as p:
        yield p
        response = await p.http.post(PATHS[kind], json=ask(False, HEALTHY))
        assert (response.status_code, response.content) == (200, GOOD)


async def reset_before_headers(heard: Heard, line: Line) -> None:
    line.reset()


async def endless_headers(heard: Heard, line: Line) -> None:
    await line.send(b"HTTP/1.1 200 OK\r\n")
    try:
        for number in range(1_000_000):
            await line.send(b"X-%d: %b\r\n" % (number, b"y" * 1000))
    except ConnectionError:
        line.finish()


async def many_continues(heard: Heard, line: Line) -> None:
    await line.send(*[b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"] * 50, http(GOOD))


async def until_dropped(p: Proxy, body: dict[str, object], path: str = "/v1/chat/completions") -> bytes:
    """What comes before the connection is dropped, upon which agents ask again."""
    came = b""
    with pytest.raises(httpx.RemoteProtocolError):
        async with p.http.stream("POST", path, json=body) as response:
            assert response.status_code == 200
            async for piece in response.aiter_raw():
                came += piece
    return came


# Before an answer


async def test_nobody_listens(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        toml = f'[providers.down]\nbase_url = "http://127.0.0.1:{taken.getsockname()[1]}/v1"\n'
        async with proxy(tmp_path, toml) as p:
            response = await p.http.post("/v1/chat/completions", json=ask())

    assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert response.json()["error"]["type"] == "server_error"


async def test_the_name_has_no_address(tmp_path: Path):
    async with proxy(tmp_path, '[providers.lost]\nbase_url = "http://nowhere.invalid/v1"\n') as p:
        response = await p.http.post("/v1/chat/completions", json=ask())

    assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert "nowhere.invalid" not in response.text


async def test_a_connection_that_never_comes_about_is_given_up(tmp_path: Path):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for line in waiting:  # whoever comes now has to wait for a place
            line.setblocking(False)
            line.connect_ex(address)
        toml = f'[providers.full]\nbase_url = "http://127.0.0.1:{address[1]}/v1"\nconnect_timeout_s = 0.5\n'
        async with proxy(tmp_path, toml) as p:
            began = time.monotonic()
            response = await p.http.post("/v1/chat/completions", json=ask())
            took = time.monotonic() - began
        for line in waiting:
            line.close()

    assert (response.status_code, response.json()["error"]["code"]) == (504, "upstream_timeout")
    assert 0.4 < took < 50


async def test_tls_where_there_is_none(tmp_path: Path):
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 This is plain HTTP\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    toml = f'[providers.plain]\nbase_url = "https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"\n'
    async with server, proxy(tmp_path, toml) as p:
        response = await p.http.post("/v1/chat/completions", json=ask())

    assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_unreachable")


async def test_a_certificate_that_nobody_signed(tmp_path: Path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    made = await asyncio.to_thread(
        subprocess.run, [*command, "-keyout", str(key), "-out", str(certificate)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("openssl cannot make a certificate here")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(10))
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    toml = f'[providers.self]\nbase_url = "https://localhost:{server.sockets[0].getsockname()[1]}/v1"\n'
    async with server, proxy(tmp_path, toml) as p:
        response = await p.http.post("/v1/chat/completions", json=ask())

    assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert "TLS" in response.json()["error"]["message"]
    assert [first for first in heard if first] == []


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_no_first_byte_in_time(kind: str, tmp_path: Path):
    async with world(tmp_path, silence, kind, first_token_timeout_s=1) as p:
        began = time.monotonic()
        response = await p.http.post(PATHS[kind], json=ask())
        took = time.monotonic() - began

    assert (response.status_code, response.json()["error"]["code"]) == (504, "upstream_timeout")
    assert response.json()["error"]["type"] == ("timeout_error" if kind == "anthropic" else "server_error")
    assert 0.9 < took < 30


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (reset_before_headers, "upstream_unreachable"),
        (junk, "upstream_unreadable"),
        (endless_headers, "upstream_unreadable"),
    ],
)
async def test_no_answer_in_http(script: Script, code: str, tmp_path: Path):
    async with world(tmp_path, script) as p:
        response = await p.http.post("/v1/chat/completions", json=ask())

    assert (response.status_code, response.json()["error"]["code"]) == (502, code)


async def test_hints_that_come_before_the_answer_do_not_matter(tmp_path: Path):
    async with world(tmp_path, many_continues) as p:
        response = await p.http.post("/v1/chat/completions", json=ask(False))

    assert (response.status_code, response.content) == (200, GOOD)


@pytest.mark.parametrize("status", ["204 No Content", "205 Reset Content"])
async def test_no_content_is_passed_on_as_none(status: str, tmp_path: Path):
    async with world(tmp_path, answering(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())) as p:
        response = await p.http.post("/v1/chat/completions", json=ask())

    assert (response.status_code, response.content) == (int(status[:3]), b"")


async def test_a_page_with_status_200_passes_as_it_is(tmp_path: Path):
    async with world(tmp_path, answering(http(b"<html>Hello</html>", "200 OK", "text/html"))) as p:
        response = await p.http.post("/v1/chat/completions", json=ask())

    assert (response.status_code, response.content) == (200, b"<html>Hello</html>")


@pytest.mark.parametrize("when", ["7", "Wed, 21 Oct 2026 07:28:00 GMT", "soon"])
async def test_when_to_come_back_is_passed_on_as_it_was_said(when: str, tmp_path: Path):
    refusal = http(b'{"error":{"message":"busy"}}', "429 Too Many Requests", "application/json", f"Retry-After: {when}")
    async with world(tmp_path, answering(refusal)) as p:
        response = await p.http.post("/v1/chat/completions", json=ask())

    assert (response.status_code, response.headers["retry-after"]) == (429, when)


@pytest.mark.parametrize("label", ["gzip", "br", "zstd", "gzip, gzip", "nonsense"])
async def test_an_answer_that_lies_about_its_encoding_passes_as_it_is(label: str, tmp_path: Path):
    lie = http(b"this is plain", "200 OK", "application/json", f"Content-Encoding: {label}")
    async with (
        world(tmp_path, answering(lie)) as p,
        p.http.stream("POST", "/v1/chat/completions", json=ask()) as response,
    ):
        came = b"".join([piece async for piece in response.aiter_raw()])

    assert (response.status_code, response.headers["content-encoding"], came) == (200, label, b"this is plain")


async def test_a_stream_of_bytes_that_are_no_text_passes_as_it_is(tmp_path: Path):
    event = b'data: {"choices":[{"index":0,"delta":{"content":"\xff\xfe\xed\xa0\x80"}}]}\n\n'

    async def script(heard: Heard, line: Line) -> None:
        await line.stream(event, DONE)

    async with world(tmp_path, script) as p, p.http.stream("POST", "/v1/chat/completions", json=ask()) as response:
        came = b"".join([piece async for piece in response.aiter_raw()])

    assert came == event + DONE


# Once the status is told


@pytest.mark.parametrize("script", BREAKS.values(), ids=BREAKS.keys())
async def test_a_stream_that_breaks_off_is_dropped_and_not_done(script: Script, tmp_path: Path):
    async with world(tmp_path, script, idle_timeout_s=2) as p:
        came = await until_dropped(p, ask())

    assert came.startswith(DELTA)
    rest = came.removeprefix(DELTA)
    assert rest == b"" or len(rest) >= 65_536, "what is left of an event is not sent"


@pytest.mark.parametrize(("kind", "path"), [("anthropic", "/v1/messages"), ("openai", "/v1/responses")])
async def test_an_api_with_an_event_for_errors_has_it_before_the_end(kind: str, path: str, tmp_path: Path):
    async with world(tmp_path, broken_off(), kind) as p:
        came = await until_dropped(p, ask(), path)

    last = came.removeprefix(DELTA)
    assert last.startswith(b"event: error\ndata: ")
    error = json.loads(last.removeprefix(b"event: error\ndata: "))
    assert (error["type"], error["error"]["code"]) == ("error", "upstream_disconnected")


async def test_a_stream_that_ends_with_its_connection_and_said_that_it_was_done_is_whole(tmp_path: Path):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    async with world(tmp_path, broken_off(DONE, head=head)) as p:
        response = await p.http.post("/v1/chat/completions", json=ask())

    assert response.content == DELTA + DONE


async def test_headers_and_no_token_end_in_an_error(tmp_path: Path):
    async with world(tmp_path, headers_then_silence, first_token_timeout_s=3) as p:
        began = time.monotonic()
        came = await until_dropped(p, ask())
        took = time.monotonic() - began

    assert came == b""
    assert 0.9 < took < 30


async def test_silence_in_the_middle_ends_in_an_error_but_comments_are_no_silence(tmp_path: Path):
    async def script(heard: Heard, line: Line) -> None:
        await line.send(STREAM_HEAD, chunk(DELTA))
        for _ in range(20):
            await asyncio.sleep(0.2)
            await line.send(chunk(b": still here\n"))
        await line.until_left()

    async with world(tmp_path, script, idle_timeout_s=3) as p:
        began = time.monotonic()
        came = await until_dropped(p, ask())
        took = time.monotonic() - began

    assert came.count(b": still here") == 20
    assert 6.5 < took < 60


async def test_an_answer_that_never_ends_is_ended(tmp_path: Path):
    async def script(heard: Heard, line: Line) -> None:
        await line.send(STREAM_HEAD)
        try:
            while True:
                await line.send(chunk(DELTA))
                await asyncio.sleep(0.05)
        except ConnectionError:
            line.finish()

    async with world(tmp_path, script, total_timeout_s=3) as p:
        began = time.monotonic()
        came = await until_dropped(p, ask())
        took = time.monotonic() - began

    assert came.startswith(DELTA)
    assert 0.9 < took < 30


@pytest.mark.parametrize("how", ["finish", "reset"])
async def test_an_answer_without_a_stream_that_breaks_off_is_an_error_with_a_status(how: str, tmp_path: Path):
    head = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n{"half":'
    async with world(tmp_path, broken_off(how=how, head=head)) as p:
        response = await p.http.post("/v1/chat/completions", json=ask(False))

    assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_disconnected")


async def test_a_long_answer_that_breaks_off_does_not_look_whole(tmp_path: Path):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 2_000_000
    async with world(tmp_path, broken_off(head=head)) as p:
        with pytest.raises(httpx.RemoteProtocolError):
            await p.http.post("/v1/chat/completions", json=ask(False))


async def test_a_byte_a_second_is_not_silence(tmp_path: Path):
    async def script(heard: Heard, line: Line) -> None:
        await line.send(STREAM_HEAD)
        for byte in DELTA[:20]:
            await line.send(chunk(bytes((byte,))))
            await asyncio.sleep(0.2)
        await line.send(chunk(DELTA[20:]), chunk(DONE), LAST_CHUNK)

    async with world(tmp_path, script, idle_timeout_s=3) as p:
        response = await p.http.post("/v1/chat/completions", json=ask())

    assert response.content == DELTA + DONE


# Asking again


async def test_a_kept_connection_that_died_is_replaced_without_anybody_noticing(tmp_path: Path):
    async def script(heard: Heard, line: Line) -> None:
        await line.send(http(GOOD))
        line.finish()  # though it promised to stay

    async with evil(script) as provider, proxy(tmp_path, provider.toml()) as p:
        for _ in range(200):
            response = await p.http.post("/v1/chat/completions", json=ask(False))
            assert response.status_code == 200

    assert len(provider.heard) == 200


@pytest.mark.parametrize(
    ("script", "attempts"),
    [(reset_before_headers, 1), (broken_off(how="reset"), 1), (headers_then_silence, 1), (silence, 1), (junk, 1)],
)
async def test_nothing_is_asked_again_once_a_byte_came(script: Script, attempts: int, tmp_path: Path):
    async with evil(script) as provider, proxy(tmp_path, provider.toml(first_token_timeout_s=0.5)) as p:
        with suppress(httpx.RemoteProtocolError):
            await p.http.post("/v1/chat/completions", json=ask())

    assert len(provider.heard) == attempts


async def test_only_a_connection_that_was_used_before_is_replaced_when_it_closes_without_an_answer(tmp_path: Path):
    """A provider that closes a new one may have read the request, and charge for it."""

    async def script(heard: Heard, line: Line) -> None:
        if heard.body.count(b"first"):
            await line.send(http(GOOD))
        else:
            line.finish()

    async with evil(script) as provider, proxy(tmp_path, provider.toml()) as p:
        fresh = await p.http.post("/v1/chat/completions", json=ask(False))
        at_first = len(provider.heard)
        await p.http.post("/v1/chat/completions", json={**ask(False), "user": "first"})
        kept = await p.http.post("/v1/chat/completions", json=ask(False))

    assert (at_first, len(provider.heard)) == (1, 1 + 1 + 2)
    for answer in (fresh, kept):
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
async def test_errors_leave_nothing_behind(tmp_path: Path):
    scripts = (
        answering(http(b"slow down", "429 Too Many", "text/plain")),
        answering(http(b"x" * 3_000_000, "500 Oops", "text/plain")),
        reset_before_headers,
        broken_off(how="reset"),
        junk,
    )
    rounds = 15
    waiting = [script for script in scripts for _ in range(rounds * 2)]

    async def script(heard: Heard, line: Line) -> None:
        await (waiting.pop() if waiting else answering(http(GOOD)))(heard, line)

    async with evil(script) as provider, proxy(tmp_path, provider.toml()) as p:
        await p.http.post("/v1/chat/completions", json=ask())
        before = open_files()
        while waiting:
            with suppress(httpx.RemoteProtocolError):
                await p.http.post("/v1/chat/completions", json=ask())
        response = await p.http.post("/v1/chat/completions", json=ask(False))
        assert response.status_code == 200
        assert open_files() <= before + 8
