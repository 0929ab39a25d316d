"""A client of our own servers: it reads what streams back, and says what was refused."""

from contextlib import aclosing

import pytest
from tests.support.upstream import scripted

from kimi_proxy.core.errors import UpstreamError, UpstreamUnreachable
from kimi_proxy.proxy.http import JsonClient


def reply(status: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)


async def test_it_sends_json_and_reads_json():
    async with (
        scripted(lambda heard: reply(b"200 OK", b'{"a": [1]}')) as server,
        aclosing(JsonClient(f"http://127.0.0.1:{server.port}")) as client,
    ):
        answer = await client.ask("POST", "/x", {"é": 1}, x_session_id="s-1")

    assert answer == {"a": [1]}
    (heard,) = server.heard
    assert (heard.message, heard.headers["x-session-id"]) == ({"é": 1}, "s-1")
    assert heard.headers["content-type"] == "application/json"


async def test_a_refusal_says_what_was_said():
    async with (
        scripted(lambda heard: reply(b"400 Bad Request", b"not now")) as server,
        aclosing(JsonClient(f"http://127.0.0.1:{server.port}")) as client,
    ):
        with pytest.raises(UpstreamError, match="POST /x failed with 400: not now"):
            await client.ask("POST", "/x", {})


async def test_nobody_there_is_told():
    async with aclosing(JsonClient("http://127.0.0.1:9")) as client:
        with pytest.raises(UpstreamUnreachable):
            await client.raw("GET", "/")
