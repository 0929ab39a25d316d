"""DeepInfra's client: whatever the server does, scores or a reason come within the budget."""

import asyncio
import gzip
import json
import logging
import struct
import time
from socket import SO_LINGER, SOL_SOCKET

import pytest
from pydantic import SecretStr
from tests.support.proxy.reranker import stall
from tests.support.swe_pruner_server import serving
from tests.support.upstream import Heard, Script, http, scripted

from kimi_proxy.core.errors import RerankFailed
from kimi_proxy.proxy.pruners import MAX_SCORES_BYTES, Reranked, Reranker, read_scores

KEY = SecretStr("sk_canary_4711")
DOCUMENTS = ["first", "second", "third"]
WANTED = [0.1, 0.9, 0.5]
INDEXED = [{"index": 2, "score": 0.5}, {"index": 0, "score": 0.1}, {"index": 1, "score": 0.9}]
SHAPES: list[object] = [{"scores": WANTED}, WANTED, INDEXED]


async def ask(endpoint: str, within_s: float = 20.0, key: SecretStr | None = KEY) -> Reranked:
    reranker = Reranker(endpoint, key)
    try:
        return await reranker("what is second?", DOCUMENTS, within_s)
    finally:
        await reranker.close()


async def failure(endpoint: str, within_s: float = 20.0, key: SecretStr | None = KEY) -> tuple[str, int | None]:
    with pytest.raises(RerankFailed) as failed:
        await ask(endpoint, within_s, key)
    assert KEY.get_secret_value() not in str(failed.value)
    return failed.value.warning, failed.value.status


async def test_the_question_is_posted_with_the_key_and_nothing_else() -> None:
    async with scripted(lambda heard: http(json.dumps(WANTED).encode())) as server:
        found = await ask(server.url)
    assert (found.scores, found.status) == (WANTED, 200)
    assert found.latency_ms >= 0
    (heard,) = server.heard
    assert heard.method == "POST"
    assert json.loads(heard.body) == {"queries": ["what is second?"], "documents": DOCUMENTS}
    assert heard.headers["authorization"] == "Bearer sk_canary_4711"
    assert heard.headers["content-type"] == "application/json"


@pytest.mark.parametrize("nest", [None, "result", "results", "output", "data"])
@pytest.mark.parametrize("shape", SHAPES, ids=["scores", "numbers", "indexed"])
async def test_every_known_shape_is_understood(shape: object, nest: str | None) -> None:
    body = json.dumps(shape if nest is None else {"request_id": "r", nest: shape}).encode()
    async with scripted(lambda heard: http(body)) as server:
        assert (await ask(server.url)).scores == WANTED


def test_whole_numbers_are_scores_too() -> None:
    assert read_scores(b"[1, 0, -2]", 3, 200) == [1.0, 0.0, -2.0]


UNREADABLE = {
    "not JSON": b"<html>busy</html>",
    "empty": b"",
    "cut": b'{"scores": [0.1, 0.',
    "not UTF-8": b'{"scores": "\xff"}',
    "too few": b"[0.1, 0.2]",
    "too many": b"[0.1, 0.2, 0.3, 0.4]",
    "NaN": b"[0.1, NaN, 0.3]",
    "infinite": b"[0.1, 1e999, 0.3]",
    "a huge number": b"[0.1, 1" + b"0" * 400 + b", 0.3]",
    "truth": b"[true, false, true]",
    "words": b'["0.1", "0.2", "0.3"]',
    "nulls": b"[null, null, null]",
    "an index twice": json.dumps([INDEXED[0], INDEXED[0], INDEXED[1]]).encode(),
    "an index beyond": json.dumps([*INDEXED[:2], {"index": 3, "score": 0.1}]).encode(),
    "a missing index": json.dumps([*INDEXED[:2], {"score": 0.1}]).encode(),
    "nested twice": json.dumps({"data": {"result": WANTED}}).encode(),
    "another shape": b'{"error": "no such model"}',
    "deep": b"[" * 10_000,
    "a scalar": b"7",
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_an_answer_without_a_score_for_each_line_is_a_parse_error(body: bytes) -> None:
    async with scripted(lambda heard: http(body)) as server:
        assert await failure(server.url) == ("deepinfra_parse_error", 200)


async def test_an_answer_of_a_gigabyte_is_left_unread() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n["
    sent = 0

    def pour(heard: Heard) -> list[bytes]:
        nonlocal sent
        sent = 8 * MAX_SCORES_BYTES
        return [head, *([b"0.5," * (MAX_SCORES_BYTES // 4)] * 8)]

    began = time.monotonic()
    async with scripted(pour) as server:
        assert await failure(server.url) == ("deepinfra_parse_error", 200)
    assert sent and time.monotonic() - began < 60


async def test_a_compressed_answer_is_not_unfolded() -> None:
    bomb = gzip.compress(b"[" + b"0.5," * 10_000_000 + b"0.5]")
    reply = http(bomb, "200 OK", "application/json", "Content-Encoding: gzip")
    async with scripted(lambda heard: reply) as server:
        assert await failure(server.url) == ("deepinfra_parse_error", 200)


@pytest.mark.parametrize(
    "status",
    ["201 Created", "204 No Content", "401 Unauthorized", "404 Not Found", "429 Too Many", "500 Oops", "503 No"],
)
async def test_any_other_status_is_an_http_error_with_its_number(status: str) -> None:
    body = b"" if status.startswith("204") else json.dumps(WANTED).encode()
    async with scripted(lambda heard: http(body, status)) as server:
        assert await failure(server.url) == ("deepinfra_http_error", int(status[:3]))


async def test_a_redirect_is_not_followed() -> None:
    async with scripted(lambda heard: http(json.dumps(WANTED).encode())) as elsewhere:
        reply = http(b"", "307 Temporary Redirect", "text/plain", f"Location: {elsewhere.url}")
        async with scripted(lambda heard: reply) as server:
            assert await failure(server.url) == ("deepinfra_http_error", 307)
    assert elsewhere.heard == []


STALLS: dict[str, Script] = {
    "before the headers": stall,
    "within the headers": lambda heard: b"HTTP/1.1 200 OK\r\nContent-Le",
    "after the headers": lambda heard: b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
    "within the body": lambda heard: b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[0.1,",
    "between chunks": lambda heard: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[0\r\n",
}


@pytest.mark.parametrize("script", STALLS.values(), ids=STALLS.keys())
async def test_a_server_that_stalls_is_left_in_time(script: Script) -> None:
    async with scripted(script) as server:
        began = time.monotonic()
        assert await failure(server.url, within_s=0.3) == ("deepinfra_http_error", None)
        assert 0.25 < time.monotonic() - began < 30


async def test_time_that_is_already_over_is_not_spent() -> None:
    async with scripted(stall) as server:
        assert await failure(server.url, within_s=-1) == ("deepinfra_http_error", None)


GARBAGE: dict[str, Script] = {
    "hangs up": lambda heard: b"",
    "not HTTP": lambda heard: b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "bad chunk": lambda heard: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nxx\r\n0\r\n\r\n",
    "endless header": lambda heard: b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000 + b"\r\n\r\n",
    "two lengths": lambda heard: b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 9\r\n\r\n7",
}


@pytest.mark.parametrize("script", GARBAGE.values(), ids=GARBAGE.keys())
async def test_a_server_that_does_not_speak_http_is_an_http_error(script: Script) -> None:
    async with scripted(script) as server:
        assert await failure(server.url, within_s=60) == ("deepinfra_http_error", None)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[0.1,"])
async def test_a_connection_that_is_reset_is_an_http_error(said: bytes) -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()
        socket = writer.get_extra_info("socket")
        socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))

    async with serving(reset) as address:
        assert await failure(address) == ("deepinfra_http_error", None)


async def test_a_connection_that_is_refused_is_an_http_error() -> None:
    async with scripted(stall) as server:
        pass
    assert await failure(server.url) == ("deepinfra_http_error", None)


async def test_a_failure_does_not_spoil_the_next_question() -> None:
    answers = [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[", http(b"[]"), http(json.dumps(WANTED).encode())]
    async with scripted(lambda heard: answers.pop(0)) as server:
        reranker = Reranker(server.url, KEY)
        for _ in range(3):
            with pytest.raises(RerankFailed):
                await reranker("q", DOCUMENTS, 0.3)
        assert (await reranker("q", DOCUMENTS, 20)).scores == WANTED
        await reranker.close()


async def test_without_a_key_nothing_is_sent() -> None:
    async with scripted(stall) as server:
        assert await failure(server.url, key=None) == ("deepinfra_config_error", None)
    assert server.heard == []


@pytest.mark.parametrize(
    "endpoint",
    ["", "not an address", "ftp://127.0.0.1/x", "http://", "file:///etc/passwd"],
)
async def test_an_endpoint_that_is_no_address_is_a_config_error(endpoint: str) -> None:
    assert await failure(endpoint) == ("deepinfra_config_error", None)


@pytest.mark.parametrize("key", ["with\nnewline", "clé", "\ud800"])
async def test_a_key_that_cannot_be_a_header_sends_nothing(key: str) -> None:
    async with scripted(stall) as server:
        warning, _ = await failure(server.url, within_s=60, key=SecretStr(key))
    assert warning in ("deepinfra_config_error", "deepinfra_http_error")
    assert server.heard == []


async def test_proxy_variables_are_not_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted(lambda heard: http(b"[]")) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        async with scripted(lambda heard: http(json.dumps(WANTED).encode())) as server:
            assert (await ask(server.url)).scores == WANTED
    assert proxy.heard == []


async def test_long_texts_are_judged_by_their_beginning_and_lone_surrogates_are_replaced() -> None:
    async with scripted(lambda heard: http(b"[0.5]")) as server:
        reranker = Reranker(server.url, KEY)
        await reranker("g" * 10_000 + "\ud800", ["\ud800é😀" + "x" * 10_000], 20)
        await reranker.close()
    sent = json.loads(server.heard[0].body)
    assert sent["queries"] == ["g" * 4_000]
    assert sent["documents"] == ["?é😀" + "x" * 1_997]


async def test_neither_the_key_nor_the_lines_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with scripted(lambda heard: http(json.dumps(WANTED).encode())) as server:
        await ask(server.url)
        await failure("http://127.0.0.1:9/", within_s=60)
    told = " ".join(str(vars(record)) for record in caplog.records)
    assert "sk_canary" not in told
    assert "second" not in told
