"""Programs that call tools in a loop do a job of eight calls through the proxy, by the libraries' own clients."""

import json
import re
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.clients import sdks
from tests.clients.programs.job import AFTER, BEFORE, DONE, EIGHT_CALLS, LOG, files_of
from tests.clients.programs.worker import Worker, reframed, rewritten
from tests.support.api.proxy_world import proxy
from tests.support.clouds import as_gemini
from tests.support.evil import Heard, Line, Script, evil, http

from kimi_proxy.core.chat import Wire

# Of google-genai's own use of aiohttp.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

SETTINGS = '[sanitizer]\nbudget_ms = 60000\npolicy = "deep"\n[models.kimi-x]\nprovider = "{kind}-evil"\n'
TASK = "Why does the test in app.log fail? Print it, then write made.txt."
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
FUNCTION = {"name": "shell", "description": "Run a command.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]

# The tool of all of them: a command → what it prints.
Run = Callable[[str], str]


def running_in(folder: Path) -> Run:
    def run(command: str) -> str:
        return subprocess.run(["/bin/sh", "-c", command], cwd=folder, capture_output=True, text=True).stdout

    return run


async def genai_job(url: str, run: Run) -> str:
    genai = sdks.genai
    options = genai.types.HttpOptions(base_url=url, timeout=60_000)
    config = {"tools": [{"function_declarations": [FUNCTION]}], "automatic_function_calling": {"disable": True}}
    contents = [genai.types.Content(role="user", parts=[genai.types.Part(text=TASK)])]
    async with genai.Client(api_key="x", http_options=options).aio as sdk:
        while True:
            answer = await sdk.models.generate_content(model="kimi-x", contents=contents, config=config)
            if not answer.function_calls:
                return str(answer.text)
            results = [
                {"id": call.id, "name": call.name, "response": {"result": run(call.args["command"])}}
                for call in answer.function_calls
            ]
            parts = [genai.types.Part(function_response=result) for result in results]
            contents += [answer.candidates[0].content, genai.types.Content(role="user", parts=parts)]


async def azure_job(url: str, run: Run) -> str:
    said: list[object] = [{"role": "user", "content": TASK}]
    async with sdks.openai.AsyncAzureOpenAI(
        azure_endpoint=url, api_key="x", api_version="2024-10-21", timeout=60
    ) as sdk:
        while True:
            answer = await sdk.chat.completions.create(model="kimi-x", messages=said, tools=TOOLS)
            message = answer.choices[0].message
            if not message.tool_calls:
                return str(message.content)
            said.append(message)
            for call in message.tool_calls:
                printed = run(json.loads(call.function.arguments)["command"])
                said.append({"role": "tool", "tool_call_id": call.id, "content": printed})


async def ollama_job(url: str, run: Run) -> str:
    said: list[object] = [{"role": "user", "content": TASK}]
    sdk = sdks.ollama.AsyncClient(host=url, timeout=60)
    try:
        while True:
            answer = await sdk.chat("kimi-x", said, tools=TOOLS)
            if not answer.message.tool_calls:
                return str(answer.message.content)
            said.append(answer.message)
            for call in answer.message.tool_calls:
                printed = run(call.function.arguments["command"])
                said.append({"role": "tool", "tool_name": call.function.name, "content": printed})
    finally:
        await sdk._client.aclose()


def as_azure(model: Script) -> Script:
    async def script(heard: Heard, line: Line) -> None:
        path = re.sub(r"^(/v1)?/openai/deployments/[^/]+|\?.*", "", heard.target)
        await model(replace(heard, target=f"/v1/{path.lstrip('/').removeprefix('v1/')}"), line)

    return script


def as_ollama(model: Worker) -> Script:
    """Give the same job in Ollama's API: the next call after so many results."""

    async def script(heard: Heard, line: Line) -> None:
        model.requests.append(heard.body)
        done = sum(message["role"] == "tool" for message in json.loads(heard.body)["messages"])
        message: dict[str, object] = {"role": "assistant", "content": DONE}
        if done < len(model.steps):
            call = {"function": {"name": "shell", "arguments": {"command": model.steps[done].command}}}
            message = {"role": "assistant", "content": "", "tool_calls": [call]}
        await line.send(http(json.dumps({"model": "kimi-x", "message": message, "done": True}).encode()))

    return script


@dataclass(frozen=True, slots=True)
class Library:
    name: str
    job: Callable[[str, Run], Awaitable[str]]
    direct: Callable[[Worker], Script]
    behind_us: Callable[[Worker], Script] = lambda worker: worker
    kind: str = "openai"
    wire: Wire = Wire.CHAT


LIBRARIES = (
    Library("google-genai", genai_job, as_gemini, as_gemini, "gemini", Wire.GEMINI),
    Library("openai's client for Azure", azure_job, as_azure),
    Library("ollama", ollama_job, as_ollama),
)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
async def test_a_program_does_a_job_of_eight_calls_through_the_proxy_as_it_does_directly(
    tmp_path: Path, library: Library
):
    def new_folder(name: str) -> Path:
        (tmp_path / name).mkdir()
        for file, text in BEFORE.items():
            (tmp_path / name / file).write_text(text)
        return tmp_path / name

    def worker() -> Worker:
        return Worker(lambda command: ("shell", {"command": command}), steps=EIGHT_CALLS)

    alone, model = worker(), worker()
    direct, proxied = new_folder("direct"), new_folder("proxied")
    async with evil(library.direct(alone)) as provider:
        said = await library.job(provider.url.removesuffix("/v1"), running_in(direct))
    assert said == DONE and files_of(direct) == AFTER
    settings = SETTINGS.format(kind=library.kind)
    async with (
        evil(library.behind_us(model)) as provider,
        proxy(tmp_path / "state", provider.toml(library.kind) + settings) as p,
    ):
        said = await library.job(f"http://127.0.0.1:{p.port}", running_in(proxied))

    assert said.removeprefix("Hm. ") == DONE and files_of(proxied) == AFTER
    (recovered,) = model.recovered
    assert recovered and recovered in LOG.text
    assert len(alone.requests) == len(EIGHT_CALLS) + 1 == len(model.requests) - 1
    key = library.wire.format.conversation
    assert rewritten(model.requests, key) == 0 == reframed(model.requests, key)
