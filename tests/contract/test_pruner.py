"""The pruner's examples as a reader types them, the local ones with no opt-in, the others with a reranker beside."""

import asyncio
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.api import wire
from tests.support.api.pruner_world import pruner
from tests.support.shell_lines import Example, Shell, missing
from tests.support.upstream import Script, http, scripted

from kimi_proxy.core.config import parse
from kimi_proxy.core.errors import ConfigError
from kimi_proxy.core.json import JsonObject, JsonValue

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

PATIENT: JsonObject = {
    "max_prune_ratio": 0.5,
    "min_keep_lines": 1,
    "timeout_ms": 60_000,
    "annotate_lines": True,
    "include_markers": True,
}
HEADER = "-H 'Content-Type: application/json'"
PRINTS_TEXT = "http://127.0.0.1:8006/rpc | jq -r '.result.content[0].text' | jq"


def prune(text: str, goal: str) -> str:
    return f"""curl -sS {HEADER} -d '{{
    "jsonrpc":"2.0",
    "id":2,
    "method":"tools/call",
    "params":{{
      "name":"prune_text",
      "arguments":{{
        "text":"{text}",
        "goal_hint":"{goal}",
        "source_type":"docs",
        "options":{{
          "max_prune_ratio":0.75,
          "min_keep_lines":1,
          "timeout_ms":1500,
          "annotate_lines":true,
          "include_markers":true
        }}
      }}
    }}
  }}' {PRINTS_TEXT}"""


PRUNE = prune(r"L1\nL2\nL3\nL4", "garder L1")
RECOVER = f"""curl -sS {HEADER} -d '{{
    "jsonrpc":"2.0",
    "id":3,
    "method":"tools/call",
    "params":{{
      "name":"recover_text",
      "arguments":{{
        "prune_id":"prn_...",
        "ranges":[{{"start_line":1,"end_line":50}}],
        "include_line_numbers":true
      }}
    }}
  }}' {PRINTS_TEXT}"""
HEALTHY: JsonObject = {"status": "healthy", "server": "mcp-pruner"}

LOCAL = (
    Example(
        "list the tools",
        f"""curl -sS {HEADER} -d '{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{}}}}' \
http://127.0.0.1:8006/rpc | jq""",
        {"id": 1, "result": {"tools": [{"name": "prune_text"}, {"name": "recover_text"}, {"name": "health"}]}},
    ),
    Example(
        "prune four lines",
        PRUNE,
        {
            "pruned_text": "L1\nL2\nL3\nL4",  # a marker would cost more than these lines
            "annotations": [],
            "stats": {"original_lines": 4, "kept_lines": 4, "pruned_lines": 0},
            "warnings": ["nothing_worth_cutting"],
        },
    ),
    Example("ask for health", "curl -sS http://127.0.0.1:8006/health | jq", HEALTHY),
    Example("ask for health by name", "curl -sS http://localhost:8006/health | jq", HEALTHY),
    Example(
        "initialize",
        f"""curl -sS {HEADER} -d '{{"jsonrpc":"2.0","id":1,"method":"initialize","params":\
{{"protocolVersion":"2025-11-25","clientInfo":{{"name":"diag","version":"1.0.0"}}}}}}' \
http://localhost:8006/rpc | jq""",
        {"id": 1, "result": {"protocolVersion": "2025-11-25", "serverInfo": {"name": "mcp-pruner"}}},
    ),
    Example(
        "go back to the local engine",
        f"export KIMI_PRUNING_BACKEND=heuristic\n{PRUNE}",
        {"stats": {"used_fallback": False}},
    ),
    Example(
        "ask for an id that was never given out",
        f"""curl -sS {HEADER} -d '{{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{{"name":"recover_text",\
"arguments":{{"prune_id":"prn_...","ranges":[{{"start_line":1,"end_line":2}}],"include_line_numbers":true}}}}}}' \
http://127.0.0.1:8006/rpc | jq""",
        {
            "id": 12,
            "error": {"code": -32004, "message": "prune_id_not_found", "data": {"code": "prune_id_not_found"}},
        },
    ),
)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("shell")
    with pruner(folder / "home") as port:
        # The examples give the pruner 1.5 s; on a busy machine its first answer alone may take that long.
        warm_up: JsonObject = {"text": "a", "goal_hint": "a", "source_type": "docs", "options": PATIENT}
        wire.post(port, "/rpc", {"jsonrpc": "2.0", "id": 0, "method": "prune_text", "params": warm_up})
        yield Shell.of(folder, {8006: port})


@pytest.mark.parametrize("example", LOCAL, ids=str)
def test_each_example_shows_what_is_promised(example: Example, shell: Shell):
    assert list(missing(shell.ask(example.command), example.shows)) == []


def test_prune_then_recover(shell: Shell):
    pruned = shell.ask(PRUNE)
    assert isinstance(pruned, dict)
    recovered = shell.ask(RECOVER.replace("prn_...", str(pruned["prune_id"])))

    assert {"prune_id", "pruned_text", "annotations", "stats", "warnings"} == set(pruned)
    assert recovered == {
        "raw_text": "1│ L1\n2│ L2\n3│ L3\n4│ L4",
        "metadata": {
            "prune_id": pruned["prune_id"],
            "ranges": [{"start_line": 1, "end_line": 50}],
            "line_numbering": "original",
            "numbering": "lines",
        },
    }


def test_a_marker_reads_as_the_pattern_says(shell: Shell):
    pattern = (
        r"^⟦PRUNÉ: prune_id=(?P<prune_id>[^\s]+) lignes (?P<start>\d+)-(?P<end>\d+)"
        r" \((?P<count>\d+)\) raison=(?P<reason>.*)⟧$"
    )
    lines = r"\n".join(
        [*(f"chapter {n} is about the weather and the harvest" for n in range(60)), "the password is here"]
    )
    pruned = shell.ask(prune(lines, "where is the password"))

    assert isinstance(pruned, dict)
    found = [match for line in str(pruned["pruned_text"]).split("\n") if (match := re.match(pattern, line))]
    assert found
    assert [match[0] for match in found] == [each["marker"] for each in pruned["annotations"]]
    assert all(int(match["end"]) - int(match["start"]) + 1 == int(match["count"]) for match in found)


DEEPINFRA = """export KIMI_PRUNING_BACKEND=deepinfra
export DEEPINFRA_API_KEY="sk_deepinfra_..."
export DEEPINFRA_TIMEOUT_MS=20000
export DEEPINFRA_MAX_DOCS=128
"""
WITH_RERANKER = prune(r"L1 keep\nL2 prune\nL3 prune\nL4 keep", "keep")


async def test_with_the_variables_of_the_reranker_it_scores_the_lines(tmp_path: Path):
    async def prune_with_reranker(answer: Script) -> JsonValue:
        async with scripted(answer) as server:
            variables = dict(re.findall(r'^export (\w+)="?(.*?)"?$', DEEPINFRA, re.M))
            url = server.url
            with pruner(tmp_path / "home", "", DEEPINFRA_ENDPOINT_URL=url, **variables) as port:
                shell = Shell.of(tmp_path, {8006: port})
                return await asyncio.to_thread(shell.ask, DEEPINFRA + WITH_RERANKER.replace("1500", "60000"))

    scores = await prune_with_reranker(lambda heard: http(b'{"scores": [0.9, 0.1, 0.1, 0.8]}'))
    refuses = await prune_with_reranker(lambda heard: http(b"{}", "401 Unauthorized"))
    babbles = await prune_with_reranker(lambda heard: http(b"<html>"))

    asked: JsonObject = {"backend": "deepinfra", "deepinfra_docs_total": 4, "deepinfra_docs_scored": 4}
    assert list(missing(scores, {"stats": {**asked, "deepinfra_http_status": 200, "used_fallback": False}})) == []
    failed: JsonObject = {"stats": {"used_fallback": True, "deepinfra_http_status": 401}}
    assert list(missing(refuses, {**failed, "warnings": ["deepinfra_error", "deepinfra_http_error"]})) == []
    assert list(missing(babbles, {"warnings": ["deepinfra_error", "deepinfra_parse_error"]})) == []


def test_a_key_in_the_file_is_refused():
    with pytest.raises(ConfigError, match="deepinfra_api_key"):
        parse('[mcp_pruner]\nbackend = "deepinfra"\ndeepinfra_api_key = "sk-..."\n', {}, Path())


def test_the_file_says_what_the_environment_leaves_open():
    toml = """[mcp_pruner]
backend = "heuristic"
deepinfra_timeout_ms = 20000
deepinfra_max_docs = 64
cache_ttl_s = 30
cache_max_entries = 256
"""
    in_file = parse(toml, {}, Path()).mcp_pruner
    over_it = parse(toml, {"KIMI_PRUNING_BACKEND": "cloud", "MCP_PRUNER_CACHE_MAX_ENTRIES": "9"}, Path()).mcp_pruner

    assert (in_file.backend, in_file.cache_ttl_s, in_file.cache_max_entries) == ("heuristic", 30, 256)
    assert (over_it.backend, over_it.cache_max_entries, over_it.deepinfra_max_docs) == ("deepinfra", 9, 64)
