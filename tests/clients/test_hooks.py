"""Claude Code itself with our hooks: what its tools print is cut before the model reads it, and read back on request.

No proxy stands between the agent and its model here.
"""

import json
import re
from pathlib import Path

import pytest
from tests.support.api.proxy_world import proxy
from tests.support.api.pruner_world import pruner
from tests.support.clients import agents
from tests.support.clients.fake_llm import Call, FakeLlm, fake_llm
from tests.support.clients.servers import INSTALL_S
from tests.support.deep import deep

from kimi_proxy.connect.hooks import claude_items
from kimi_proxy.features.agent_hooks import TIMEOUT_S

pytestmark = pytest.mark.timeout(INSTALL_S + 600)

LINES = [f"2026-01-01 12:{n // 60:02}:{n % 60:02} INFO item {n} of batch {n % 17} was stored" for n in range(400)]
LOG = "\n".join(LINES)
PATIENT = "[hooks]\nbudget_ms = 10000\n"
MARKER = re.compile(r"⟦PRUNÉ: prune_id=(prn_\w+) lignes (\d+)-(\d+)")


def script(answers: list[str]) -> Call | str:
    """Print a log by a command, search it, read it, fail, and recover what the first marker hides."""
    calls = [
        Call("Bash", {"command": "cat app.log", "description": "print the log"}),
        Call("Grep", {"pattern": "batch", "output_mode": "content", "head_limit": 0}),
        Call("Read", {"file_path": "app.log"}),
        Call("Bash", {"command": "cat app.log; exit 3", "description": "fail"}),
    ]
    if len(answers) < len(calls):
        return calls[len(answers)]
    found = MARKER.search(answers[0])
    if len(answers) > len(calls) or not found:
        return "done"
    ranges = [{"start_line": int(found[2]), "end_line": int(found[3])}]
    return Call("recover_text", {"prune_id": found[1], "ranges": ranges, "include_line_numbers": False})


async def run_claude(folder: Path, llm: FakeLlm, hooks: str, mcp: str) -> None:
    (folder / "project").mkdir()
    (folder / "project" / "app.log").write_text(LOG)
    items = claude_items(hooks, with_reads=False)
    settings = {"hooks": {event: [item] for (_, event), item in items.items()}}
    server = {"type": "http", "url": mcp, "alwaysLoad": True}
    # A busy machine may need longer than the time for which agents wait.
    (folder / "settings.json").write_text(json.dumps(settings).replace(f'"timeout": {TIMEOUT_S}', '"timeout": 60'))
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"pruner": server}}))
    await agents.run_claude(
        folder,
        "what happened to batch 3?",
        *("--settings", str(folder / "settings.json"), "--mcp-config", str(folder / "mcp.json")),
        *("--allowedTools", "Bash,Read,Grep,mcp__pruner__recover_text"),
        ANTHROPIC_BASE_URL=llm.url,
    )


async def test_claude_code_s_own_tools_are_cut_by_hooks_and_read_back(tmp_path: Path):
    home = tmp_path / "state"
    with pruner(home) as port, fake_llm(script) as llm:
        async with proxy(home, PATIENT) as p:
            await p.runtime.pruner.warm()
            await run_claude(tmp_path, llm, f"http://127.0.0.1:{p.port}", f"http://127.0.0.1:{port}/mcp")
    printed, searched, read, failed, recovered = llm.answers
    found = MARKER.search(printed)
    assert found
    hidden = "\n".join(LINES[int(found[2]) - 1 : int(found[3])])

    assert len(printed) < len(LOG) / 2
    assert MARKER.search(searched)
    # What may be edited next is whole, and for a failure Claude Code honours no other output.
    assert LINES[200] in read and not MARKER.search(read)
    assert LINES[399] in failed and not MARKER.search(failed)
    assert json.loads(recovered)["raw_text"] == hidden


@deep("the real Claude Code; with the server it always runs")
async def test_without_the_server_every_output_is_whole(tmp_path: Path):
    with fake_llm(script) as llm:
        gone = "http://127.0.0.1:9"  # nothing listens there
        # The tools are needed for the script to begin.
        with pruner(tmp_path / "state") as port:
            await run_claude(tmp_path, llm, gone, f"http://127.0.0.1:{port}/mcp")

    assert len(llm.answers) == 4
    assert [bool(MARKER.search(answer)) for answer in llm.answers] == [False] * 4
    assert LOG in llm.answers[0]
