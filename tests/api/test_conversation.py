"""The stdio door: real pipes, both eras, many requests at a time."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import FileIO

import pytest
from tests.support.api import world

from kimi_proxy.api.mcp import Catalog, stdio
from kimi_proxy.api.mcp.stdio import LoadTools, converse
from kimi_proxy.core import json
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.json import JsonObject, JsonValue

PATIENCE_S = 60
META: JsonObject = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass
class Client:
    """The parent's end of two pipes."""

    to_server: int
    from_server: asyncio.StreamReader
    reading: asyncio.ReadTransport
    serving: asyncio.Task[None]
    signals: world.Signals

    async def send(self, raw: bytes) -> None:
        await asyncio.to_thread(self._write, raw)

    def _write(self, raw: bytes) -> None:
        left = memoryview(raw)
        while left:
            left = left[os.write(self.to_server, left) :]

    async def say(self, message: JsonValue) -> None:
        await self.send(json.encode(message) + b"\n")

    async def hear(self) -> JsonValue:
        async with asyncio.timeout(PATIENCE_S):
            return json.decode(await self.from_server.readline())

    async def ask(self, message: JsonObject) -> JsonValue:
        await self.say({"jsonrpc": "2.0", **message})
        return await self.hear()

    def hang_up(self) -> None:
        if self.to_server >= 0:
            os.close(self.to_server)
            self.to_server = -1

    async def end(self) -> bytes:
        """Close our end, wait for the server to finish; what it still said."""
        self.hang_up()
        async with asyncio.timeout(PATIENCE_S):
            await self.serving
            return await self.from_server.read()


@asynccontextmanager
async def client(load: LoadTools | None = None) -> AsyncIterator[Client]:
    (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
    signals = world.Signals()
    stdin, stdout = FileIO(their_in), FileIO(their_out, "w")

    async def serve() -> None:
        with stdout:
            await converse(world.catalog(signals), stdin, stdout, load)

    reader = asyncio.StreamReader(limit=1 << 28)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(our_in, "rb")
    )
    talking = Client(our_out, reader, transport, asyncio.create_task(serve()), signals)
    try:
        yield talking
    finally:
        signals.go_on.set()
        talking.hang_up()
        await asyncio.wait({talking.serving}, timeout=PATIENCE_S)
        transport.close()
        stdin.close()
    talking.serving.result()


async def test_the_old_era_begins_with_a_handshake():
    async with client() as talk:
        hello = {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}}}
        match await talk.ask(hello):
            case {"id": 0, "result": {"protocolVersion": "2025-06-18"}}:
                pass
            case other:
                raise AssertionError(other)
        await talk.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert await talk.ask({"id": "p", "method": "ping"}) == {"jsonrpc": "2.0", "id": "p", "result": {}}


async def test_the_new_era_needs_no_handshake_and_no_headers():
    async with client() as talk:
        match await talk.ask({"id": 1, "method": "server/discover", "params": {"_meta": META}}):
            case {"result": {"supportedVersions": ["2026-07-28"], "resultType": "complete"}}:
                pass
            case other:
                raise AssertionError(other)
        match await talk.ask({"id": 2, "method": "tools/call", "params": {"name": "health", "_meta": META}}):
            case {"result": {"structuredContent": found, "isError": False}}:
                assert found == world.HEALTH
            case other:
                raise AssertionError(other)


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({}, -32602),
        ({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}, -32602),
        ({"_meta": {**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}}, -32022),
    ],
)
async def test_an_envelope_is_checked_here_too(params: JsonObject, code: int):
    async with client() as talk:
        match await talk.ask({"id": 1, "method": "server/discover", "params": params}):
            case {"id": 1, "error": {"code": found}}:
                assert found == code
            case other:
                raise AssertionError(other)


async def test_a_wrong_argument_is_told_to_the_model():
    async with client() as talk:
        match await talk.ask({"id": 1, "method": "tools/call", "params": {"name": "prune_text"}}):
            case {"result": {"isError": True, "content": [{"text": str(text)}]}}:
                assert text.startswith("invalid_params: text: ")
            case other:
                raise AssertionError(other)


@pytest.mark.parametrize("garbage", [b"{", b"hello", b"\xff\xfe\x00", b'{"a":NaN}', b"[" * 100_000, b"\xef\xbb\xbf{}"])
async def test_garbage_is_answered_and_the_conversation_goes_on(garbage: bytes):
    async with client() as talk:
        await talk.send(garbage + b"\n")
        match await talk.hear():
            case {"jsonrpc": "2.0", "id": None, "error": {"code": -32700}}:
                pass
            case other:
                raise AssertionError(other)
        assert await talk.ask({"id": 1, "method": "ping"}) == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_blank_lines_and_carriage_returns_are_nothing():
    async with client() as talk:
        await talk.send(b'\n\r\n  \n{"jsonrpc":"2.0","id":1,"method":"ping"}\r\n')
        assert await talk.hear() == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_a_batch_and_a_response_are_understood():
    async with client() as talk:
        await talk.say({"jsonrpc": "2.0", "id": 9, "result": {}})
        await talk.say([{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "method": "x"}])
        assert await talk.hear() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


async def test_a_slow_call_does_not_hold_up_others():
    async with client() as talk:
        await talk.say({"jsonrpc": "2.0", "id": "slow", "method": "tools/call", "params": {"name": "slow"}})
        for i in range(20):
            assert await talk.ask({"id": i, "method": "ping"}) == {"jsonrpc": "2.0", "id": i, "result": {}}
        talk.signals.go_on.set()
        match await talk.hear():
            case {"id": "slow", "result": {"structuredContent": {"waited": True}}}:
                pass
            case other:
                raise AssertionError(other)


@pytest.mark.parametrize("request_id", [7, "7"])
async def test_a_cancelled_call_ends_without_an_answer(request_id: int | str):
    async with client() as talk:
        await talk.say({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": {"name": "slow"}})
        assert await asyncio.to_thread(talk.signals.begun.wait, PATIENCE_S)
        for other in (8, "8", 7 if request_id == "7" else "7", request_id):
            cancel: JsonObject = {"requestId": other, "reason": "changed my mind"}
            await talk.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})
        assert await asyncio.to_thread(talk.signals.cancelled.wait, PATIENCE_S)
        assert await talk.ask({"id": 1, "method": "ping"}) == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert await talk.end() == b""


async def test_the_end_of_input_ends_the_conversation():
    async with client() as talk:
        assert await talk.end() == b""


async def test_what_was_asked_before_the_end_is_still_answered():
    async with client() as talk:
        await talk.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow"}})
        await talk.send(b'{"jsonrpc":"2.0","id":2,"method":"ping"}')
        talk.hang_up()
        assert await talk.hear() == {"jsonrpc": "2.0", "id": 2, "result": {}}
        talk.signals.go_on.set()
        assert b'"waited":true' in await talk.end()


async def test_a_client_that_no_longer_reads_ends_nothing_but_itself():
    async with client() as talk:
        await talk.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow"}})
        assert await asyncio.to_thread(talk.signals.begun.wait, PATIENCE_S)
        talk.reading.close()
        talk.signals.go_on.set()
        talk.hang_up()
        async with asyncio.timeout(PATIENCE_S):
            await talk.serving


async def test_a_line_of_many_megabytes_passes_both_ways():
    async with client() as talk:
        text = "é\n" * 4_000_000
        match await talk.ask(
            {"id": 1, "method": "tools/call", "params": {"name": "prune_text", "arguments": {"text": text}}}
        ):
            case {"result": {"structuredContent": {"pruned_text": back}}}:
                assert back == text
            case other:
                raise AssertionError(str(other)[:200])


async def test_a_line_beyond_the_limit_is_refused_and_the_next_one_read():
    async with client() as talk:
        sending = asyncio.create_task(talk.send(b'"' + b"x" * (stdio.MAX_LINE_BYTES + 1) + b'"\n'))
        match await talk.hear():
            case {"id": None, "error": {"code": -32700, "message": str(message)}}:
                assert str(stdio.MAX_LINE_BYTES) in message
            case other:
                raise AssertionError(other)
        await sending
        assert await talk.ask({"id": 1, "method": "ping"}) == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_more_calls_than_fit_at_once_are_all_answered():
    async with client() as talk:
        many = stdio.MAX_CONCURRENT * 3
        lines = b"".join(
            json.encode({"jsonrpc": "2.0", "id": i, "method": "tools/call", "params": {"name": "slow"}}) + b"\n"
            for i in range(many)
        )
        sending = asyncio.create_task(talk.send(lines))
        assert await asyncio.to_thread(talk.signals.begun.wait, PATIENCE_S)
        talk.signals.go_on.set()
        answers = [await talk.hear() for _ in range(many)]
        await sending

        assert {answer["id"] for answer in answers if isinstance(answer, dict)} == set(range(many))


async def test_the_tools_are_loaded_when_the_first_answer_is_out():
    begun, go_on = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def load() -> AsyncIterator[tuple[Catalog, Caller]]:
        begun.set()
        await go_on.wait()
        yield world.catalog(world.Signals()), LOCAL

    async with client(load) as talk:
        assert not begun.is_set()
        hello = await talk.ask({"id": 1, "method": "initialize", "params": {}})
        async with asyncio.timeout(PATIENCE_S):
            await begun.wait()
        again = await talk.ask({"id": 2, "method": "ping"})
        go_on.set()
        listed = await talk.ask({"id": 3, "method": "tools/list"})

    assert hello["id"] == 1
    assert again["result"] == {}
    assert listed["result"]["tools"]


async def test_tools_that_cannot_be_loaded_end_the_conversation():
    @asynccontextmanager
    async def load() -> AsyncIterator[tuple[Catalog, Caller]]:
        raise OSError("no such disk")
        yield world.catalog(world.Signals()), LOCAL

    with pytest.raises(OSError, match="no such disk"):
        async with client(load) as talk:
            await talk.ask({"id": 1, "method": "ping"})
            await asyncio.wait({talk.serving}, timeout=PATIENCE_S)
