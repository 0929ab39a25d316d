"""Paths of a provider that are no questions pass untouched; what does not pass says why."""

import json
from pathlib import Path

import pytest
import websockets
from tests.support.api.proxy_world import proxy
from tests.support.clients.plans import LOGIN
from tests.support.evil import Heard, Line, answering, evil, http, streaming

from kimi_proxy.core.chat import Wire

MODELS = '[models."kimi/k2"]\nprovider = "openai-evil"\nmodel = "kimi-k2-upstream"\nmax_context_size = 1000\n'


async def echo(heard: Heard, line: Line) -> None:
    await line.send(http(json.dumps({"target": heard.target, "body": heard.body.decode()}).encode()))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/responses/compact"),
        ("GET", "/v1/responses/resp_1?include=x"),
        ("GET", "/v1/responses/resp_1/input_items"),
        ("DELETE", "/v1/responses/resp_1"),
        ("GET", "/v1/models/gpt-x"),
    ],
)
async def test_it_passes_untouched_with_the_key_of_the_provider(method: str, path: str, tmp_path: Path):
    toml = 'api_key = "${KEY}"\n'
    body = b'{ "model": "m",  "input": "x" }' if method == "POST" else b""
    async with evil(echo) as provider, proxy(tmp_path, provider.toml() + toml, KEY="sk-ours") as p:
        headers = {"authorization": "Bearer sk-theirs", **({"content-type": "application/json"} if body else {})}
        response = await p.http.request(method, path, content=body, headers=headers)

    assert (response.status_code, response.json()) == (200, {"target": path, "body": body.decode()})
    assert provider.heard[0].header("authorization") == "Bearer sk-ours"


async def test_a_model_of_the_settings_is_named_as_its_provider_does(tmp_path: Path):
    async with evil(echo) as provider, proxy(tmp_path, provider.toml() + MODELS) as p:
        await p.http.post("/v1/embeddings", json={"model": "kimi/k2", "input": "x"})
        known = (await p.http.get("/v1/models/kimi/k2")).json()
        anthropic = (await p.http.get("/v1/models/kimi/k2", headers={"anthropic-version": "2023-06-01"})).json()

    assert [json.loads(heard.body)["model"] for heard in provider.heard] == ["kimi-k2-upstream"]
    assert known == {"id": "kimi/k2", "object": "model", "created": 0, "owned_by": "openai-evil"}
    assert (anthropic["type"], anthropic["id"]) == ("model", "kimi/k2")


async def test_an_anthropic_path_goes_below_the_root_of_its_provider(tmp_path: Path):
    async with evil(echo) as provider:
        toml = provider.toml("anthropic").replace('/v1"', '"')
        async with proxy(tmp_path, toml) as p:
            response = await p.http.get("/v1/messages/batches/b_1")

    assert response.json()["target"] == "/v1/messages/batches/b_1"


@pytest.mark.parametrize("path", ["/v1/responses/..%2f..%2fadmin", "/v1/responses/a%0d%0ab", "/v1/responses/%2e%2e/x"])
async def test_no_path_leads_out_of_the_api(path: str, tmp_path: Path):
    async with evil(echo) as provider, proxy(tmp_path, provider.toml()) as p:
        response = await p.http.get(path)

    assert response.status_code in (400, 404)
    assert provider.heard == []


async def test_what_is_not_relayed_says_so(tmp_path: Path):
    async with evil(echo) as provider, proxy(tmp_path, provider.toml()) as p:
        response = await p.http.post("/v1/fine_tuning/jobs", json={})

    assert response.status_code == 404
    assert "does not relay" in response.json()["error"]["message"]


async def test_responses_over_a_websocket_are_refused_in_the_way_that_codex_understands(tmp_path: Path):
    async with evil(echo) as provider, proxy(tmp_path, provider.toml()) as p:
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(f"ws://127.0.0.1:{p.port}/v1/responses")

    assert refused.value.response.status_code == 426
    assert json.loads(refused.value.response.body)["error"] == {
        "message": "the Responses API is not served over a WebSocket: send POST requests to this path",
        "type": "invalid_request_error",
        "param": None,
        "code": "upgrade_required",
    }
    assert provider.heard == []


FORM = (
    b'--b0\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n\x00\xff{"model"\r\n'
    b'--b0\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n--b0--\r\n'
)
MULTIPART = {"content-type": "multipart/form-data; boundary=b0"}


@pytest.mark.parametrize("path", ["/v1/files", "/v1/audio/transcriptions", "/v1/images/edits", "/v1/uploads/u_1/parts"])
async def test_a_form_with_a_file_passes_untouched(path: str, tmp_path: Path):
    async with evil(streaming(b"done")) as provider, proxy(tmp_path, provider.toml()) as p:
        response = await p.http.post(path, content=FORM, headers=MULTIPART)

    (heard,) = provider.heard
    assert (response.status_code, heard.target, heard.body) == (200, path, FORM)
    assert heard.header("content-type") == MULTIPART["content-type"]


async def test_a_form_goes_to_the_provider_of_its_model(tmp_path: Path):
    async with evil(streaming(b"one")) as first, evil(streaming(b"two")) as second:
        toml = first.toml() + second.toml().replace("openai-evil", "speech")
        toml += '[models.whisper-1]\nprovider = "speech"\nmax_context_size = 1000\n'
        async with proxy(tmp_path, toml) as p:
            await p.http.post("/v1/audio/transcriptions", content=FORM, headers=MULTIPART)

    assert (len(first.heard), len(second.heard)) == (0, 1)


async def test_files_of_anthropic_go_to_anthropic(tmp_path: Path):
    headers = MULTIPART | {"anthropic-version": "2023-06-01"}
    async with (
        evil(streaming(b"one")) as openai,
        evil(streaming(b"two")) as anthropic,
        proxy(tmp_path, openai.toml() + anthropic.toml("anthropic")) as p,
    ):
        await p.http.post("/v1/files", content=FORM, headers=headers)

    assert (len(openai.heard), [heard.target for heard in anthropic.heard]) == (0, ["/v1/files"])


@pytest.mark.parametrize(
    ("path", "headers"), [("/v1/chat/completions", {}), ("/v1/files", {"origin": "http://evil.example"})]
)
async def test_no_other_path_takes_a_form_and_no_page_may_send_one(path: str, headers: dict[str, str], tmp_path: Path):
    async with evil(echo) as provider, proxy(tmp_path, provider.toml()) as p:
        response = await p.http.post(path, content=FORM, headers=MULTIPART | headers)

    assert response.status_code in (403, 415)
    assert provider.heard == []


async def test_speech_over_a_websocket_is_refused_with_a_sentence(tmp_path: Path):
    async with evil(echo) as provider, proxy(tmp_path, provider.toml()) as p:
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(f"ws://127.0.0.1:{p.port}/v1/realtime?model=gpt-realtime")

    assert refused.value.response.status_code == 426
    assert "connect to the provider itself" in json.loads(refused.value.response.body)["error"]["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/model/us.anthropic.claude-sonnet-4-5-v1:0/converse-stream",
        "/inference-profiles",
    ],
)
async def test_what_is_not_served_of_other_clouds_is_refused_with_a_sentence(path: str, tmp_path: Path):
    """Claude Code takes a 404 for a model that an administrator has to enable."""
    async with evil(echo) as provider, proxy(tmp_path, provider.toml("anthropic")) as p:
        response = await p.http.post(path, json={})

    assert response.status_code == 400 and provider.heard == []
    assert response.json()["type"] == "error" and "call the cloud itself" in response.json()["error"]["message"]


async def catalog(heard: Heard, line: Line) -> None:
    """A provider that lists its models, and says whose list it is."""
    rows = [{"id": "one", "context_length": 5}, {"id": heard.header("host") or ""}]
    await line.send(http(json.dumps({"object": "list", "data": rows}).encode()))


async def test_without_models_in_the_settings_the_provider_s_own_are_listed(tmp_path: Path):
    async with evil(catalog, lists=True) as provider, proxy(tmp_path, provider.toml()) as p:
        listed = (await p.http.get("/v1/models")).json()
        anthropic = (await p.http.get("/v1/models", headers={"anthropic-version": "2023-06-01"})).json()

    host = f"127.0.0.1:{provider.port}"
    assert listed == {"object": "list", "data": [{"id": "one", "context_length": 5}, {"id": host}]}
    assert [(row["type"], row["id"]) for row in anthropic["data"]] == [("model", "one"), ("model", host)]


async def test_models_of_several_providers_have_names_that_lead_to_each(tmp_path: Path):
    async with evil(catalog, lists=True) as one, evil(catalog, lists=True) as two, evil(echo) as away:
        toml = one.toml() + two.toml().replace("openai-evil", "second") + away.toml().replace("openai-evil", "third")
        async with proxy(tmp_path, toml) as p:
            listed = [row["id"] for row in (await p.http.get("/v1/models")).json()["data"]]

    assert listed == ["one", f"127.0.0.1:{one.port}", "second/one", f"second/127.0.0.1:{two.port}"]


async def test_codex_with_the_login_of_a_plan_gets_its_catalogue(tmp_path: Path):
    answer = http(b'{"models":[{"slug":"gpt-6.1-sol"}]}', "200 OK", "application/json", 'ETag: W/"7"')
    async with evil(answering(answer), lists=True) as plan:
        known = f"chatgpt=http://127.0.0.1:{plan.port}/backend-api/codex"
        async with proxy(tmp_path, "", KIMI_PROXY_UPSTREAMS=known) as p:
            headers = {"authorization": f"Bearer {LOGIN}", "chatgpt-account-id": "acc_1"}
            response = await p.http.get("/v1/models?client_version=0.166.0", headers=headers)

    assert (response.json(), response.headers["etag"]) == ({"models": [{"slug": "gpt-6.1-sol"}]}, 'W/"7"')
    (heard,) = plan.heard
    assert heard.target == "/backend-api/codex/models?client_version=0.166.0"
    assert (heard.header("authorization"), heard.header("chatgpt-account-id")) == (f"Bearer {LOGIN}", "acc_1")


ANTHROPIC = {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        ("POST", "/v1internal:loadCodeAssist", {}, Wire.GEMINI),
        ("GET", "/v1internal/operations/one", {}, Wire.GEMINI),
        ("POST", "/upload/v1beta/files", {}, Wire.GEMINI),
        ("GET", "/v1beta/files", {}, Wire.GEMINI),
        ("POST", "/v1/files", {}, Wire.CHAT),
        ("POST", "/v1/files", ANTHROPIC, Wire.MESSAGES),
        ("POST", "/v1/embeddings", {}, Wire.CHAT),
        ("POST", "/v1/messages/batches", {}, Wire.MESSAGES),
        ("GET", "/v1/responses/resp_1", {}, Wire.RESPONSES),
        ("GET", "/v1/models/none", {}, Wire.CHAT),
    ],
)
async def test_an_error_has_the_shape_of_the_api_by_its_path(
    method: str, path: str, headers: dict[str, str], expected: Wire, tmp_path: Path
):
    """Nobody can answer, and that is our own error."""
    async with proxy(tmp_path, "") as p:
        sent = {**headers, "content-type": "application/json"}
        answer = await p.http.request(method, path, content=b"{}" if method == "POST" else b"", headers=sent)

    error = answer.json()
    code = error["error"].get("code") if expected is not Wire.GEMINI else error["error"]["details"][0]["reason"]
    assert answer.status_code in (400, 404)
    assert error == expected.format.error_body(answer.status_code, code, error["error"]["message"])
