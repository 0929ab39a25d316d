"""Agents do a job with tools that their requests leave out: they run them, and never see how they were found."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.clients.programs.agents import AGENTS, AgentCase, Command, Place
from tests.clients.programs.job import DONE, MADE
from tests.clients.programs.packages import INSTALL_S
from tests.clients.programs.running import PATIENCE_S, new_place, run
from tests.clients.programs.worker import RECALL, api_of, say
from tests.support.api.proxy_world import proxy
from tests.support.clients.servers import node_program
from tests.support.deep import deep
from tests.support.evil import Heard, Line, evil
from tests.support.model import Call, Says

from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.features.chat.prompt_cache import digests, first_difference

SETTINGS = '[sanitizer]\nbudget_ms = 60000\n[deferred_tools]\nclients = ["opencode", "claude"]\n'

pytestmark = [deep("it installs programs from npm or PyPI: minutes"), pytest.mark.timeout(INSTALL_S + 4 * PATIENCE_S)]


def _servers(place: Place) -> dict[str, list[str]]:
    return {
        "files": [node_program("mcp-server-filesystem"), str(place.project)],
        "facts": [node_program("mcp-server-memory")],
        "all": [node_program("mcp-server-everything")],
    }


def _opencode(place: Place, command: Command) -> Command:
    path = place.home / ".config/opencode/opencode.json"
    settings = json.loads(path.read_text())
    servers = {name: {"type": "local", "command": words} for name, words in _servers(place).items()}
    path.write_text(json.dumps({**settings, "mcp": servers}))
    return command


def _claude(place: Place, command: Command) -> Command:
    servers = {n: {"type": "stdio", "command": w[0], "args": w[1:]} for n, w in _servers(place).items()}
    place.write("servers.json", json.dumps({"mcpServers": servers}))
    allowed = "mcp__files__read_text_file,mcp__files__write_file"
    more = ("--mcp-config", str(place.home / "servers.json"), "--strict-mcp-config", "--allowedTools", allowed)
    return replace(command, argv=(*command.argv, *more), env={**command.env, "ENABLE_TOOL_SEARCH": "false"})


CASES = {
    "opencode": _opencode,
    "claude": _claude,
}


def _with_servers(case: AgentCase, add: Callable[[Place, Command], Command]) -> AgentCase:
    return replace(case, prepare=lambda place: add(place, case.prepare(place)))


@dataclass
class Finder:
    """A model that looks for a tool to read, then for one to write, and calls what it found."""

    project: Path
    requests: list[bytes] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    async def __call__(self, heard: Heard, line: Line) -> None:
        wire = await api_of(heard, line)
        if wire is not None:
            has_tools = any(name.endswith("find_tools") for name in parse(heard.body, wire).tool_names)
            await say(wire, self._says(wire, heard.body) if has_tools else Says("A title"), heard, line)

    def _says(self, wire: Wire, raw: bytes) -> Says:
        self.requests.append(raw)
        parts = [part for m in parse(raw, wire).messages for part in m.parts if part.kind == "tool_result"]
        found = [part.text for part in parts if part.call_id.startswith(RECALL)]
        self.results = [part.text for part in parts if not part.call_id.startswith(RECALL)]
        at, id = len(self.results), f"resp_{len(self.requests)}"
        query, ending, arguments = [
            ("read a text file", "read_text_file", {"path": str(self.project / "app.log")}),
            ("write a new file", "write_file", {"path": str(self.project / MADE), "content": "finished\n"}),
            ("", "", {}),
        ][min(at, 2)]
        if not query:
            return Says(DONE, id=id)
        if not found:
            return Says("I look. ", (Call(f"{RECALL}{at}", "find_tools", {"query": query}),), id=id)
        name = next(tool["name"] for tool in json.loads(found[-1])["tools"] if tool["name"].endswith(ending))
        return Says("", (Call(f"call_{at}", "use_tool", {"name": name, "arguments": arguments}),), id=id)


@pytest.mark.parametrize("case", [case for case in AGENTS if case.name in CASES], ids=lambda case: case.name)
async def test_an_agent_does_a_job_with_tools_that_its_requests_leave_out(tmp_path: Path, case: AgentCase):
    model = Finder(tmp_path / "proxied" / "project")
    async with (
        evil(model) as provider,
        proxy(tmp_path / "state", provider.toml(case.provider_type) + SETTINGS) as p,
    ):
        place = new_place(tmp_path / "proxied", f"http://127.0.0.1:{p.port}")
        outcome = await run(_with_servers(case, CASES[case.name]), place)

    assert outcome.is_success, (outcome, [raw[-1500:] for raw in model.requests])
    assert "find_tools" not in outcome.output and "use_tool" not in outcome.output
    assert len(model.requests) == 5, "two searches, two calls and the end"
    assert "read_text_file" in model.results[0] and "inputSchema" in model.results[0], "the schema stays"
    offered = {name for raw in model.requests for name in parse(raw, case.wire).tool_names}
    assert {"find_tools", "use_tool"} <= offered
    assert not any("write_file" in name or "create_entities" in name for name in offered)
    asked = [Request(case.wire, raw) for raw in model.requests if b'"%b' % RECALL.encode() not in raw]
    changes = [first_difference(digests(before), digests(now)) for before, now in pairwise(asked)]
    assert changes == [None, None], "the provider's cache has all that was sent before"
