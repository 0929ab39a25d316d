"""Google's own library asks through the proxy as if nobody stood between."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.clients import sdks
from tests.support.api.proxy_world import proxy
from tests.support.clouds import addressed, as_gemini
from tests.support.conversations import body, results
from tests.support.evil import Evil, Heard, Line, Script, evil, http
from tests.support.model import Says
from tests.support.services.chat.recall import ITEMS, LOG, THEIRS, Model, recovering

from kimi_proxy.core.chat import Wire, parse

if TYPE_CHECKING:
    from google.genai.client import AsyncClient

# Of its own use of aiohttp.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

SETTINGS = "[sanitizer]\nbudget_ms = 60000\n"
HI = b'{ "contents":[{"role":"user","parts":[{"text":"caf\\u00e9"}]}] }'
JSON = {"content-type": "application/json"}
GENERATE = "/v1beta/models/gemini-x:generateContent"


@asynccontextmanager
async def client(tmp_path: Path, model: Script) -> AsyncIterator[tuple["AsyncClient", Evil]]:
    genai = sdks.genai
    async with evil(as_gemini(model)) as provider, proxy(tmp_path, provider.toml("gemini") + SETTINGS) as p:
        options = genai.types.HttpOptions(base_url=f"http://127.0.0.1:{p.port}", timeout=60_000)
        async with genai.Client(api_key="of-the-client", http_options=options).aio as sdk:
            yield sdk, provider


def told() -> tuple[list[dict[str, object]], dict[str, object]]:
    """The conversation, and the rest of the request."""
    value = json.loads(body(Wire.GEMINI, ITEMS))
    return value["contents"], {"tools": value["tools"], "system_instruction": value["systemInstruction"]}


@pytest.mark.parametrize("is_stream", [True, False])
async def test_it_reads_what_the_model_says_with_a_recall_in_between(tmp_path: Path, is_stream: bool):
    first = Says("Hm.", (recovering(),), tokens=(100, 5), id="answer-1")
    model = Model(Wire.GEMINI, [first, Says(" There.", (THEIRS,), tokens=(120, 7), id="answer-2")])
    contents, config = told()
    async with client(tmp_path, model) as (sdk, provider):
        asked = {"model": "gemini-x", "contents": contents, "config": config}
        if is_stream:
            answers = [chunk async for chunk in await sdk.models.generate_content_stream(**asked)]
        else:
            answers = [await sdk.models.generate_content(**asked)]

    parts = [part for answer in answers for part in answer.candidates[0].content.parts or ()]
    assert "".join(part.text or "" for part in parts) == "Hm. There."
    (call,) = [part.function_call for part in parts if part.function_call]
    assert (call.id, call.name, call.args) == (THEIRS.id, "bash", THEIRS.arguments)
    assert answers[-1].candidates[0].finish_reason.name == "STOP"
    assert answers[-1].usage_metadata.prompt_token_count == 120
    verb = "streamGenerateContent?alt=sse" if is_stream else "generateContent"
    assert {heard.target for heard in provider.heard} == {f"/v1/models/gemini-x:{verb}"}
    assert provider.heard[0].header("x-goog-api-key") == "of-the-client"
    cut, then = (parse(addressed(heard).body, Wire.GEMINI) for heard in provider.heard)
    assert then.body.startswith(cut.body[: cut.messages[-1].end]), "the prefix is kept"
    assert len(results(cut)["call_a1"]) < len(LOG.text) / 2 and results(then)["own_1"] in LOG.text


async def test_calls_to_which_the_model_gives_no_id_are_answered_all_the_same(tmp_path: Path):
    """The client's next request brings the id of ours back, with what was recovered beside its result."""
    model = Model(Wire.GEMINI, [Says("Both.", (recovering(), THEIRS)), Says("Thanks.")])

    async def without_ids(heard: Heard, line: Line) -> None:
        plain = Line(line._reader, line._writer)
        plain.send = lambda *pieces: line.send(*(_without_ids(piece) for piece in pieces))  # type: ignore[method-assign]
        await model(heard, plain)

    contents, config = told()
    async with client(tmp_path, without_ids) as (sdk, provider):
        answer = await sdk.models.generate_content(model="gemini-x", contents=contents, config=config)
        (call,) = answer.function_calls
        said = answer.candidates[0].content
        part = sdks.genai.types.Part(
            function_response={"id": call.id, "name": call.name, "response": {"result": "a.py"}}
        )
        later = [*contents, said, sdks.genai.types.Content(role="user", parts=[part])]
        await sdk.models.generate_content(model="gemini-x", contents=later, config=config)

    assert call.name == "bash" and call.id
    shown = parse(addressed(provider.heard[-1]).body, Wire.GEMINI).messages[-1].parts[-1].text
    assert shown.startswith("a.py\n\n[recover_text ")


def _without_ids(piece: bytes) -> bytes:
    raw = piece.partition(b"\r\n\r\n")[2]
    if not raw.startswith(b"{"):
        return piece
    value = json.loads(raw)
    for part in value["candidates"][0]["content"]["parts"]:
        part.get("functionCall", {}).pop("id", None)
    return http(json.dumps(value).encode())


async def test_tokens_are_counted_and_models_listed_by_the_provider(tmp_path: Path):
    async def script(heard: Heard, line: Line) -> None:
        known = b'{"models":[{"name":"models/gemini-x"}]}'
        await line.send(http(b'{"totalTokens":42}' if "countTokens" in heard.target else known))

    async with evil(script, lists=True) as provider, proxy(tmp_path, provider.toml("gemini")) as p:
        options = sdks.genai.types.HttpOptions(base_url=f"http://127.0.0.1:{p.port}", timeout=60_000)
        async with sdks.genai.Client(api_key="x", http_options=options).aio as sdk:
            counted = await sdk.models.count_tokens(model="gemini-x", contents="hi")
            listed = [model.name async for model in await sdk.models.list()]

    assert (counted.total_tokens, listed) == (42, ["models/gemini-x"])
    assert [heard.target.partition("?")[0] for heard in provider.heard if heard.body] == [
        "/v1/models/gemini-x:countTokens"
    ]


@pytest.mark.parametrize("base", ["/v1beta", "/v1beta/openai"])
async def test_a_request_leaves_byte_for_byte_to_the_native_address(tmp_path: Path, base: str):
    async def echo(heard: Heard, line: Line) -> None:
        await line.send(http(b"{}"))

    async with evil(echo) as provider:
        toml = f'[providers.google]\ntype = "gemini"\nbase_url = "http://127.0.0.1:{provider.port}{base}"\n'
        async with proxy(tmp_path, toml) as p:
            await p.http.post(GENERATE, content=HI, headers=JSON)

    assert [(heard.target, heard.body) for heard in provider.heard] == [(GENERATE, HI)]


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        (GENERATE + "?key=AIza", "x-goog-api-key"),
        ("/v1beta/models/gemini-x:streamGenerateContent", "alt=sse"),
    ],
)
async def test_what_cannot_be_served_is_refused_in_the_shape_of_the_api(tmp_path: Path, path: str, advice: str):
    model = as_gemini(Model(Wire.GEMINI, [Says("x")]))
    async with evil(model) as provider, proxy(tmp_path, provider.toml("gemini")) as p:
        response = await p.http.post(path, content=HI, headers=JSON)

    error = response.json()["error"]
    assert (response.status_code, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert advice in error["message"] and provider.heard == []


async def test_an_error_of_the_provider_passes_as_it_came(tmp_path: Path):
    refusal = b'{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED"}}'

    async def busy(heard: Heard, line: Line) -> None:
        await line.send(http(refusal, "429 Too Many Requests", "application/json", "retry-after: 7"))

    async with evil(busy) as provider, proxy(tmp_path, provider.toml("gemini")) as p:
        response = await p.http.post(GENERATE, content=HI, headers=JSON)

    assert (response.status_code, response.content, response.headers["retry-after"]) == (429, refusal, "7")
