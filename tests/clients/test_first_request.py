"""The first request of Claude Code itself: the tools and the system prompt are those of a request without the proxy.

What it sends to its own server is recorded over TLS on loopback. Our recall tool is the one addition.
"""

import json
import re
from pathlib import Path

import pytest
from tests.clients.first_party import Recorded, first_party, provider
from tests.support.api.proxy_world import proxy
from tests.support.clients import agents
from tests.support.clients.servers import INSTALL_S
from tests.support.deep import deep

from kimi_proxy.connect import proxied
from kimi_proxy.connect.proxied import ProxyTarget

pytestmark = pytest.mark.timeout(INSTALL_S + 600)

# The attribution block names the request, and a digest of it.
VOLATILE = re.compile(r"\b(cch|cc_prompt_id|cc_turn_id|cc_session_id)=[\w-]+;?")
# What Claude Code keeps for a host name that really is Anthropic's.
DIRECT_ONLY = {"mid-conversation-system-clear-at-2026-08-21"}


async def run(folder: Path, **env: str) -> None:
    await agents.run_claude(folder, "go", **env)


def system_of(recorded: Recorded) -> object:
    return json.loads(VOLATILE.sub("", json.dumps(recorded.bodies[0]["system"])))


def tools_of(recorded: Recorded) -> list[dict[str, object]]:
    tools = recorded.bodies[0]["tools"]
    assert isinstance(tools, list)
    return tools


async def through_us(folder: Path, is_anthropic: bool) -> Recorded:
    with provider() as (url, recorded):
        toml = f'[providers.anthropic]\nbase_url = "{url}"\napi_key = ""\n[sanitizer]\nchange_attested = true\n'
        async with proxy(folder / "state", toml) as p:
            target = ProxyTarget(f"http://127.0.0.1:{p.port}", is_anthropic)
            settings = folder / "home" / ".claude" / "settings.json"
            settings.parent.mkdir(parents=True, exist_ok=True)
            settings.write_text(proxied.CLAUDE.keys(target).apply(""))  # as `kimi-proxy init claude --proxy` does
            await run(folder)
    return recorded


@deep("it installs Claude Code from npm")
async def test_tools_and_system_are_those_of_a_direct_request_token_for_token(tmp_path: Path):
    with first_party(tmp_path) as direct:
        await run(tmp_path, **direct.env)
    relayed = await through_us(tmp_path, is_anthropic=True)
    ours = [tool for tool in tools_of(relayed) if tool["name"] == "recover_text"]

    assert [tool for tool in tools_of(relayed) if tool not in ours] == tools_of(direct)
    assert len(ours) == 1
    assert system_of(relayed) == system_of(direct)
    assert set(relayed.bodies[0]) == set(direct.bodies[0])
    betas = [set(recorded.headers[0]["anthropic-beta"].split(",")) for recorded in (direct, relayed)]
    assert betas[0] - betas[1] <= DIRECT_ONLY
    assert relayed.headers[0]["x-api-key"] == "sk-of-the-client"


@deep("it installs Claude Code from npm")
async def test_before_another_provider_nothing_is_claimed(tmp_path: Path):
    recorded = await through_us(tmp_path, is_anthropic=False)

    assert "cache-diagnosis" not in recorded.headers[0]["anthropic-beta"]
    assert "cch=" not in json.dumps(recorded.bodies[0]["system"])
