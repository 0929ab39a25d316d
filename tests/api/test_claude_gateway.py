"""Claude Code's published gateway protocol, point by point as docs/claude-code-gateway.md lists them."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.evil import Evil, Heard, Line, evil, http

ATTRIBUTION = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.325; cch=8d07b;"}
PROMPT = {"type": "text", "text": "You are a coding agent.", "cache_control": {"type": "ephemeral"}}
TOOL = {"name": "Bash", "input_schema": {"type": "object"}, "strict": True, "defer_loading": True}
REQUEST = {
    "model": "claude-opus-5-5",
    "max_tokens": 128000,
    "system": [ATTRIBUTION, PROMPT],
    "messages": [{"role": "user", "content": "go"}],
    "thinking": {"type": "adaptive", "display": "omitted"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "medium"},
    "diagnostics": {"previous_message_id": None},
    "a_field_of_tomorrow": {"x": [1, None]},
}
HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,oauth-2025-04-20,a-beta-of-tomorrow-2027-01-01",
    "anthropic-workspace-id": "wrkspc_1",
    "anthropic-header-of-tomorrow": "1",
    "x-claude-code-session-id": "c4fd6b33-62d3-49d1-8437-0340c984a363",
    "x-claude-code-agent-id": "agent-1",
    "x-claude-code-parent-agent-id": "agent-0",
    "x-custom-of-the-developer": "prod",
    "x-api-key": "sk-of-the-developer",
}
REFUSAL = (
    b'{"type":"error","error":{"type":"invalid_request_error","message":"thinking: Extra inputs are not permitted"}}'
)
ANSWER = json.dumps({"type": "message", "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}).encode()
MODELS = """
[models."claude-sonnet-4-6"]
provider = "anthropic"
[models."kimi/k2"]
provider = "anthropic"
"""


async def script(heard: Heard, line: Line) -> None:
    if b"refuse this" in heard.body:
        await line.send(http(REFUSAL, "400 Bad Request", "application/json"))
    else:
        await line.send(http(ANSWER, "200 OK", "application/json"))


@asynccontextmanager
async def gateway(home: Path) -> AsyncIterator[tuple[Proxy, Evil]]:
    async with evil(script) as provider:
        toml = provider.toml("anthropic", api_key="").replace("anthropic-evil", "anthropic") + MODELS
        async with proxy(home, toml) as p:
            yield p, provider


async def asked(home: Path, body: object, path: str = "/v1/messages?beta=true") -> Heard:
    async with gateway(home) as (p, provider):
        response = await p.http.post(path, json=body, headers=HEADERS)
    assert response.status_code == 200, response.text
    return provider.heard[-1]


async def test_the_path_is_matched_without_its_query_which_passes(tmp_path: Path):
    assert (await asked(tmp_path, REQUEST)).target == "/v1/messages?beta=true"


async def test_tokens_are_counted_by_the_provider(tmp_path: Path):
    heard = await asked(tmp_path, {**REQUEST, "tools": [TOOL]}, "/v1/messages/count_tokens?beta=true")

    assert heard.target == "/v1/messages/count_tokens?beta=true"


async def test_the_probe_at_start_is_answered(tmp_path: Path):
    async with gateway(tmp_path) as (p, _):
        assert (await p.http.head("/")).status_code == 200


async def test_each_header_passes_unchanged_known_or_not(tmp_path: Path):
    heard = await asked(tmp_path, REQUEST)

    assert {name: heard.header(name) for name in HEADERS} == HEADERS


async def test_a_body_passes_byte_for_byte_with_fields_that_are_not_known(tmp_path: Path):
    heard = await asked(tmp_path, REQUEST)

    assert json.loads(heard.body) == REQUEST
    assert heard.body == json.dumps(REQUEST, separators=(",", ":"), ensure_ascii=False).encode()


async def test_the_attribution_block_stays_first_and_alone_beside_our_tool(tmp_path: Path):
    heard = await asked(tmp_path, {**REQUEST, "tools": [TOOL]})
    sent = json.loads(heard.body)

    assert sent["system"] == [ATTRIBUTION, PROMPT]
    assert sent["tools"][0] == TOOL
    assert [tool["name"] for tool in sent["tools"]] in (["Bash"], ["Bash", "recover_text"])
    assert {key: value for key, value in sent.items() if key != "tools"} == REQUEST


async def test_an_error_passes_in_its_own_words(tmp_path: Path):
    body = {**REQUEST, "messages": [{"role": "user", "content": "refuse this"}]}
    async with gateway(tmp_path) as (p, _):
        response = await p.http.post("/v1/messages?beta=true", json=body, headers=HEADERS)

    assert (response.status_code, response.content) == (400, REFUSAL)


@pytest.mark.parametrize("credential", [{"x-api-key": "k"}, {"authorization": "Bearer t"}])
async def test_models_are_listed_as_discovery_expects(credential: dict[str, str], tmp_path: Path):
    headers = {"anthropic-version": "2023-06-01", **credential}
    async with gateway(tmp_path) as (p, _):
        response = await p.http.get("/v1/models?limit=1000", headers=headers, follow_redirects=False)
    listed = response.json()["data"]

    assert response.status_code == 200
    assert all(isinstance(model["id"], str) and isinstance(model["display_name"], str) for model in listed)
    usable = [model["id"] for model in listed if re.match("claude|anthropic", model["id"], re.I)]
    assert usable == ["claude-sonnet-4-6"]
