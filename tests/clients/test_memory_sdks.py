"""The real libraries talk through a proxy that tells of the project, and the provider gets the same bytes each time."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.clients import sdks
from tests.support import model
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.clouds import addressed
from tests.support.evil import Heard, Line, Script, evil, http
from tests.support.model import Says

from kimi_proxy.core.chat import Request, Wire, parse

# Of google-genai's own use of aiohttp.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

INJECT = "[memory]\ninject = true\n"
RULES = "Answer in one word."
BLOCK = '<mcp-memory source="project">\nLe port est 8000. 🦊\n</mcp-memory>'

Talk = Callable[[int, list[dict[str, object]]], Awaitable[None]]


async def chat(port: int, said: list[dict[str, object]]) -> None:
    async with sdks.openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x", timeout=60) as sdk:
        rules = {"role": "system", "content": RULES}
        answer = await sdk.chat.completions.create(model="m", messages=[rules, *said])
    assert answer.choices[0].message.content == "yes"


async def messages(port: int, said: list[dict[str, object]]) -> None:
    system = [{"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}]
    async with sdks.anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{port}", api_key="x", timeout=60) as sdk:
        answer = await sdk.messages.create(model="m", max_tokens=9, system=system, messages=said)
    assert answer.content[0].text == "yes"


async def responses(port: int, said: list[dict[str, object]]) -> None:
    async with sdks.openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x", timeout=60) as sdk:
        answer = await sdk.responses.create(model="m", instructions=RULES, input=said)
    assert answer.output_text == "yes"


async def gemini(port: int, said: list[dict[str, object]]) -> None:
    options = sdks.genai.types.HttpOptions(base_url=f"http://127.0.0.1:{port}", timeout=60_000)
    names = {"user": "user", "assistant": "model"}
    contents = [{"role": names[str(each["role"])], "parts": [{"text": each["content"]}]} for each in said]
    async with sdks.genai.Client(api_key="x", http_options=options).aio as sdk:
        config = {"system_instruction": RULES}
        answer = await sdk.models.generate_content(model="m", contents=contents, config=config)
    assert answer.text == "yes"


TALKS: dict[Wire, Talk] = {
    Wire.CHAT: chat,
    Wire.MESSAGES: messages,
    Wire.RESPONSES: responses,
    Wire.GEMINI: gemini,
}


def saying_yes(wire: Wire) -> Script:
    async def script(heard: Heard, line: Line) -> None:
        await line.send(http(model.body(wire, Says("yes"))))

    return script


async def save(p: Proxy, content: str) -> None:
    saved = await p.http.post("/api/memory/save", json={"content": content})
    assert saved.status_code == 200


def prefix(request: Request) -> bytes:
    """All that a provider's cache could know of the first turn."""
    return request.body[: request.messages[-1].start]


@pytest.mark.parametrize("wire", Wire)
async def test_a_conversation_is_told_the_same_before_and_after_a_restart(tmp_path: Path, wire: Wire):
    first = [{"role": "user", "content": "is it green?"}]
    later = [*first, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "sure?"}]
    talk = TALKS[wire]
    async with evil(saying_yes(wire)) as provider:
        toml = provider.toml(wire.format.provider_types[0]) + INJECT
        async with proxy(tmp_path, toml) as p:
            await save(p, "Le port est 8000. 🦊")
            await talk(p.port, first)
            await save(p, "Le port est 9000.")
            await talk(p.port, later)
        async with proxy(tmp_path, toml) as p:
            await talk(p.port, later)
            await talk(p.port, [{"role": "user", "content": "another conversation"}])

    told = [parse(addressed(heard).body, wire) for heard in provider.heard]
    systems = ["\n\n".join(part.text for part in request.system) for request in told]
    assert systems[:3] == [f"{RULES}\n\n{BLOCK}"] * 3
    assert systems[3] == f"{RULES}\n\n{BLOCK.replace('8000. 🦊', '9000.')}"
    assert provider.heard[1].body == provider.heard[2].body
    if wire is Wire.CHAT:
        assert provider.heard[1].body.startswith(prefix(told[0]))
