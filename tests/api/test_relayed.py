"""Paths of a provider that are no questions pass untouched; what does not pass says why."""

import json
from pathlib import Path

import pytest
import websockets
from tests.api.proxy_world import proxy
from tests.evil import Heard, Line, evil, http

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


async def test_a_websocket_is_refused_in_the_way_that_codex_understands(tmp_path: Path):
    async with evil(echo) as provider, proxy(tmp_path, provider.toml()) as p:
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(f"ws://127.0.0.1:{p.port}/v1/responses")

    assert refused.value.response.status_code == 426
    assert json.loads(refused.value.response.body)["error"]["code"] == "upgrade_required"
