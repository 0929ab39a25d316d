"""Our item in a YAML list of the user's: added, changed and taken out, and no other line changes."""

import pytest

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.editing.yaml import YamlList

FILE = YamlList("mcpServers", "mine")
STDIO: JsonObject = {"type": "stdio", "command": "/opt/it", "args": ["pruner", "--stdio"]}
HTTP: JsonObject = {"type": "streamable-http", "url": "http://127.0.0.1:8006/mcp"}
MODELS = "name: local\nmodels:\n  - name: kimi  # mine: cheap\n    provider: openai\n"
OTHER = "mcpServers:\n- name: git\n  command: git-mcp\n"
OURS = '- name: mine\n  type: stdio\n  command: /opt/it\n  args: [pruner, "--stdio"]\n'
INDENTED = "".join(f"  {line}\n" for line in OURS.splitlines())
GIT = "  # one\n  - command: x\n    name: git\n\nrules: []\n"
CASES = {
    "empty": ("", f"mcpServers:\n{INDENTED}"),
    "without servers": (MODELS, f"{MODELS}mcpServers:\n{INDENTED}"),
    "an empty list": (f"mcpServers: []  # none\n{MODELS}", f"mcpServers:\n{INDENTED}{MODELS}"),
    "an empty value": (f"mcpServers:\n{MODELS}", f"mcpServers:\n{INDENTED}{MODELS}"),
    "another server": (MODELS + OTHER, MODELS + OTHER.replace("\n", f"\n{OURS}", 1)),
    "another server, indented": (f"mcpServers: # all\n{GIT}", f"mcpServers: # all\n{INDENTED}{GIT}"),
    "a block of text": (
        f"prompt: |\n  mcpServers:\n{INDENTED}",
        f"prompt: |\n  mcpServers:\n{INDENTED}mcpServers:\n{INDENTED}",
    ),
    "Windows": ("mcpServers:\r\n  - name: git\r\n", f"mcpServers:\n{INDENTED}  - name: git\n".replace("\n", "\r\n")),
}


@pytest.mark.parametrize(("text", "joined"), CASES.values(), ids=CASES)
def test_our_server_joins_and_leaves(text: str, joined: str):
    over_http = FILE.with_entry(joined, HTTP)

    assert FILE.with_entry(text, STDIO) == joined
    assert over_http != joined
    assert FILE.with_entry(over_http, STDIO) == joined
    assert FILE.restore(joined, text) == FILE.restore(over_http, text) == text


def test_a_last_line_without_its_end_gets_one():
    assert FILE.with_entry(MODELS.rstrip("\n"), STDIO) == f"{MODELS}mcpServers:\n{INDENTED}"


def test_a_server_of_the_same_name_comes_back():
    before = (
        f"{MODELS}mcpServers:\n  - name: git\n    command: a\n  - name: mine\n    command: theirs\n    env: {{A: b}}\n"
    )

    joined = FILE.with_entry(before, STDIO)

    assert joined == f"{MODELS}mcpServers:\n{INDENTED}  - name: git\n    command: a\n"
    assert "command: theirs\n    env: {A: b}\n" in FILE.restore(joined, before)
    assert FILE.restore(joined, before).count("name: mine") == 1


def test_what_was_added_since_stays():
    joined = FILE.with_entry(MODELS, STDIO)
    since = joined + "  - name: git\n    command: g\nrules: [a]\n"

    assert FILE.restore(since, MODELS) == f"{MODELS}mcpServers:\n  - name: git\n    command: g\nrules: [a]\n"


@pytest.mark.parametrize(
    "text",
    [
        "mcpServers: [{name: git}]\n",
        "mcpServers:\n  git:\n    command: g\n",
        "mcpServers: &all\n  - name: git\n",
        "mcpServers:\n- name: a\nmcpServers:\n- name: b\n",
        "a: 1\n---\nmcpServers:\n- name: a\n",
        "a:\t1\n",
    ],
)
def test_another_style_is_refused(text: str):
    with pytest.raises(FileRefused):
        FILE.with_entry(text, STDIO)
