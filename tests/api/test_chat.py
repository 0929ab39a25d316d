"""Chat requests through the proxy, over real sockets, to a provider that does what a test tells it to."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.core.chat.bodies import BODIES
from tests.support.evil import (
    LAST_CHUNK,
    STREAM_HEAD,
    Evil,
    Heard,
    Line,
    Script,
    answering,
    chunk,
    evil,
    http,
    streaming,
)

from kimi_proxy.core.json import JsonValue

KEY = "sk-a-key-that-nobody-has"
TOKEN = "a-token-that-is-long-enough"
COMPLETION = json.dumps(
    {"model": "m", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}
).encode()
DELTA = b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
DONE = b"data: [DONE]\n\n"
JSON = {"content-type": "application/json"}
ASK: JsonValue = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@asynccontextmanager
async def world(
    tmp_path: Path, script: Script, kind: str = "openai", env: Mapping[str, str] | None = None, **settings: JsonValue
) -> AsyncIterator[tuple[Proxy, Evil]]:
    """A proxy in front of a provider that does as `script` says."""
    async with evil(script) as provider, proxy(tmp_path, provider.toml(kind, **settings), **(env or {})) as p:
        yield p, provider


@asynccontextmanager
async def streamed(tmp_path: Path, script: Script) -> AsyncIterator[httpx.Response]:
    """An answer whose body has not been read yet."""
    async with (
        world(tmp_path, script) as (p, _),
        p.http.stream("POST", "/v1/chat/completions", json={**ASK, "stream": True}) as response,
    ):
        yield response


ROUTES = (
    ("openai", "/v1/chat/completions", "/v1/chat/completions"),
    ("openai", "/chat/completions", "/v1/chat/completions"),
    ("openai", "/v1/responses", "/v1/responses"),
    ("anthropic", "/v1/messages?beta=true", "/v1/messages?beta=true"),
    ("anthropic", "/v1/messages/count_tokens", "/v1/messages/count_tokens"),
    ("gemini", "/v1/chat/completions", "/v1/chat/completions"),
)


@pytest.mark.parametrize(("kind", "path", "target"), ROUTES)
async def test_each_route_leads_to_the_same_place_at_the_provider(kind: str, path: str, target: str, tmp_path: Path):
    async with evil(answering(http(COMPLETION))) as provider, proxy(tmp_path, provider.toml(kind)) as p:
        response = await p.http.post(path, json=ASK)

    assert (response.status_code, response.content) == (200, COMPLETION)
    assert [heard.target for heard in provider.heard] == [target]


async def test_a_body_that_nothing_has_to_change_leaves_byte_for_byte(tmp_path: Path):
    async with evil(answering(http(COMPLETION))) as provider, proxy(tmp_path, provider.toml()) as p:
        for body in BODIES:
            response = await p.http.post("/v1/chat/completions", content=body, headers=JSON)
            assert response.status_code == 200, body[:200]

    assert len(set(BODIES)) >= 200
    assert [sha256(heard.body).digest() for heard in provider.heard] == [sha256(body).digest() for body in BODIES]


@pytest.mark.parametrize("crowd", [b"[]", b'{"a":1}', b'"\\ud800"', b'{"role":"tool","content":"x"}'])
async def test_a_body_with_too_many_values_to_be_read_leaves_byte_for_byte(crowd: bytes, tmp_path: Path):
    body = b'{"messages":[' + b",".join([crowd] * 210_000) + b'],"tools":[{}],"stream":false,"model":"m"}'
    async with evil(answering(http(COMPLETION))) as provider, proxy(tmp_path, provider.toml()) as p:
        response = await p.http.post("/v1/chat/completions", content=body, headers=JSON)

    assert (response.status_code, response.content) == (200, COMPLETION)
    assert [heard.body == body for heard in provider.heard] == [True]


async def test_a_text_that_is_not_utf_8_in_an_old_message_keeps_no_request_from_its_way(tmp_path: Path):
    old = b'{"role":"user","content":"hi"},{"role":"user","content":"caf\xe9"},{"role":"assistant","content":"yes"}'
    raw = b'{"model":"m","messages":[%s,{"role":"user","content":"and?"}]}' % old
    async with world(tmp_path, answering(http(COMPLETION))) as (p, provider):
        answer = await p.http.post("/v1/chat/completions", content=raw, headers=JSON)

    assert (answer.status_code, provider.heard[-1].body) == (200, raw)


async def test_of_a_body_with_too_many_values_only_the_name_of_the_model_changes(tmp_path: Path):
    toml = '[models."x/kimi"]\nprovider = "openai-evil"\nmodel = "kimi-k2-0905"\n'
    body = b'{"input":[' + b"0," * 210_000 + b'1],"model":"x/kimi","metadata":{"session_id":"s"}}'
    async with evil(answering(http(COMPLETION))) as provider, proxy(tmp_path, toml + provider.toml()) as p:
        response = await p.http.post("/v1/chat/completions", content=body, headers=JSON)

    assert response.status_code == 200
    assert [heard.body == body.replace(b"x/kimi", b"kimi-k2-0905") for heard in provider.heard] == [True]


async def test_only_the_name_of_the_model_changes_when_it_has_another_one_there(tmp_path: Path):
    toml = '[models."x/kimi"]\nprovider = "openai-evil"\nmodel = "kimi-k2-0905"\n'
    body = b'{ "top_p":1e400,"model" : "x\\/kimi", "messages":[{"role":"user","content":"caf\\u00e9"}],"model2":-0 }\n'
    async with evil(answering(http(COMPLETION))) as provider, proxy(tmp_path, provider.toml() + toml) as p:
        await p.http.post("/v1/chat/completions", content=body, headers=JSON)

    assert provider.heard[0].body == body.replace(b'"x\\/kimi"', b'"kimi-k2-0905"')


async def test_a_stream_arrives_as_it_was_sent_and_may_not_be_buffered(tmp_path: Path):
    async with evil(streaming(DELTA, b": ping\n\n", DONE)) as provider, proxy(tmp_path, provider.toml()) as p:
        response = await p.http.post("/v1/chat/completions", json={**ASK, "stream": True})

    assert response.content == DELTA + b": ping\n\n" + DONE
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert response.headers["x-accel-buffering"] == "no"


async def test_a_heartbeat_is_not_held_back(tmp_path: Path):
    waiting = asyncio.Event()

    async def script(heard: Heard, line: Line) -> None:
        await line.send(STREAM_HEAD, chunk(b": still thinking\n"))
        await waiting.wait()
        await line.send(chunk(DONE), LAST_CHUNK)

    async with streamed(tmp_path, script) as response:
        pieces = response.aiter_raw()
        assert await anext(pieces) == b": still thinking\n"
        waiting.set()
        assert b"".join([piece async for piece in pieces]) == DONE


async def test_a_first_token_of_many_is_there_before_the_last_is_sent(tmp_path: Path):
    waiting = asyncio.Event()

    async def script(heard: Heard, line: Line) -> None:
        await line.send(STREAM_HEAD, chunk(DELTA))
        await waiting.wait()
        await line.send(chunk(DONE), LAST_CHUNK)

    async with streamed(tmp_path, script) as response:
        pieces = response.aiter_raw()
        assert await anext(pieces) == DELTA
        waiting.set()
        assert b"".join([piece async for piece in pieces]) == DONE


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v1/chat/completions", {"error": {"message", "type", "param", "code"}}),
        ("/v1/responses", {"error": {"message", "type", "param", "code"}}),
        ("/v1/messages", {"error": {"message", "type", "code"}, "type": set()}),
    ],
)
async def test_without_any_configuration_the_error_says_how_to_configure(
    path: str, shape: dict[str, set[str]], tmp_path: Path
):
    async with proxy(tmp_path, "") as p:
        response = await p.http.post(path, json=ASK)
        models = await p.http.get("/v1/models")

    assert response.status_code == 400
    assert {key: set(value) if isinstance(value, dict) else set() for key, value in response.json().items()} == shape
    assert "[providers.NAME]" in response.json()["error"]["message"]
    assert models.json() == {"object": "list", "data": []}


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"12", b'{"model":5}', b'{"messages":[]}', b"[" * 50_000, b"\xff{}"),
        b'{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"the first text: caf\xe9"}]}',
    ],
)
async def test_what_is_no_request_is_refused_in_the_shape_of_the_api(body: bytes, tmp_path: Path):
    async with evil(answering(http(COMPLETION))) as provider, proxy(tmp_path, provider.toml("anthropic")) as p:
        response = await p.http.post("/v1/messages", content=body, headers=JSON)

    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert provider.heard == []


async def test_models_are_listed_for_clients_of_both_apis(tmp_path: Path):
    toml = '[models."a/one"]\nprovider = "openai-evil"\n[models.off]\nprovider = "kimi"\n'
    async with evil(answering(http(b""))) as provider, proxy(tmp_path, provider.toml() + toml) as p:
        openai = (await p.http.get("/models")).json()
        anthropic = (await p.http.get("/v1/models", headers={"anthropic-version": "2023-06-01"})).json()

    assert openai["data"] == [{"id": "a/one", "object": "model", "created": 0, "owned_by": "openai-evil"}]
    assert [model["id"] for model in anthropic["data"]] == ["a/one"]
    assert (anthropic["first_id"], anthropic["has_more"]) == ("a/one", False)


async def test_tokens_are_counted_here_for_models_that_no_anthropic_provider_has(tmp_path: Path):
    async with evil(answering(http(b""))) as provider, proxy(tmp_path, provider.toml()) as p:
        response = await p.http.post("/v1/messages/count_tokens", json=ASK)

    assert response.json() == {"input_tokens": 5}
    assert provider.heard == []


# Keys and headers


async def test_the_configured_key_takes_the_place_of_what_the_client_sent(tmp_path: Path):
    script, env = answering(http(COMPLETION)), {"EVIL_KEY": KEY}
    async with world(tmp_path, script, "openai", env, api_key="${EVIL_KEY}") as (p, provider):
        sent = {"authorization": "Bearer of-the-client", "x-api-key": "k", "api-key": "k", "x-goog-api-key": "k"}
        await p.http.post("/v1/chat/completions", json=ASK, headers=sent)

    assert provider.heard[0].header("authorization") == f"Bearer {KEY}"
    assert "of-the-client" not in str(provider.heard[0].headers)
    assert provider.heard[0].header("x-api-key") is None
    assert provider.heard[0].header("api-key") is None
    assert provider.heard[0].header("x-goog-api-key") is None


async def test_an_anthropic_key_goes_where_anthropic_looks_for_it(tmp_path: Path):
    script, env = answering(http(COMPLETION)), {"EVIL_KEY": KEY}
    async with world(tmp_path, script, "anthropic", env, api_key="${EVIL_KEY}") as (p, provider):
        await p.http.post("/v1/messages", json=ASK, headers={"authorization": "Bearer of-the-client"})

    assert provider.heard[0].header("x-api-key") == KEY
    assert provider.heard[0].header("authorization") is None
    assert provider.heard[0].header("anthropic-version") == "2023-06-01"


async def test_without_a_key_of_ours_the_client_s_own_passes_and_our_token_never_does(tmp_path: Path):
    script, env = answering(http(COMPLETION)), {"KIMI_PROXY_TOKEN": TOKEN}
    async with world(tmp_path, script, "openai", env) as (p, provider):
        post = "/v1/chat/completions"
        refused = await p.http.post(post, json=ASK, headers={"x-api-key": "wrong"})
        mixed = {"x-api-key": TOKEN, "authorization": "Bearer of-the-client"}
        assert (await p.http.post(post, json=ASK, headers=mixed)).status_code == 200
        assert (await p.http.post(post, json=ASK, headers={"authorization": f"Bearer {TOKEN}"})).status_code == 200

    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
    assert [heard.header("authorization") for heard in provider.heard] == ["Bearer of-the-client", None]
    assert [heard.header("x-api-key") for heard in provider.heard] == [None, None]


@pytest.mark.parametrize("name", ["x-api-key", "api-key", "x-goog-api-key"])
async def test_the_token_may_come_where_a_client_puts_its_key(name: str, tmp_path: Path):
    async with world(tmp_path, answering(http(COMPLETION)), "openai", {"KIMI_PROXY_TOKEN": TOKEN}) as (p, provider):
        response = await p.http.post("/v1/chat/completions", json=ASK, headers={name: TOKEN})

    assert response.status_code == 200
    assert TOKEN not in str(provider.heard[0].headers)


async def test_headers_of_one_connection_stay_on_it_and_the_others_pass(tmp_path: Path):
    answered = http(
        COMPLETION,
        "200 OK",
        "application/json",
        "Connection: close, X-Secret",
        "X-Secret: 1",
        "Keep-Alive: timeout=5",
        "Set-Cookie: a=b",
        "Access-Control-Allow-Origin: *",
        "Strict-Transport-Security: max-age=1",
        "X-Request-Id: r-1",
        "x-ratelimit-remaining-tokens: 12",
        "anthropic-ratelimit-requests-limit: 5",
        "openai-processing-ms: 7",
        "Retry-After: 3",
        "retry-after-ms: 3000",
    )
    async with evil(answering(answered)) as provider, proxy(tmp_path, provider.toml()) as p:
        sent = {
            "connection": "keep-alive, x-hop",
            "x-hop": "1",
            "te": "trailers",
            "cookie": "c=d",
            "x-forwarded-for": "10.0.0.1",
            "x-stainless-lang": "python",
            "openai-beta": "assistants=v2",
            "user-agent": "me/1",
            "x-session-id": "s",
        }
        response = await p.http.post("/v1/chat/completions", json=ASK, headers=sent)

    heard = dict(provider.heard[0].headers)
    for hidden in ("x-hop", "te", "cookie", "x-forwarded-for", "x-session-id"):
        assert hidden not in heard
    assert (heard["x-stainless-lang"], heard["openai-beta"], heard["user-agent"]) == ("python", "assistants=v2", "me/1")
    assert heard["host"] == f"127.0.0.1:{provider.port}"
    assert heard["accept-encoding"] == "identity"
    for hidden in ("x-secret", "keep-alive", "set-cookie", "access-control-allow-origin", "strict-transport-security"):
        assert hidden not in response.headers
    for passed in ("x-request-id", "x-ratelimit-remaining-tokens", "anthropic-ratelimit-requests-limit"):
        assert passed in response.headers
    assert (response.headers["retry-after"], response.headers["retry-after-ms"]) == ("3", "3000")
    assert response.headers["openai-processing-ms"] == "7"


async def test_no_field_of_a_request_chooses_the_address(tmp_path: Path):
    hooks = {"api_base": "http://127.0.0.1:1", "base_url": "http://127.0.0.1:1", "extra_headers": {"host": "evil"}}
    async with evil(answering(http(COMPLETION))) as provider, proxy(tmp_path, provider.toml()) as p:
        headers = {"x-base-url": "http://127.0.0.1:1", "x-forwarded-host": "evil", "x-upstream": "http://127.0.0.1:1"}
        response = await p.http.post("/v1/chat/completions", json={**ASK, **hooks}, headers=headers)

    assert response.status_code == 200
    assert len(provider.heard) == 1


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
async def test_no_redirect_is_followed_or_passed_on(status: str, tmp_path: Path):
    async with evil(answering(http(COMPLETION))) as elsewhere:
        away = http(b"", status, "text/plain", f"Location: {elsewhere.url}/chat/completions")
        async with world(tmp_path, answering(away), "openai", {"EVIL_KEY": KEY}, api_key="${EVIL_KEY}") as (p, _):
            response = await p.http.post("/v1/chat/completions", json=ASK)

    assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_unreadable")
    assert "location" not in response.headers
    assert elsewhere.heard == []


async def test_proxy_variables_are_not_heeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with evil(answering(http(COMPLETION))) as provider, proxy(tmp_path, provider.toml()) as p:
        assert (await p.http.post("/v1/chat/completions", json=ASK)).status_code == 200


async def test_proxy_variables_are_heeded_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with evil(answering(http(COMPLETION))) as middleman:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{middleman.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        toml = '[providers.far]\nbase_url = "http://far.test/v1"\nproxy = "environment"\n'
        async with proxy(tmp_path, toml) as p:
            assert (await p.http.post("/v1/chat/completions", json=ASK)).status_code == 200

    assert middleman.heard[0].target == "http://far.test/v1/chat/completions"


# Errors of the provider


async def test_a_provider_s_error_passes_with_its_status_and_body(tmp_path: Path):
    bodies = (
        (b'{"error":{"message":"no","type":"x"}}', "application/json"),
        (b"<html>Bad gateway</html>", "text/html"),
        (b"", "text/plain"),
    )
    errors = [(status, *bodies[status % len(bodies)]) for status in range(400, 600)]
    waiting = list(errors)

    async def script(heard: Heard, line: Line) -> None:
        status, body, kind = waiting.pop(0)
        await line.send(http(body, f"{status} Whatever", kind, "Retry-After: 7", "request-id: req_1"))

    async with world(tmp_path, script) as (p, _):
        for status, body, kind in errors:
            response = await p.http.post("/v1/chat/completions", json=ASK)
            assert (response.status_code, response.content) == (status, body)
            assert response.headers["content-type"] == kind
            assert (response.headers["retry-after"], response.headers["request-id"]) == ("7", "req_1")


async def test_an_enormous_error_passes_without_being_held(tmp_path: Path):
    size = 114 * 1024**2
    piece = b"x" * 65_536

    async def script(heard: Heard, line: Line) -> None:
        await line.send(b"HTTP/1.1 500 Oops\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // len(piece)):
            await line.send(piece)

    async with streamed(tmp_path, script) as response:
        assert response.status_code == 500
        assert sum([len(some) async for some in response.aiter_raw()]) == size


# Encodings


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "zstd", "gzip-lie"])
async def test_an_encoded_answer_passes_as_it_is_with_its_label(encoding: str, tmp_path: Path):
    coded = gzip.compress(COMPLETION) if encoding == "gzip" else b"\x8b\x01\x80whatever it may be\x03"
    label = encoding.removesuffix("-lie")
    answer = http(coded, "200 OK", "application/json", f"Content-Encoding: {label}")
    async with streamed(tmp_path, answering(answer)) as response:
        raw = b"".join([piece async for piece in response.aiter_raw()])

    assert (raw, response.headers["content-encoding"]) == (coded, label)
    assert int(response.headers["content-length"]) == len(coded)


async def test_an_encoded_stream_passes_as_it_is(tmp_path: Path):
    coded = gzip.compress(DELTA + DONE)
    head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    pieces = [chunk(coded[at : at + 7]) for at in range(0, len(coded), 7)]
    async with evil(answering(head, *pieces, LAST_CHUNK)) as provider, proxy(tmp_path, provider.toml()) as p:
        response = await p.http.post("/v1/chat/completions", json={**ASK, "stream": True})

    assert response.headers["content-encoding"] == "gzip"
    assert response.content == DELTA + DONE


async def test_an_encoded_stream_is_not_held_back(tmp_path: Path):
    packed = gzip.compress(DELTA)
    waiting = asyncio.Event()

    async def script(heard: Heard, line: Line) -> None:
        await line.send(STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"), chunk(packed[:20]))
        await waiting.wait()
        await line.send(chunk(packed[20:]), LAST_CHUNK)

    async with streamed(tmp_path, script) as response:
        pieces = response.aiter_raw()
        assert await anext(pieces) == packed[:20]
        waiting.set()
        assert b"".join([piece async for piece in pieces]) == packed[20:]


async def test_one_line_of_32_megabytes_arrives(tmp_path: Path):
    size = 32 * 1024**2
    piece = b"x" * 65_536

    async def script(heard: Heard, line: Line) -> None:
        await line.send(STREAM_HEAD, chunk(b"data: "))
        for _ in range(size // len(piece)):
            await line.send(chunk(piece))
        await line.send(chunk(b"\n\n"), chunk(DONE), LAST_CHUNK)

    async with evil(script) as provider, proxy(tmp_path, provider.toml()) as p:
        response = await p.http.post("/v1/chat/completions", json={**ASK, "stream": True})

    assert sha256(response.content).digest() == sha256(b"data: " + b"x" * size + b"\n\n" + DONE).digest()


async def test_two_hundred_at_once_are_all_answered(tmp_path: Path):
    async with evil(streaming(DELTA, DONE)) as provider, proxy(tmp_path, provider.toml()) as p:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(
            base_url=str(p.http.base_url), limits=limits, trust_env=False, timeout=60
        ) as http_:
            asked = [http_.post("/v1/chat/completions", json={**ASK, "stream": True}) for _ in range(200)]
            answers = await asyncio.gather(*asked)

    assert {answer.content for answer in answers} == {DELTA + DONE}


async def test_what_passed_is_counted(tmp_path: Path):
    async with evil(answering(http(COMPLETION))) as provider, proxy(tmp_path, provider.toml()) as p:
        await p.http.post("/v1/chat/completions", json=ASK)
        counted = p.runtime.metrics.text().decode()

    assert 'kimi_proxy_chat_requests_total{outcome="ok",provider="openai-evil",status="200"} 1.0' in counted
    assert 'kimi_proxy_chat_tokens_total{kind="input",provider="openai-evil"} 3.0' in counted


async def test_more_requests_than_the_limit_of_a_provider_get_429(tmp_path: Path):
    async with world(tmp_path, answering(http(COMPLETION)), requests_per_minute=2) as (p, provider):
        answers = [await p.http.post("/v1/chat/completions", json=ASK) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].json()["error"]["type"] == "rate_limit_error"
    assert 1 <= int(answers[2].headers["retry-after"]) <= 30
    assert len(provider.heard) == 2
