"""Every example runs as its reader would run it, in front of a scripted provider."""

import asyncio
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clients.programs.agents import AI_SDK, LANGGRAPH, LLAMA_INDEX, PYDANTIC_AI
from tests.clients.programs.packages import node, npm_modules, python_with
from tests.support.api.proxy_world import proxy
from tests.support.deep import deep, too
from tests.support.evil import evil
from tests.support.model import Call, Says
from tests.support.outputs import pytest_log
from tests.support.services.chat.recall import Model

from kimi_proxy.core.chat import Wire

EXAMPLES = Path(__file__).parents[1] / "examples"
SETTINGS = "[sanitizer]\nbudget_ms = 60000\n"
SDKS = {"openai_sdk.py": (Wire.CHAT, "openai"), "anthropic_sdk.py": (Wire.MESSAGES, "anthropic")}


# How each framework's packages are had, and its program run with them.
FRAMEWORKS: dict[str, Callable[[], str]] = {
    "langchain_agent.py": lambda: python_with("langgraph-1.2.20", *LANGGRAPH),
    "llama_index_agent.py": lambda: python_with("llama-index-0.14.25", *LLAMA_INDEX),
    "pydantic_ai_agent.py": lambda: python_with("pydantic-ai-2.66.0", PYDANTIC_AI),
    "ai_sdk.mjs": node,
}


async def run(example: str, *args: str, home: Path, program: str = sys.executable, **env: str) -> str:
    """Return what an example prints."""
    (home / example).write_text((EXAMPLES / example).read_text())
    process = await asyncio.create_subprocess_exec(
        *(program, example, *args),
        cwd=home,
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "KIMI_PROXY_HOME": str(home / "state"), **env},
    )
    printed, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0
    return printed.decode()


@pytest.mark.parametrize("example", ["openai_sdk.py", *map(too, ["anthropic_sdk.py", *FRAMEWORKS])])
async def test_an_agent_reads_a_long_file_through_the_proxy_and_answers(example: str, tmp_path: Path):
    wire, kind = SDKS.get(example, (Wire.CHAT, "openai"))
    program = FRAMEWORKS.get(example, lambda: sys.executable)()
    if example.endswith(".mjs"):
        (tmp_path / "node_modules").symlink_to(npm_modules("ai-sdk-7.0.169", *AI_SDK))
    log = pytest_log(1500)
    (tmp_path / "build.log").write_text(log.text)
    model = Model(wire, [Says("", (Call("call_1", "read", {"path": "build.log"}),)), Says("It was the parser.")])
    async with evil(model) as provider, proxy(tmp_path / "proxy", provider.toml(kind) + SETTINGS) as p:
        keys = {"OPENAI_API_KEY": "sk-x", "ANTHROPIC_API_KEY": "sk-ant-x", "MODEL": "m"}
        url = {"KIMI_PROXY_URL": f"http://127.0.0.1:{p.port}"}
        printed = await run(example, "build.log", log.goal, home=tmp_path, program=program, **keys, **url)

    assert printed == "It was the parser.\n"
    _, second = model.requests
    assert b"PRUN" in second
    assert len(second) < len(log.text) / 2


@deep("it starts a program and a model of its own; tests/test_runner.py runs the same API")
async def test_a_program_cuts_by_itself_and_has_the_original_back(tmp_path: Path):
    log = pytest_log(1500)
    (tmp_path / "build.log").write_text(log.text)

    printed = await run("compress.py", "build.log", log.goal, home=tmp_path)

    before, after = map(int, re.findall(r"(\d+) -> (\d+) tokens", printed)[0])
    assert after < before / 2
    assert f", {len(log.text)} characters" in printed


def test_every_example_is_listed():
    listed = re.findall(r"^\| `([\w.]+)`", (EXAMPLES / "README.md").read_text("utf-8"), re.M)

    assert sorted(listed) == sorted(path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".mjs"))
