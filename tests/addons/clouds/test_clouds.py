"""Claude as Bedrock and Vertex serve it: any client in front of these clouds, and theirs in front of any provider."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.clients import sdks
from tests.support import aws
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.clouds import as_bedrock, as_vertex
from tests.support.conversations import body, results
from tests.support.evil import Evil, Heard, Line, Script, evil, http
from tests.support.model import Says
from tests.support.services.chat.recall import ITEMS, LOG, THEIRS, Model, recovering

from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.json import JsonObject

MODEL = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
ARN = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-x"
INVOKE = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke"
VERTEX_MODEL = "claude-sonnet-4-5@20250929"
RAW_PREDICT = f"/projects/p/locations/us-east5/publishers/anthropic/models/{VERTEX_MODEL}:rawPredict"
SECRET, REGION = "wJalrXUtnFEMI", "eu-west-3"
SETTINGS = "[sanitizer]\nbudget_ms = 60000\n"
# Spelled as no library would write it, so that a change of one byte shows.
HI = (
    b'{ "anthropic_version":"bedrock-2023-05-31", "max_tokens":10,"messages":[{"role":"user","content":"caf\\u00e9"}] }'
)
CONVERSATION: JsonObject = {"max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@dataclass(slots=True)
class Cloud:
    """What a cloud heard, as it came and as a request of Anthropic's own API."""

    model: Script = field(default_factory=lambda: Model(Wire.MESSAGES, [Says("hello")]))
    questions: list[Heard] = field(default_factory=list)

    async def __call__(self, heard: Heard, line: Line) -> None:
        self.questions.append(heard)
        await self.model(heard, line)


@asynccontextmanager
async def bedrock(tmp_path: Path, cloud: Cloud | None = None, more: str = "") -> AsyncIterator[tuple[Proxy, Evil]]:
    async with evil(as_bedrock(cloud or Cloud())) as provider:
        toml = f'[providers.aws]\ntype = "bedrock"\nbase_url = "http://127.0.0.1:{provider.port}"\n{more}'
        async with proxy(tmp_path, toml + SETTINGS, BEDROCK_KEY="bedrock-key") as p:
            yield p, provider


@asynccontextmanager
async def vertex(tmp_path: Path, cloud: Cloud | None = None) -> AsyncIterator[tuple[Proxy, Evil]]:
    async with evil(as_vertex(cloud or Cloud())) as provider:
        base = f"http://127.0.0.1:{provider.port}/v1/projects/mine/locations/us-east5"
        async with proxy(tmp_path, f'[providers.gcp]\ntype = "vertex"\nbase_url = "{base}"\n{SETTINGS}') as p:
            yield p, provider


def with_model(body: bytes) -> bytes:
    return json.dumps({**json.loads(body), "model": MODEL}).encode()


async def test_a_question_to_bedrock_leaves_byte_for_byte_and_signed_by_the_user(tmp_path: Path):
    signed = {
        "authorization": "AWS4-HMAC-SHA256 Credential=CLIENT/20250101/us-east-1/bedrock/aws4_request, x",
        "x-amz-security-token": "of the client",
        "x-amz-date": "20250101T000000Z",
        "content-type": "application/json",
    }
    async with bedrock(tmp_path) as (p, provider):
        response = await p.http.post(INVOKE, content=HI, headers=signed)

    (heard,) = provider.heard
    assert (response.status_code, response.json()["content"][0]["text"]) == (200, "hello")
    assert heard.body == HI
    assert (heard.target, aws.model_in(heard)) == (INVOKE, MODEL)
    assert aws.signed_by(heard, SECRET, REGION) == "AKIDEXAMPLE"
    assert aws.signed_by(heard, "another secret", REGION) == ""
    assert heard.header("x-amz-security-token") is None


async def test_the_session_token_of_temporary_credentials_is_signed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "temporary")
    async with bedrock(tmp_path) as (p, provider):
        await p.http.post(INVOKE, content=HI, headers={"content-type": "application/json"})

    assert provider.heard[0].header("x-amz-security-token") == "temporary"
    assert "x-amz-security-token" in (provider.heard[0].header("authorization") or "")
    assert aws.signed_by(provider.heard[0], SECRET, REGION) == "AKIDEXAMPLE"


async def test_a_model_may_be_named_by_its_arn(tmp_path: Path):
    cloud = Cloud()
    async with bedrock(tmp_path, cloud) as (p, provider):
        path = f"/model/{ARN.replace(':', '%3A').replace('/', '%2F')}/invoke"
        response = await p.http.post(path, content=HI, headers={"content-type": "application/json"})

    assert response.status_code == 200
    assert aws.model_in(provider.heard[0]) == ARN and provider.heard[0].target == path
    assert aws.signed_by(provider.heard[0], SECRET, REGION) == "AKIDEXAMPLE"


@pytest.mark.parametrize(
    ("more", "sent", "received"),
    [
        ("", "of-the-client", "Bearer of-the-client"),
        ('api_key = "${BEDROCK_KEY}"\n', "of-the-client", "Bearer bedrock-key"),
    ],
)
async def test_a_bearer_key_pays_instead_of_a_signature(tmp_path: Path, more: str, sent: str, received: str):
    async with bedrock(tmp_path, more=more) as (p, provider):
        headers = {"authorization": f"Bearer {sent}", "x-api-key": "sk-ant-mine", "content-type": "application/json"}
        await p.http.post(INVOKE, content=HI, headers=headers)

    assert provider.heard[0].header("authorization") == received
    assert provider.heard[0].header("x-api-key") is None and provider.heard[0].header("x-amz-date") is None


async def test_without_credentials_a_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    async with bedrock(tmp_path) as (p, provider):
        response = await p.http.post(INVOKE, json=CONVERSATION)

    assert (response.status_code, provider.heard) == (400, [])
    assert "aws configure sso" in response.json()["error"]["message"]


@pytest.mark.parametrize("is_stream", [True, False])
async def test_anthropic_s_library_for_bedrock_reads_what_the_model_says_with_a_recall_in_between(
    tmp_path: Path, is_stream: bool
):
    first = Says("Hm.", (recovering(),), tokens=(100, 5), id="answer-1")
    cloud = Cloud(Model(Wire.MESSAGES, [first, Says(" There.", (THEIRS,), tokens=(120, 7), id="answer-2")]))
    asked = json.loads(body(Wire.MESSAGES, ITEMS)) | {"model": MODEL}
    async with (
        bedrock(tmp_path, cloud) as (p, provider),
        sdks.anthropic.AsyncAnthropicBedrock(
            base_url=f"http://127.0.0.1:{p.port}", api_key="of-the-client", aws_region="us-east-1"
        ) as sdk,
    ):
        if is_stream:
            async with sdk.messages.stream(**asked) as stream:
                message = await stream.get_final_message()
        else:
            message = await sdk.messages.create(**asked)

    assert [block.type for block in message.content][-1] == "tool_use"
    assert "".join(block.text for block in message.content if block.type == "text") == "Hm. There."
    assert (message.stop_reason, message.content[-1].id) == ("tool_use", THEIRS.id)
    assert len(provider.heard) == 2, "the provider was asked again with what was recovered"
    first_cut, then = (results(parse(with_model(heard.body), Wire.MESSAGES)) for heard in provider.heard)
    assert then["call_a1"] == first_cut["call_a1"] and then["own_1"] in LOG.text


async def test_what_was_cut_stays_cut_in_the_same_bytes(tmp_path: Path):
    asked = json.loads(body(Wire.MESSAGES, ITEMS))
    del asked["model"]
    longer = asked | {"messages": [*asked["messages"], {"role": "user", "content": "go on"}]}
    async with bedrock(tmp_path) as (p, provider):
        for each in (asked, longer):
            assert (await p.http.post(INVOKE, json=each)).status_code == 200

    # Marks for the prompt cache move, and are no part of what is cached.
    first, second = (results(parse(with_model(heard.body), Wire.MESSAGES)) for heard in provider.heard)
    assert len(first["call_a1"]) < len(LOG.text) / 2
    assert second == first


async def test_a_client_of_anthropic_s_own_api_asks_bedrock(tmp_path: Path):
    async with bedrock(tmp_path) as (p, provider):
        headers = {"anthropic-beta": "a-2025-01-01, b-2025-02-02"}
        asked = {"model": MODEL, "stream": True, **CONVERSATION}
        response = await p.http.post("/v1/messages?beta=true", json=asked, headers=headers)

    heard = provider.heard[0]
    assert response.headers["content-type"] == "text/event-stream" and b"event: message_stop" in response.content
    assert heard.target == INVOKE + "-with-response-stream" and heard.header("anthropic-beta") is None
    assert json.loads(heard.body) == {
        **CONVERSATION,
        "anthropic_version": "bedrock-2023-05-31",
        "anthropic_beta": ["a-2025-01-01", "b-2025-02-02"],
    }


async def test_a_client_of_chat_completions_asks_bedrock(tmp_path: Path):
    async with bedrock(tmp_path) as (p, provider):
        asked = {"model": MODEL, "messages": CONVERSATION["messages"]}
        response = await p.http.post("/v1/chat/completions", json=asked)

    assert response.json()["choices"][0]["message"]["content"] == "hello"
    assert provider.heard[0].target == INVOKE and aws.signed_by(provider.heard[0], SECRET, REGION)


async def test_a_client_of_bedrock_asks_anthropic(tmp_path: Path):
    model, named = Model(Wire.MESSAGES, [Says("hello")]), f'[models."{MODEL}"]\nprovider = "anthropic-evil"\n'
    async with (
        evil(model) as provider,
        proxy(tmp_path, provider.toml("anthropic") + f'{named}model = "claude-x"\n') as p,
    ):
        asked = {**CONVERSATION, "anthropic_version": "bedrock-2023-05-31", "anthropic_beta": ["a"]}
        response = await p.http.post(INVOKE, json=asked)

    heard = provider.heard[0]
    assert response.json()["content"][0]["text"] == "hello"
    assert (heard.target, heard.header("anthropic-beta")) == ("/v1/messages", "a")
    assert json.loads(heard.body) == {**CONVERSATION, "model": "claude-x"}


async def test_an_exception_in_the_middle_of_bedrock_s_stream_reaches_the_client_as_one(tmp_path: Path):
    async def failing(heard: Heard, line: Line) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\n"
        message = aws.failure("throttlingException", "too many tokens")
        await line.send(head + b"Content-Length: %d\r\n\r\n" % len(message) + message)

    async with (
        bedrock(tmp_path, Cloud(failing)) as (p, _),
        sdks.anthropic.AsyncAnthropicBedrock(
            base_url=f"http://127.0.0.1:{p.port}", api_key="x", aws_region="us-east-1", max_retries=0
        ) as sdk,
    ):
        with pytest.raises(sdks.anthropic.APIStatusError, match="too many tokens"):
            async with sdk.messages.stream(model=MODEL, **CONVERSATION) as stream:
                await stream.get_final_message()


@pytest.mark.parametrize(("path", "is_shaped"), [(INVOKE, False), ("/v1/messages", True)])
async def test_an_error_of_bedrock_has_the_shape_of_the_api_that_was_called(tmp_path: Path, path: str, is_shaped: bool):
    async def refusing(heard: Heard, line: Line) -> None:
        await line.send(http(b'{"message":"no access to this model"}', "403 Forbidden"))

    async with bedrock(tmp_path, Cloud(refusing)) as (p, _):
        response = await p.http.post(path, json={**CONVERSATION, **({"model": MODEL} if is_shaped else {})})

    error = response.json()
    assert response.status_code == 403
    assert (error["error"] if is_shaped else error)["message"] == "no access to this model"
    assert (error.get("type") == "error") is is_shaped


async def test_bedrock_counts_tokens_for_clients_of_both_apis(tmp_path: Path):
    async def counting(heard: Heard, line: Line) -> None:
        assert heard.target.endswith("/count-tokens")
        await line.send(http(b'{"inputTokens":42}'))

    async with evil(counting) as provider:
        toml = f'[providers.aws]\ntype = "bedrock"\nbase_url = "http://127.0.0.1:{provider.port}"\n'
        async with proxy(tmp_path, toml) as p:
            counted = await p.http.post("/v1/messages/count_tokens", json={"model": MODEL, **CONVERSATION})
            asked = json.loads(provider.heard[0].body)
            again = await p.http.post(INVOKE.replace("/invoke", "/count-tokens"), json=asked)

    assert (counted.json(), again.json()) == ({"input_tokens": 42}, {"inputTokens": 42})
    assert json.loads(provider.heard[1].body) == asked


async def test_a_question_to_vertex_leaves_byte_for_byte_with_the_client_s_token(tmp_path: Path):
    said = HI.replace(b"bedrock-2023-05-31", b"vertex-2023-10-16")
    async with vertex(tmp_path) as (p, provider):
        headers = {"authorization": "Bearer ya29.x", "content-type": "application/json", "anthropic-beta": "a"}
        answers = [await p.http.post(root + RAW_PREDICT, content=said, headers=headers) for root in ("", "/v1")]

    assert [answer.json()["content"][0]["text"] for answer in answers] == ["hello", "hello"]
    for heard in provider.heard:
        assert heard.target == RAW_PREDICT.replace("/projects/p/", "/v1/projects/mine/")
        assert (heard.body, heard.header("authorization"), heard.header("anthropic-beta")) == (
            said,
            "Bearer ya29.x",
            "a",
        )


async def test_anthropic_s_library_for_vertex_reads_what_the_model_says_with_a_recall_in_between(tmp_path: Path):
    first = Says("Hm.", (recovering(),), tokens=(100, 5), id="answer-1")
    cloud = Cloud(Model(Wire.MESSAGES, [first, Says(" There.", (THEIRS,), tokens=(120, 7), id="answer-2")]))
    asked = json.loads(body(Wire.MESSAGES, ITEMS)) | {"model": VERTEX_MODEL}
    async with (
        vertex(tmp_path, cloud) as (p, provider),
        sdks.anthropic.AsyncAnthropicVertex(
            base_url=f"http://127.0.0.1:{p.port}/v1", access_token="ya29.x", project_id="p", region="us-east5"
        ) as sdk,
    ):
        async with sdk.messages.stream(**asked) as stream:
            message = await stream.get_final_message()
        counted = await sdk.messages.count_tokens(model=VERTEX_MODEL, messages=CONVERSATION["messages"])

    assert "".join(block.text for block in message.content if block.type == "text") == "Hm. There."
    assert (message.stop_reason, message.content[-1].id, counted.input_tokens) == ("tool_use", THEIRS.id, 10)
    assert [heard.target.rpartition(":")[2] for heard in provider.heard] == ["streamRawPredict"] * 2 + ["rawPredict"]
