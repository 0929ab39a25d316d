"""Azure's paths, as its clients call them: the deployment in the path, Foundry's prefix for Anthropic's API."""

import json
from pathlib import Path

import pytest
from tests.clients import sdks
from tests.support.api.proxy_world import proxy
from tests.support.conversations import body, results
from tests.support.evil import Heard, Line, evil, http
from tests.support.model import Says
from tests.support.services.chat.recall import ITEMS, LOG, THEIRS, Model, recovering

from kimi_proxy.core.chat import Wire, parse

SETTINGS = "[sanitizer]\nbudget_ms = 60000\n"
HI = b'{ "messages":[{"role":"user","content":"caf\\u00e9"}],"model" :"gpt-x" }'


def model(wire: Wire) -> Model:
    first = Says("Hm.", (recovering(),), tokens=(100, 5), id="answer-1")
    return Model(wire, [first, Says(" There.", (THEIRS,), tokens=(120, 7), id="answer-2")])


async def echo(heard: Heard, line: Line) -> None:
    await line.send(http(json.dumps({"data": [], "target": heard.target}).encode()))


@pytest.mark.parametrize("is_stream", [True, False])
async def test_openai_s_client_for_azure_reads_what_the_model_says_with_a_recall_in_between(
    tmp_path: Path, is_stream: bool
):
    asked = json.loads(body(Wire.CHAT, ITEMS)) | {"model": "my-deployment"}
    async with (
        evil(model(Wire.CHAT)) as provider,
        proxy(tmp_path, provider.toml() + SETTINGS) as p,
        sdks.openai.AsyncAzureOpenAI(
            azure_endpoint=f"http://127.0.0.1:{p.port}", api_key="of-the-client", api_version="2024-10-21", timeout=60
        ) as sdk,
    ):
        if is_stream:
            async with sdk.chat.completions.stream(**asked) as events:
                answer = await events.get_final_completion()
        else:
            answer = await sdk.chat.completions.create(**asked)

    said = answer.choices[0].message
    assert (said.content, said.tool_calls[0].id) == ("Hm. There.", THEIRS.id)
    assert [heard.target for heard in provider.heard] == ["/v1/chat/completions"] * 2
    assert provider.heard[0].header("api-key") == "of-the-client"
    first, then = (parse(heard.body, Wire.CHAT) for heard in provider.heard)
    assert first.model == "my-deployment" and then.body.startswith(first.body[: first.messages[-1].end])
    assert results(then)["own_1"] in LOG.text


async def test_the_same_client_asks_by_responses_and_has_texts_embedded(tmp_path: Path):
    async with (
        evil(Model(Wire.RESPONSES, [Says("hello")])) as provider,
        proxy(tmp_path, provider.toml()) as p,
        sdks.openai.AsyncAzureOpenAI(
            azure_endpoint=f"http://127.0.0.1:{p.port}", api_key="x", api_version="2025-03-01-preview", timeout=60
        ) as sdk,
    ):
        answer = await sdk.responses.create(model="my-deployment", input="hi")
        assert answer.output_text == "hello"
        await p.http.post("/openai/deployments/e/embeddings?api-version=2024-10-21", json={"input": "x"})

    assert [heard.target for heard in provider.heard] == ["/v1/responses", "/v1/embeddings"]
    assert json.loads(provider.heard[1].body) == {"input": "x", "model": "e"}


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/openai/deployments/gpt-x/chat/completions?api-version=2024-10-21", "/v1/chat/completions"),
        ("/openai/v1/chat/completions", "/v1/chat/completions"),
        ("/openai/v1/chat/completions?api-version=preview", "/v1/chat/completions?api-version=preview"),
    ],
)
async def test_a_request_leaves_byte_for_byte(tmp_path: Path, path: str, target: str):
    async with evil(echo) as provider, proxy(tmp_path, provider.toml()) as p:
        await p.http.post(path, content=HI, headers={"content-type": "application/json"})

    assert [(heard.target, heard.body) for heard in provider.heard] == [(target, HI)]


async def test_the_deployment_of_the_path_decides_and_not_the_model_of_the_body(tmp_path: Path):
    async with evil(echo) as provider, proxy(tmp_path, provider.toml()) as p:
        await p.http.post("/openai/deployments/other/chat/completions", content=HI, headers=JSON)

    assert provider.heard[0].body == HI.replace(b"gpt-x", b"other")


JSON = {"content-type": "application/json"}


async def test_anthropic_s_client_for_foundry_asks_below_its_prefix(tmp_path: Path):
    asked = json.loads(body(Wire.MESSAGES, ITEMS))
    async with (
        evil(model(Wire.MESSAGES)) as provider,
        proxy(tmp_path, provider.toml("anthropic") + SETTINGS) as p,
        sdks.anthropic.AsyncAnthropicFoundry(
            base_url=f"http://127.0.0.1:{p.port}/anthropic", api_key="of-the-client", timeout=60
        ) as sdk,
        sdk.messages.stream(**asked) as stream,
    ):
        message = await stream.get_final_message()

    assert "".join(block.text for block in message.content if block.type == "text") == "Hm. There."
    assert [heard.target for heard in provider.heard] == ["/v1/messages"] * 2


@pytest.mark.parametrize("path", ["/openai/api/settings", "/openai/deployments/x/../../api/settings", "/openai/../api"])
async def test_a_prefix_leads_to_no_other_route(tmp_path: Path, path: str):
    async with evil(echo) as provider, proxy(tmp_path, provider.toml()) as p:
        answers = [await p.http.request(method, path) for method in ("GET", "POST")]

    assert {answer.status_code for answer in answers} <= {400, 404, 405} and provider.heard == []


async def test_errors_have_the_shape_of_the_api_that_was_called(tmp_path: Path):
    async with proxy(tmp_path, "") as p:
        openai = await p.http.post("/openai/deployments/x/chat/completions", content=b"{", headers=JSON)
        anthropic = await p.http.post("/anthropic/v1/messages", content=b"{", headers=JSON)

    assert (openai.status_code, anthropic.status_code) == (400, 400)
    assert openai.json()["error"]["type"] == "invalid_request_error" and anthropic.json()["type"] == "error"
