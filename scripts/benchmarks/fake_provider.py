"""A provider that answers at once, as cheaply as can be: `python fake_provider.py` prints its port and serves.

Requests whose body holds `"stream":true` get `"n":<chunks>` chunks, each in a packet of its own, or with
`"fast":true` as fast as they are read. The usage of any other
answer says how many bytes the request had: a proxy may have shortened it.
"""

import asyncio
import re

import uvloop

BODY = (
    b'{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"'
    + b"hello " * 20
    + b'"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%9d,"completion_tokens":5,"total_tokens":15}}'
)
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BODY % 0)
DELTA = (
    b'data: {"id":"c","object":"chat.completion.chunk","model":"m",'
    b'"choices":[{"index":0,"delta":{"content":"hello world"},"finish_reason":null}]}\n\n'
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n%b\r\n" % (len(DELTA), DELTA)
LAST = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"

_LENGTH = re.compile(rb"content-length: *(\d+)", re.I)
_CHUNKS = re.compile(rb'"n":(\d+)')


class Provider(asyncio.Protocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.received = bytearray()
        self.missing = -1
        self.streaming: asyncio.Task[None] | None = None
        self.may_write = asyncio.Event()
        self.may_write.set()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.missing -= len(data)
        if self.missing < 0 and b"\r\n\r\n" in self.received:
            head, _, body = bytes(self.received).partition(b"\r\n\r\n")
            found = _LENGTH.search(head)
            self.missing = (int(found[1]) if found else 0) - len(body)
        if self.missing == 0:
            self.answer(bytes(self.received))
            self.received, self.missing = bytearray(), -1

    def answer(self, request: bytes) -> None:
        found = _CHUNKS.search(request[-200:])
        if b'"stream":true' in request and found:
            is_fast = b'"fast":true' in request[-200:]
            self.streaming = asyncio.ensure_future((self.stream_fast if is_fast else self.stream)(int(found[1])))
        else:
            self.transport.write(WHOLE + BODY % (len(request) - request.index(b"\r\n\r\n") - 4))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.streaming:
            self.streaming.cancel()

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()

    async def stream_fast(self, chunks: int) -> None:
        self.transport.write(HEAD)
        for _ in range(chunks // 100):
            await self.may_write.wait()
            if self.transport.is_closing():
                return
            self.transport.write(CHUNK * 100)
            await asyncio.sleep(0)
        self.transport.write(LAST)

    async def stream(self, chunks: int) -> None:
        self.transport.write(HEAD)
        for _ in range(chunks):
            if self.transport.is_closing():
                return
            self.transport.write(CHUNK)
            await asyncio.sleep(0.001)
        self.transport.write(LAST)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Provider, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
