"""The three tools of the agent as a shell pipes their calls into the server."""

import json
import sys
from pathlib import Path

import pytest
from tests.support.deep import too
from tests.support.shell_lines import Example, Shell, missing

from kimi_proxy.core.json import JsonObject

LOG = "".join(f"12:00:{n % 60:02} INFO item {n} was stored\n" for n in range(120))
FAILURE = "12:07:00 ERROR batch 99 was refused: quota\n"


def call(name: str, **arguments: object) -> str:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    # A server whose input ends stops what it runs, so the input stays open until the answer is there.
    says = f"{{ printf '%s\\n' '{json.dumps(message)}'; read -r _ <answered || true; }}"
    return f"mkfifo answered; {says} | kimi-proxy tools --stdio | {{ head -n 1; echo >answered; }}"


def text(shown: str) -> JsonObject:
    return {"result": {"content": [{"type": "text", "text": shown}], "isError": False}}


WHOLE = (
    Example("read", call("read", file_path="short.txt"), text("one\ntwo\n")),
    Example("bash", call("bash", command="echo three"), text("three\n")),
    Example("grep", call("grep", pattern="tw.", path="short.txt"), text("short.txt:2:two")),
)
NOWHERE = "http://127.0.0.1:9/prune"
QUESTION = "Why was a batch refused?"
PRUNED = (
    Example("read", call("read", file_path="app.log", context_focus_question=QUESTION), None),
    Example("bash", call("bash", command="cat app.log", context_focus_question=QUESTION), None),
    Example("grep", call("grep", pattern="stored|refused", path="app.log", context_focus_question=QUESTION), None),
)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell.of(tmp_path, {}, HOME=str(tmp_path), KIMI_PROXY_HOME=str(tmp_path / "state"))
    program = shell.programs / "kimi-proxy"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kimi_proxy "$@"\n')
    program.chmod(0o755)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "short.txt").write_text("one\ntwo\n")
    (tmp_path / "work" / "app.log").write_text(LOG + FAILURE + LOG)
    return shell


@pytest.mark.parametrize("example", WHOLE, ids=str)
def test_without_a_question_each_tool_gives_its_output_whole(example: Example, shell: Shell, tmp_path: Path):
    assert list(missing(json.loads(shell.run(example.command, tmp_path / "work")), example.shows)) == []


@pytest.mark.parametrize(
    ("endpoint", "example"),
    [*(("", each) for each in PRUNED), (NOWHERE, PRUNED[0]), *(too(NOWHERE, each) for each in PRUNED[1:])],
    ids=str,
)
def test_with_a_question_the_failure_stays_whatever_becomes_of_the_pruner(
    endpoint: str, example: Example, shell: Shell, tmp_path: Path
):
    command = f"export JEEVES_PRUNER_ENDPOINT={endpoint}\n{example.command}" if endpoint else example.command
    answered = json.loads(shell.run(command, tmp_path / "work"))
    shown = answered["result"]["content"][0]["text"]

    assert answered["result"]["isError"] is False
    assert FAILURE.strip() in shown
    assert ("⟦PRUNÉ" in shown) is not bool(endpoint)


def test_the_switch_leaves_every_output_whole(shell: Shell, tmp_path: Path):
    command = f"export JEEVES_MCP_PRUNER_ENABLED=false\n{PRUNED[0].command}"
    answered = json.loads(shell.run(command, tmp_path / "work"))

    assert answered["result"]["content"][0]["text"].startswith(LOG + FAILURE + LOG)
