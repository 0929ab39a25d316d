"""The contract's examples run as they are written there, with real curl; only the port is another."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.api import wire
from tests.support.api.pruner_world import pruner

from kimi_proxy.core import json
from kimi_proxy.core.json import JsonObject

CONTRACT = Path(__file__).with_name("curl_examples.md").read_text("utf-8")

# For machines without jq: it prints JSON, or the one string that the examples want to read.
JQ = """#!{python}
import json, sys
value = json.load(sys.stdin)
raw = "-r" in sys.argv
print(value["result"]["content"][0]["text"] if raw else json.dumps(value, indent=2, ensure_ascii=False))
"""

PATIENT: JsonObject = {
    "max_prune_ratio": 0.5,
    "min_keep_lines": 1,
    "timeout_ms": 60_000,
    "annotate_lines": True,
    "include_markers": True,
}

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def examples() -> list[str]:
    """Every curl command, with its continuation lines."""
    blocks = re.findall(r"^```bash\n(.*?)^```", CONTRACT, re.MULTILINE | re.DOTALL)
    return [
        command
        for block in blocks
        for command in re.findall(r"^curl .*?(?=\n(?:curl|export|\n)|\Z)", block.rstrip(), re.MULTILINE | re.DOTALL)
    ]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with pruner(tmp_path_factory.mktemp("home")) as port:
        # The examples give the pruner 1.5 s; on a busy machine its first answer alone may take that long.
        warm_up: JsonObject = {"text": "a", "goal_hint": "a", "source_type": "docs", "options": PATIENT}
        wire.post(port, "/rpc", {"jsonrpc": "2.0", "id": 0, "method": "prune_text", "params": warm_up})
        yield port


@pytest.fixture
def path(tmp_path: Path) -> str:
    if shutil.which("jq") is None:
        jq = tmp_path / "jq"
        jq.write_text(JQ.format(python=sys.executable))
        jq.chmod(0o755)
    return f"{tmp_path}{os.pathsep}{os.environ['PATH']}"


def run(command: str, port: int, path: str) -> JsonObject:
    here = command.replace(":8006/", f":{port}/")
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {here}"],
        env={"PATH": path, "no_proxy": "*"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    answer = json.decode(done.stdout)
    assert isinstance(answer, dict)
    return answer


def test_the_examples_are_all_there():
    assert len(examples()) == 7


def test_tools_list(port: int, path: str):
    match run(examples()[0], port, path):
        case {"id": 1, "result": {"tools": [{"name": "prune_text"}, {"name": "recover_text"}, {"name": "health"}, *_]}}:
            pass
        case other:
            raise AssertionError(other)


def test_prune_then_recover(port: int, path: str):
    _, prune, recover, *_ = examples()
    pruned = run(prune, port, path)
    recovered = run(recover.replace("prn_...", str(pruned["prune_id"])), port, path)

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


def test_prune_with_other_words(port: int, path: str):
    pruned = run(examples()[4], port, path)

    assert "L1 keep" in str(pruned["pruned_text"])


@pytest.mark.parametrize("number", [3, 5])
def test_health(port: int, path: str, number: int):
    answer = run(examples()[number], port, path)

    assert (answer["status"], answer["server"]) == ("healthy", "mcp-pruner")


def test_initialize(port: int, path: str):
    match run(examples()[6], port, path):
        case {"id": 1, "result": {"protocolVersion": "2025-11-25", "serverInfo": {"name": "mcp-pruner"}}}:
            pass
        case other:
            raise AssertionError(other)
