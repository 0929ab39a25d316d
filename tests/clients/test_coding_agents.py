"""Claude Code and Codex themselves, offline, on a provider of ours behind the proxy: a turn with a tool, to the end.

They weigh 600 MB. They are used where they are installed, on the PATH or under .tools, and installed there with
./test.sh --deep.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.clients.coding_agents import program, run
from tests.support.clients.provider import Coder
from tests.support.clients.servers import INSTALL_S
from tests.support.evil import Evil, evil

pytestmark = pytest.mark.timeout(INSTALL_S + 600)


@asynccontextmanager
async def world(tmp_path: Path, kind: str) -> AsyncIterator[tuple[Proxy, Evil]]:
    async with evil(Coder()) as provider, proxy(tmp_path / "state", provider.toml(kind)) as p:
        yield p, provider


async def test_claude_code_reads_a_file_and_answers(tmp_path: Path):
    claude = await asyncio.to_thread(program, "claude")
    (tmp_path / "hello.txt").write_text("a needle in a file\n")
    async with world(tmp_path, "anthropic") as (p, provider):
        said = await run(
            tmp_path,
            *(claude, "-p", "read hello.txt", "--allowedTools", "Read", "--output-format", "json"),
            ANTHROPIC_BASE_URL=f"http://127.0.0.1:{p.port}",
            ANTHROPIC_API_KEY="sk-of-the-client",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        )

    assert json.loads(said)["result"] == Coder.DONE
    assert b"a needle in a file" in provider.heard[-1].body
    assert {heard.target for heard in provider.heard} == {"/v1/messages?beta=true"}


async def test_codex_runs_a_command_and_answers(tmp_path: Path):
    codex = await asyncio.to_thread(program, "codex")
    async with world(tmp_path, "openai") as (p, provider):
        settings = tmp_path / "home" / ".codex" / "config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(
            'model = "gpt-x"\nmodel_provider = "kimi-proxy"\n[model_providers.kimi-proxy]\nname = "kimi-proxy"\n'
            f'base_url = "http://127.0.0.1:{p.port}/v1"\nwire_api = "responses"\n'
        )
        said = await run(tmp_path, codex, "exec", "--skip-git-repo-check", "run echo", OPENAI_API_KEY="sk-x")

    assert Coder.DONE in said
    assert b"a needle in an output" in provider.heard[-1].body
    assert {heard.target for heard in provider.heard} == {"/v1/responses"}
