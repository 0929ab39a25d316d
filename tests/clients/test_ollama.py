"""Ollama's own library asks any provider through the proxy."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.clients import sdks
from tests.support.api.proxy_world import proxy
from tests.support.conversations import results
from tests.support.evil import Evil, Heard, Line, Script, evil, http
from tests.support.model import Call, Says, events
from tests.support.services.chat.recall import LOG, THEIRS, Model, recovering

from kimi_proxy.addons.ollama.texts import ChatLines
from kimi_proxy.core.chat import Wire, parse

if TYPE_CHECKING:
    from ollama import AsyncClient

SETTINGS = '[sanitizer]\nbudget_ms = 60000\n[models.small]\nprovider = "{kind}-evil"\nmax_context_size = 32768\n'
TOOL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}
# As its clients write it: calls have no ids, and results name the tool.
CALLED = {"function": {"name": "bash", "arguments": {"command": "pytest"}}}
TALK = [
    {"role": "user", "content": LOG.goal},
    {"role": "assistant", "content": "", "tool_calls": [CALLED]},
    {"role": "tool", "tool_name": "bash", "content": LOG.text},
]


@asynccontextmanager
async def client(tmp_path: Path, model: Script, kind: str = "openai") -> AsyncIterator[tuple["AsyncClient", Evil]]:
    async with evil(model) as provider, proxy(tmp_path, provider.toml(kind) + SETTINGS.format(kind=kind)) as p:
        sdk = sdks.ollama.AsyncClient(host=f"http://127.0.0.1:{p.port}", timeout=60)
        try:
            yield sdk, provider
        finally:
            await sdk._client.aclose()


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize(("kind", "wire"), [("openai", Wire.CHAT), ("anthropic", Wire.MESSAGES)])
async def test_it_reads_what_the_model_says_with_a_recall_in_between(
    tmp_path: Path, is_stream: bool, kind: str, wire: Wire
):
    first = Says("Hm.", (recovering(),), tokens=(100, 5), id="answer-1")
    model = Model(wire, [first, Says(" There.", (THEIRS,), tokens=(120, 7), id="answer-2")])
    async with client(tmp_path, model, kind) as (sdk, provider):
        if is_stream:
            parts = [part async for part in await sdk.chat("small", TALK, tools=[TOOL], stream=True)]
        else:
            parts = [await sdk.chat("small", TALK, tools=[TOOL])]

    assert "".join(part.message.content for part in parts).split() == ["Hm.", "There."]
    (call,) = [call for part in parts for call in part.message.tool_calls or ()]
    assert (call.function.name, call.function.arguments) == ("bash", THEIRS.arguments)
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert (parts[-1].done_reason, parts[-1].prompt_eval_count, parts[-1].eval_count) == ("stop", 120, 7)
    cut, then = (results(parse(heard.body, wire)) for heard in provider.heard)
    assert len(cut["call_1"]) < len(LOG.text) / 2 and then["call_1"] == cut["call_1"]
    assert then["own_1"] in LOG.text


async def test_a_conversation_that_goes_on_keeps_its_prefix(tmp_path: Path):
    later = [*TALK, {"role": "assistant", "content": "It fails."}, {"role": "user", "content": "why?"}]
    async with client(tmp_path, Model(Wire.CHAT, [Says("ok")])) as (sdk, provider):
        for talk in (TALK, later):
            await sdk.chat("small", talk, tools=[TOOL])

    first, second = (parse(heard.body, Wire.CHAT) for heard in provider.heard)
    assert second.body.startswith(first.body[: first.messages[-1].end])


async def test_the_options_of_a_request_are_those_of_chat_completions(tmp_path: Path):
    options = {"temperature": 0.5, "num_predict": 20, "num_ctx": 8192, "stop": ["x"], "seed": 3}
    said = [{"role": "user", "content": "look", "images": ["iVBORw0KGgo="]}]
    async with client(tmp_path, Model(Wire.CHAT, [Says("{}")])) as (sdk, provider):
        await sdk.chat("small", said, options=options, format="json")

    assert json.loads(provider.heard[0].body) == {
        "model": "small",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                ],
            }
        ],
        "stream": False,
        "temperature": 0.5,
        "max_tokens": 20,
        "stop": ["x"],
        "seed": 3,
        "response_format": {"type": "json_object"},
    }


async def test_several_calls_are_answered_in_their_order(tmp_path: Path):
    made = [{"function": {"name": name, "arguments": {}}} for name in ("read", "bash", "read")]
    answers = [
        {"role": "tool", "tool_name": name, "content": text}
        for name, text in (("bash", "two"), ("read", "one"), ("read", "three"))
    ]
    talk = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "", "tool_calls": made}, *answers]
    async with client(tmp_path, Model(Wire.CHAT, [Says("ok")])) as (sdk, provider):
        await sdk.chat("small", talk)

    assert results(parse(provider.heard[0].body, Wire.CHAT)) == {"call_2": "two", "call_1": "one", "call_3": "three"}


async def test_models_are_listed_and_described(tmp_path: Path):
    async with client(tmp_path, Model(Wire.CHAT, [Says("x")])) as (sdk, _):
        listed = await sdk.list()
        shown = await sdk.show("small")
        version = (await sdk._client.get("/api/version")).json()

    assert [model.model for model in listed.models] == ["small"]
    assert shown.capabilities == ["completion", "tools"]
    assert shown.modelinfo["general.architecture"] == "remote" and shown.modelinfo["remote.context_length"] == 32_768
    assert version == {"version": "0.12.6"}


@pytest.mark.parametrize("is_stream", [True, False])
async def test_errors_are_texts(tmp_path: Path, is_stream: bool):
    async def busy(heard: Heard, line: Line) -> None:
        await line.send(http(b'{"error":{"message":"quota exceeded"}}', "429 Too Many Requests"))

    async with client(tmp_path, busy) as (sdk, _):
        with pytest.raises(sdks.ollama.ResponseError, match="quota exceeded") as refused:
            answer = await sdk.chat("small", TALK, stream=is_stream)
            if is_stream:
                _ = [part async for part in answer]
        unnamed = await sdk._client.post("/api/show", json={})

    assert refused.value.status_code == 429
    assert (unnamed.status_code, unnamed.json()) == (400, {"error": "model: must be a string"})


async def test_an_error_in_the_middle_of_a_stream_is_one_for_the_client(tmp_path: Path):
    async def failing(heard: Heard, line: Line) -> None:
        await line.stream(
            b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', b'data: {"error":{"message":"broke"}}\n\n'
        )

    async with client(tmp_path, failing) as (sdk, _):
        with pytest.raises(sdks.ollama.ResponseError, match="broke"):
            _ = [part async for part in await sdk.chat("small", TALK, stream=True)]


def test_calls_are_shown_whole_at_every_cut_of_a_stream():
    raw = b"".join(events(Wire.CHAT, Says("Voilà.", (Call("c", "bash", {"command": "ls"}),))))
    whole = ChatLines().feed(raw)
    for at in range(0, len(raw), 11):
        lines = ChatLines()
        assert lines.feed(raw[:at]) + lines.feed(raw[at:]) == whole
    assert json.loads(whole.splitlines()[-2])["message"]["tool_calls"][0]["function"]["arguments"] == {"command": "ls"}
