"""Gemini's API in Code Assist's form, which Gemini CLI speaks with a login of Google."""

import json
from pathlib import Path

import pytest
from tests.support.api.proxy_world import proxy
from tests.support.evil import STREAM_HEAD, Heard, Line, answering, chunk, evil, http, streaming
from tests.support.model import Says, events

from kimi_proxy.core.chat import Wire

LOGIN = {"Authorization": "Bearer ya29.of-the-user"}
ASKED = (
    b'{"model":"gemini-2.5-pro", "project":"p","user_prompt_id":"u1","request":'
    b'{"contents":[{"role":"user","parts":[{"text":"caf\\u00e9"}]}],"session_id":"s"}}'
)
JSON = {**LOGIN, "content-type": "application/json"}
ANSWER = b'{"response": {"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP"}],' + (
    b'"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":2}},"traceId":"t1"}'
)
EVENT = b"data: %b\r\n\r\n" % ANSWER


def toml(provider: str, kind: str = "code-assist") -> str:
    return f'[providers.google]\ntype = "{kind}"\nbase_url = "{provider.removesuffix("/v1")}"\n'


async def test_a_request_that_nothing_changed_passes_byte_for_byte_and_so_does_its_answer(tmp_path: Path):
    async with evil(answering(http(ANSWER))) as provider, proxy(tmp_path, toml(provider.url)) as p:
        answer = await p.http.post("/v1internal:generateContent", content=ASKED, headers=JSON)
        sessions = (await p.http.get("/api/sessions")).json()["sessions"]

    (heard,) = provider.heard
    assert (heard.target, heard.body) == ("/v1internal:generateContent", ASKED)
    assert heard.header("authorization") == LOGIN["Authorization"]
    assert (answer.status_code, answer.content) == (200, ANSWER)
    assert len(sessions) == 1


async def test_a_stream_passes_event_for_event(tmp_path: Path):
    async with evil(streaming(EVENT[:20], EVENT[20:] + EVENT)) as provider, proxy(tmp_path, toml(provider.url)) as p:
        path = "/v1internal:streamGenerateContent"
        answer = await p.http.post(path, params={"alt": "sse"}, content=ASKED, headers=JSON)

    (heard,) = provider.heard
    assert (heard.target, heard.body) == (f"{path}?alt=sse", ASKED)
    assert answer.content == EVENT + EVENT


async def test_tokens_are_counted_by_the_provider(tmp_path: Path):
    counted = b'{"request":{"model":"models/gemini-2.5-pro","contents":[]}}'
    async with evil(answering(http(b'{"totalTokens":7}'))) as provider, proxy(tmp_path, toml(provider.url)) as p:
        answer = await p.http.post("/v1internal:countTokens", content=counted, headers=JSON)

    (heard,) = provider.heard
    assert (heard.target, json.loads(heard.body)) == ("/v1internal:countTokens", json.loads(counted))
    assert answer.json() == {"totalTokens": 7}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1internal:loadCodeAssist"),
        ("POST", "/v1internal:onboardUser"),
        ("GET", "/v1internal:getCodeAssistGlobalUserSetting"),
    ],
)
async def test_what_concerns_the_user_is_passed_on_untouched(method: str, path: str, tmp_path: Path):
    body = b'{"metadata": {"pluginType":"GEMINI"}}' if method == "POST" else b""
    async with evil(answering(http(b'{"done":true}'))) as provider, proxy(tmp_path, toml(provider.url)) as p:
        answer = await p.http.request(method, path, content=body, headers=JSON if body else LOGIN)

    (heard,) = provider.heard
    assert (heard.method, heard.target, heard.body) == (method, path, body)
    assert heard.header("authorization") == LOGIN["Authorization"]
    assert answer.json() == {"done": True}


async def test_a_long_result_is_cut_in_its_envelope_in_the_same_bytes_again(tmp_path: Path):
    log = "\n".join(f"line {n} of a long log that nobody asked for" for n in range(4000))
    call = {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "shell", "args": {}}}]}
    result = {"functionResponse": {"id": "c1", "name": "shell", "response": {"output": log}}}
    contents = [{"role": "user", "parts": [{"text": "why?"}]}, call, {"role": "user", "parts": [result]}]
    tools = [{"functionDeclarations": [{"name": "shell"}]}]
    more = [{"role": "model", "parts": [{"text": "hi"}]}, {"role": "user", "parts": [{"text": "and?"}]}]
    settings = '[sanitizer]\nbudget_ms = 60000\npolicy = "deep"\n'
    async with evil(answering(http(ANSWER))) as provider, proxy(tmp_path, toml(provider.url) + settings) as p:
        for asked in (contents, [*contents, *more]):
            body = {"model": "gemini-2.5-pro", "project": "p", "request": {"contents": asked, "tools": tools}}
            answer = await p.http.post("/v1internal:generateContent", json=body, headers=LOGIN)

    first, second = (json.loads(heard.body) for heard in provider.heard)
    assert "prn_" in json.dumps(first["request"]["contents"][2])
    assert second["request"]["contents"][:3] == first["request"]["contents"]
    assert (first["project"], set(first)) == ("p", {"model", "project", "request"})
    assert answer.json()["traceId"] == "t1"


@pytest.mark.parametrize("cut", range(3))
async def test_a_stream_that_breaks_off_ends_with_an_error_and_drops_the_connection(cut: int, tmp_path: Path):
    async def model(heard: Heard, line: Line) -> None:
        await line.send(STREAM_HEAD, *[chunk(EVENT.replace(b'"finishReason":"STOP"', b'"x":1'))] * cut)
        line.reset()

    async with evil(model) as provider, proxy(tmp_path, toml(provider.url)) as p:
        pieces = b""
        with pytest.raises(Exception, match=r"peer closed|incomplete"):
            async with p.http.stream(
                "POST", "/v1internal:streamGenerateContent?alt=sse", content=ASKED, headers=JSON
            ) as answer:
                async for piece in answer.aiter_bytes():
                    pieces += piece

    assert pieces.count(b'"response"') == cut and b'"error"' in pieces.split(b"data: ")[-1]


LIMITED = http(b'{"error":{"code":429}}', "429 Too Many Requests")


# The login


async def test_without_a_file_the_login_goes_to_code_assist_alone(tmp_path: Path):
    async with evil(answering(http(ANSWER))) as google, evil(answering(http(ANSWER))) as other:
        known = f"code-assist={google.url.removesuffix('/v1')} gemini={other.url} openai={other.url}"
        async with proxy(tmp_path, "", KIMI_PROXY_UPSTREAMS=known.replace(" ", ",")) as p:
            answered = await p.http.post("/v1internal:generateContent", content=ASKED, headers=JSON)
            loaded = await p.http.post("/v1internal:loadCodeAssist", json={}, headers=LOGIN)
            another = {**JSON, "Authorization": "Bearer sk-proj-of-openai"}
            await p.http.post("/v1internal:generateContent", content=ASKED, headers=another)

    assert (answered.status_code, loaded.status_code) == (200, 200)
    assert [heard.header("authorization") for heard in google.heard] == [LOGIN["Authorization"]] * 2
    assert {heard.header("authorization") for heard in other.heard} <= {None}


async def test_a_model_of_another_provider_is_asked_without_the_login_and_answers_in_the_envelope(tmp_path: Path):
    plain = b"".join(events(Wire.GEMINI, Says("hi")))
    async with evil(streaming(plain)) as other:
        named = f'[models."gemini-2.5-pro"]\nprovider = "google"\n{toml(other.url, "gemini")}'
        async with proxy(tmp_path, named) as p:
            path = "/v1internal:streamGenerateContent?alt=sse"
            answer = await p.http.post(path, content=ASKED, headers=JSON)
            loaded = await p.http.post("/v1internal:loadCodeAssist", json={}, headers=LOGIN)

    (heard,) = other.heard
    assert heard.target == "/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
    assert heard.header("authorization") is None and set(json.loads(heard.body)) == {"contents", "session_id"}
    first = json.loads(answer.content.split(b"data: ")[1])
    assert first["response"]["candidates"][0]["content"]["parts"][0]["text"]
    assert loaded.status_code == 502, "it is not Code Assist, and has nothing there"


async def test_errors_have_google_s_shape(tmp_path: Path):
    async with (
        evil(answering(http(b'{"error":{"code":429}}', "429 Too Many Requests"))) as provider,
        proxy(tmp_path, toml(provider.url)) as p,
    ):
        path = "/v1internal:generateContent"
        limited = await p.http.post(path, content=ASKED, headers=JSON)
        refused = await p.http.post(path, content=b'{"model":"m"}', headers=JSON)

    assert (limited.status_code, limited.content) == (429, b'{"error":{"code":429}}')
    assert (refused.status_code, refused.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")


async def test_a_provider_that_is_not_code_assist_is_asked_nothing_else(tmp_path: Path):
    async with evil(answering(http(b"{}"))) as other, proxy(tmp_path, toml(other.url, "gemini")) as p:
        loaded = await p.http.post("/v1internal:loadCodeAssist", json={})

    assert (loaded.status_code, loaded.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert "is not of type code-assist" in loaded.json()["error"]["message"]
    assert other.heard == []
