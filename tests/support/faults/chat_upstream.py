"""What the tests of chat upstream share with others."""

import asyncio

from tests.support.evil import STREAM_HEAD, Heard, Line, Script, answering, chunk, http

DELTA = b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'

GOOD = b'{"choices":[]}'

HEALTHY = "a healthy one, please"


def ask(stream: bool = True, words: str = "hi") -> dict[str, object]:
    return {"model": "m", "stream": stream, "messages": [{"role": "user", "content": words}]}


def sick(script: Script) -> Script:
    """Fails as `script` does, except where health is asked for."""

    async def either(heard: Heard, line: Line) -> None:
        await (answering(http(GOOD)) if HEALTHY.encode() in heard.body else script)(heard, line)

    return either


async def silence(heard: Heard, line: Line) -> None:
    await line.until_left()


async def headers_then_silence(heard: Heard, line: Line) -> None:
    await line.send(STREAM_HEAD)
    await line.until_left()


async def junk(heard: Heard, line: Line) -> None:
    await line.send(b"\x00\x01\x02 this is no HTTP\r\n\r\n")
    line.finish()


def broken_off(*last: bytes, how: str = "finish", head: bytes = STREAM_HEAD) -> Script:
    async def script(heard: Heard, line: Line) -> None:
        await line.send(head, chunk(DELTA) if head is STREAM_HEAD else DELTA, *last)
        await asyncio.sleep(0.05)  # a reset would overtake what was sent
        line.finish() if how == "finish" else line.reset()

    return script


BREAKS: dict[str, Script] = {
    "reset": broken_off(how="reset"),
    "finish without the last chunk": broken_off(),
    "finish within a chunk": broken_off(b"ff\r\ndata: {"),
    "finish within an event": broken_off(chunk(b'data: {"choi')),
    "finish within a long event": broken_off(chunk(b"data: " + b"x" * 100_000)),
    "bad chunk size": broken_off(b"zz\r\ndata: {}\n\n\r\n"),
    "finish before the length is reached": broken_off(
        head=b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999\r\n\r\n"
    ),
    "finish where only the provider's word could tell": broken_off(
        head=b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    ),
}
