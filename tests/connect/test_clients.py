"""What each client is told."""

from pathlib import Path

import pytest

from kimi_proxy.connect.clients import CLIENTS, GUIDANCE, Connection, Name, server_entry
from kimi_proxy.core import tokens
from kimi_proxy.core.json import JsonObject

STDIO = Connection(("/bin/kimi-proxy",), "/work")
TOOLS = Connection(("/bin/kimi-proxy",), "/work", tools=True)
HTTP = Connection(("/bin/kimi-proxy",), "/work", url="http://127.0.0.1:8006/mcp", token=True)
COMMAND: JsonObject = {"command": "/bin/kimi-proxy", "args": ["pruner", "--stdio"]}


@pytest.mark.parametrize(
    ("client", "said"),
    [
        ("claude", {"type": "stdio", **COMMAND}),
        ("codex", COMMAND),
        ("cline", {"type": "stdio", **COMMAND, "timeout": 60}),
        ("continue", {"type": "stdio", **COMMAND}),
        ("cursor", {"type": "stdio", **COMMAND}),
        ("vscode", {"type": "stdio", **COMMAND}),
        ("opencode", {"type": "local", "command": ["/bin/kimi-proxy", "pruner", "--stdio"]}),
        ("kimi", COMMAND),
        ("qwen", COMMAND),
        ("gemini", COMMAND),
        ("copilot", {"type": "local", **COMMAND}),
        ("kilo", {"type": "local", "command": ["/bin/kimi-proxy", "pruner", "--stdio"]}),
    ],
)
def test_a_server_that_the_client_starts(client: Name, said: JsonObject):
    assert server_entry(CLIENTS[client], STDIO) == said


@pytest.mark.parametrize(
    ("client", "said"),
    [
        ("claude", {"type": "http", "headers": {"Authorization": "Bearer ${KIMI_PROXY_TOKEN}"}}),
        ("codex", {"bearer_token_env_var": "KIMI_PROXY_TOKEN"}),
        ("cline", {"type": "streamableHttp", "timeout": 60}),
        ("continue", {"type": "streamable-http"}),
        ("cursor", {"type": "http", "headers": {"Authorization": "Bearer ${env:KIMI_PROXY_TOKEN}"}}),
        ("vscode", {"type": "http", "headers": {"Authorization": "Bearer ${env:KIMI_PROXY_TOKEN}"}}),
        ("opencode", {"type": "remote", "headers": {"Authorization": "Bearer {env:KIMI_PROXY_TOKEN}"}}),
        ("kimi", {"bearerTokenEnvVar": "KIMI_PROXY_TOKEN"}),
    ],
)
def test_a_server_that_the_client_calls_with_a_token_from_the_environment(client: Name, said: JsonObject):
    assert server_entry(CLIENTS[client], HTTP) == {"url": "http://127.0.0.1:8006/mcp", **said}


@pytest.mark.parametrize("client", ["qwen", "gemini"])
def test_a_client_with_another_key_for_the_address_gets_it_there(client: Name):
    assert server_entry(CLIENTS[client], HTTP) == {
        "httpUrl": "http://127.0.0.1:8006/mcp",
        "headers": {"Authorization": "Bearer ${KIMI_PROXY_TOKEN}"},
    }


@pytest.mark.parametrize(
    ("client", "more"),
    [
        ("claude", []),
        ("codex", []),
        ("cline", ["--cwd", "/work"]),
        ("continue", []),
        ("cursor", ["--cwd", "${workspaceFolder}"]),
        ("vscode", ["--cwd", "${workspaceFolder}"]),
    ],
)
def test_the_tools_begin_in_the_project(client: Name, more: list[str]):
    assert server_entry(CLIENTS[client], TOOLS)["args"] == ["tools", "--stdio", *more]


@pytest.mark.parametrize(("client", "key"), [("claude", "alwaysLoad"), ("qwen", "alwaysLoadTools")])
def test_the_tools_are_shown_without_a_search(client: Name, key: str):
    assert server_entry(CLIENTS[client], TOOLS)[key] is True


# The guidance is short, and is the same wherever it stands.


PAGE = Path(__file__).parent.parent.parent / "docs" / "agent-guidance.md"


def test_it_costs_little_on_every_turn():
    count = tokens.count(GUIDANCE)

    print(f"the guidance has {count} tokens")
    assert count <= 250


def test_the_page_shows_it_as_it_is():
    assert GUIDANCE in PAGE.read_text("utf-8")
