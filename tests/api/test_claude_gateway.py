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


# Auto mode: the provider judges the calls of its answer, and Claude Code runs those that were judged harmless.

SAFEGUARDS = [{"type": "dangerous_tool_use", "classifier_context": {"v": 1, "permission_mode": "auto"}}]
AUTO_MODE = {**HEADERS, "anthropic-beta": "claude-code-20250219,dangerous-tool-use-2026-09-03,afk-mode-2026-01-31"}


def judged(id: str) -> list[dict[str, object]]:
    harmless = {"type": "evaluated", "outcome": "not_flagged"}
    return [{"type": "dangerous_tool_use", "status": {"type": "available", "tool_uses": {id: harmless}}}]


def calling(id: str, name: str, arguments: dict[str, object], in_two: bool) -> list[dict[str, object]]:
    """Return the events of an answer that calls a tool; the verdict comes with its end, or in two in front of it."""
    verdict: dict[str, object] = {"safeguard_results": judged(id)}
    end: dict[str, object] = {"stop_reason": "tool_use", "stop_sequence": None}
    deltas = [verdict, end] if in_two else [end | verdict]
    usage = {"input_tokens": 9, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    block = {"type": "tool_use", "id": id, "name": name, "input": {}}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        *({"type": "message_delta", "delta": each, "usage": {"output_tokens": 9}} for each in deltas),
        {"type": "message_stop"},
    ]


def deltas_of(stream: bytes) -> list[dict[str, object]]:
    events = (json.loads(line[6:]) for line in stream.split(b"\n") if line.startswith(b"data: "))
    return [event["delta"] for event in events if event["type"] == "message_delta"]


@pytest.mark.parametrize("in_two", [False, True], ids=["with the end", "in front of it"])
@pytest.mark.parametrize("recalls", [False, True], ids=["at once", "after a recall"])
async def test_what_the_provider_says_of_a_call_s_safety_passes(recalls: bool, in_two: bool, tmp_path: Path):
    async def answers(heard: Heard, line: Line) -> None:
        is_asked_again = b"toolu_own" in heard.body
        if recalls and not is_asked_again:
            events = calling("toolu_own", "recover_text", {"id": "prn_0000000000000000"}, in_two)
        else:
            events = calling("toolu_bash", "Bash", {"command": "make"}, in_two)
        await line.stream(*(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events))

    body = {**REQUEST, "stream": True, "tools": [TOOL], "safeguards": SAFEGUARDS}
    async with evil(answers) as provider:
        toml = provider.toml("anthropic", api_key="").replace("anthropic-evil", "anthropic") + MODELS
        async with proxy(tmp_path, toml + "[sanitizer]\nchange_attested = true\n") as p:
            answer = await p.http.post("/v1/messages?beta=true", json=body, headers=AUTO_MODE)

    assert len(provider.heard) == 1 + recalls
    for heard in provider.heard:
        assert json.loads(heard.body)["safeguards"] == SAFEGUARDS
        assert heard.header("anthropic-beta") == AUTO_MODE["anthropic-beta"]
    assert b"toolu_own" not in answer.content
    found = [delta["safeguard_results"] for delta in deltas_of(answer.content) if "safeguard_results" in delta]
    assert found == [judged("toolu_bash")]
    assert deltas_of(answer.content)[-1]["stop_reason"] == "tool_use"


async def test_so_it_does_in_an_answer_that_comes_whole(tmp_path: Path):
    usage = {"input_tokens": 1, "output_tokens": 1}
    call = {"type": "tool_use", "id": "toolu_bash", "name": "Bash", "input": {"command": "make"}}
    whole = {"type": "message", "content": [call], "usage": usage, "safeguard_results": judged("toolu_bash")}
    own = {**call, "id": "toolu_own", "name": "recover_text", "input": {"id": "prn_0000000000000000"}}

    async def answers(heard: Heard, line: Line) -> None:
        said = whole if b"toolu_own" in heard.body else {**whole, "content": [own]}
        await line.send(http(json.dumps(said).encode(), "200 OK", "application/json"))

    async with evil(answers) as provider:
        toml = provider.toml("anthropic", api_key="").replace("anthropic-evil", "anthropic") + MODELS
        async with proxy(tmp_path, toml + "[sanitizer]\nchange_attested = true\n") as p:
            body = {**REQUEST, "tools": [TOOL], "safeguards": SAFEGUARDS}
            answer = (await p.http.post("/v1/messages?beta=true", json=body, headers=AUTO_MODE)).json()

    assert len(provider.heard) == 2
    assert answer["content"] == [call]
    assert answer["safeguard_results"] == judged("toolu_bash")
