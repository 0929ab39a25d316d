"""How agents are told of the tools."""

import pytest

from kimi_proxy.connect.agents import ToolsEndpoint, recognise

ENDPOINT = ToolsEndpoint("http://127.0.0.1:1234/mcp", "secret")
URL = 'mcp_servers.kimi-proxy.url="http://127.0.0.1:1234/mcp"'
TOKEN = 'mcp_servers.kimi-proxy.bearer_token_env_var="KIMI_PROXY_MCP_TOKEN"'


GRANT = "--allowedTools=mcp__kimi-proxy__recover_text"


def test_claude_code_gets_a_file_and_the_permission_for_one_tool_and_keeps_its_arguments():
    told = ENDPOINT.command(["claude", "-p", "why?"], "/run/mcp.json")

    assert told == ["claude", "--mcp-config=/run/mcp.json", GRANT, "-p", "why?"]


def test_codex_gets_overrides_before_its_own_words():
    assert ENDPOINT.command(["codex", "exec", "go"], "f") == ["codex", "-c", URL, "-c", TOKEN, "exec", "go"]


def test_other_agents_keep_their_command_line():
    assert ENDPOINT.command(["aider", "--yes"], "f") == ["aider", "--yes"]


def test_the_user_may_say_which_agent_it_is():
    assert ENDPOINT.command(["my-agent", "x"], "f", "claude") == ["my-agent", "--mcp-config=f", GRANT, "x"]
    assert ENDPOINT.command(["claude", "x"], "f", "other") == ["claude", "x"]


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["/opt/bin/claude"], (0, "claude")),
        (["claude.exe"], (0, "claude")),
        (["npx", "-y", "@anthropic-ai/claude-code@2.1.0", "-p"], (2, "claude")),
        (["bunx", "@openai/codex", "exec"], (1, "codex")),
        (["env", "A=codex", "claude"], (2, "claude")),
        (["python", "codex"], (0, "other")),
        (["vim", "claude"], (0, "other")),
        (["npx", "something"], (0, "other")),
    ],
)
def test_agents_are_recognised_by_name(argv: list[str], found: tuple[int, str]):
    assert recognise(argv) == found


def test_the_token_is_never_on_a_command_line():
    for agent in ("claude", "codex", "other"):
        assert not [word for word in ENDPOINT.command(["x", "y"], "f", agent) if "secret" in word]


def test_the_environment_says_where_the_tools_are_and_what_opens_the_door():
    assert ENDPOINT.env("/run/mcp.json") == {
        "KIMI_PROXY_MCP_URL": "http://127.0.0.1:1234/mcp",
        "KIMI_PROXY_MCP_TOKEN": "secret",
        "KIMI_PROXY_MCP_CONFIG": "/run/mcp.json",
    }


def test_claude_s_servers_have_the_shape_that_its_sdk_wants():
    assert ENDPOINT.claude_mcp_servers() == {
        "kimi-proxy": {
            "type": "http",
            "url": "http://127.0.0.1:1234/mcp",
            "headers": {"Authorization": "Bearer secret"},
            "alwaysLoad": True,
        }
    }
