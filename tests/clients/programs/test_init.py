"""Agents themselves as `kimi-proxy init` connects them: with a plugin, with our MCP server. Run by ./test.sh --deep."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.clients.programs.agents import AGENTS, AgentCase
from tests.clients.programs.job import LOG
from tests.clients.programs.packages import INSTALL_S, node, npm_modules
from tests.clients.programs.running import PATIENCE_S, new_place, run
from tests.clients.programs.worker import MARKER
from tests.support.api.proxy_world import proxy
from tests.support.deep import deep
from tests.support.evil import evil
from tests.support.read_back import read_lines

from kimi_proxy.connect.clients import CLIENTS, Connection, server_entry
from kimi_proxy.connect.places import HookTarget, Wanted
from kimi_proxy.core.chat import parse

pytestmark = [deep("it installs programs from npm or PyPI: minutes"), pytest.mark.timeout(INSTALL_S + 2 * PATIENCE_S)]

WITH_PLUGINS = [case for case in AGENTS if case.client in ("opencode", "cline")]
WITH_SERVERS = [case for case in AGENTS if case.client]


@pytest.mark.parametrize("case", WITH_PLUGINS, ids=lambda case: case.name)
async def test_a_plugin_cuts_what_a_command_printed(tmp_path: Path, case: AgentCase):
    model = case.worker(recalls=False)
    async with evil(model) as provider, proxy(tmp_path / "state", "[hooks]\nbudget_ms = 10000\n") as p:
        await p.runtime.pruner.warm()
        at = new_place(tmp_path, provider.url.removesuffix("/v1"))
        outcome = await run(case, at, Wanted(hooks=HookTarget(f"http://127.0.0.1:{p.port}")))
        found = MARKER.search(model.requests[1])
        assert found, (outcome, model.requests[1][-3000:])
        lines = int(found[2]), int(found[3])
        hidden = await read_lines(p.runtime.store.originals, found[1].decode(), [lines])

    assert outcome.is_success, outcome
    assert hidden and hidden in LOG.text


@pytest.mark.parametrize("case", WITH_SERVERS, ids=lambda case: case.name)
async def test_an_agent_offers_the_tools_of_the_server_that_init_wrote(tmp_path: Path, case: AgentCase):
    model = case.worker()
    async with evil(case.provider(model)) as provider:
        at = new_place(tmp_path, provider.url.removesuffix("/v1"))
        server = Connection((sys.executable, "-P", "-m", "kimi_proxy"), str(at.project), tools=True)
        outcome = await run(case, at, Wanted(server))

    offered = {name for raw in model.requests for name in parse(raw, case.wire).tool_names}
    assert outcome.is_success, outcome
    assert {"recover_text", "read"} <= {name.rpartition("pruner")[2].lstrip("_") for name in offered}, offered


def test_gemini_cli_lists_the_server_that_init_writes(tmp_path: Path):
    modules = npm_modules("gemini-cli-0.61.0", "@google/gemini-cli@0.61.0")
    at = new_place(tmp_path, "")
    entry = server_entry(CLIENTS["gemini"], Connection((sys.executable, "-P", "-m", "kimi_proxy"), str(at.project)))
    at.write(".gemini/settings.json", CLIENTS["gemini"].form.with_entry("", entry))
    at.write(".gemini/trustedFolders.json", json.dumps({str(at.project): "TRUST_FOLDER"}))
    program = str(modules / "@google/gemini-cli/bundle/gemini.js")
    listed = subprocess.run(
        [node(), program, "mcp", "list"],
        cwd=at.project,
        env={"PATH": os.environ["PATH"], "HOME": str(at.home), "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )

    (line,) = [line for line in (listed.stdout + listed.stderr).splitlines() if "pruner:" in line]
    assert "kimi_proxy pruner --stdio" in line and "Connected" in line
