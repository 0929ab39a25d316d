"""The tools for one run of an agent: how Claude Code, Codex and others are given their address."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, NotRequired, TypedDict

AGENT_SERVER_NAME = "kimi-proxy"
RECOVER_TEXT = f"mcp__{AGENT_SERVER_NAME}__recover_text"  # as Claude Code calls it
URL_VARIABLE = "KIMI_PROXY_MCP_URL"
AGENT_TOKEN_VARIABLE = "KIMI_PROXY_MCP_TOKEN"  # noqa: S105 - the name of a variable
CONFIG_VARIABLE = "KIMI_PROXY_MCP_CONFIG"
VARIABLES = (URL_VARIABLE, AGENT_TOKEN_VARIABLE, CONFIG_VARIABLE)

Agent = Literal["claude", "codex", "copilot", "other"]

# Names of commands and of npm packages.
_AGENTS: Mapping[str, Agent] = {
    "claude": "claude",
    "claude-code": "claude",
    "codex": "codex",
    "copilot": "copilot",
}
_LAUNCHERS = ("npx", "bunx", "pnpx", "env", "nice", "nohup")


class ClaudeServer(TypedDict):
    """An MCP server as Claude Code and the Claude Agent SDK describe one."""

    type: Literal["http"]
    url: str
    headers: NotRequired[dict[str, str]]
    alwaysLoad: NotRequired[bool]


@dataclass(frozen=True, slots=True)
class ToolsEndpoint:
    """The URL of the tools for one run of an agent, and its token."""

    url: str
    token: str

    def claude_mcp_servers(self) -> dict[str, ClaudeServer]:
        headers = {"Authorization": f"Bearer {self.token}"}
        # Without alwaysLoad a model would have to guess that these tools exist and search for them.
        return {AGENT_SERVER_NAME: {"type": "http", "url": self.url, "headers": headers, "alwaysLoad": True}}

    def codex_config_overrides(self) -> tuple[str, ...]:
        """Return the overrides; the token stays in the environment, because other users can see arguments."""
        server = f"mcp_servers.{AGENT_SERVER_NAME}"
        return (f'{server}.url="{self.url}"', f'{server}.bearer_token_env_var="{AGENT_TOKEN_VARIABLE}"')

    def env(self, config_file: str) -> dict[str, str]:
        return {URL_VARIABLE: self.url, AGENT_TOKEN_VARIABLE: self.token, CONFIG_VARIABLE: config_file}

    def command(self, argv: Sequence[str], config_file: str, agent: Agent | None = None) -> list[str]:
        """Return `argv` with what its agent needs to find the tools."""
        place, found = (0, agent) if agent else recognise(argv)
        before = list(argv[: place + 1])
        after = list(argv[place + 1 :])
        match found:
            case "claude":
                # With "=" an option takes one value, and not the prompt that may follow. Claude Code adds up the tools
                # of several --allowedTools, and would refuse this one in headless runs: others it goes on asking for.
                return [*before, f"--mcp-config={config_file}", f"--allowedTools={RECOVER_TEXT}", *after]
            case "codex":
                overrides = self.codex_config_overrides()
                return [*before, *(word for override in overrides for word in ("-c", override)), *after]
            case _:
                return [*before, *after]


def recognise(argv: Sequence[str]) -> tuple[int, Agent]:
    """Return the position of the agent's name and which agent it is; a launcher may come before it."""
    for place, word in enumerate(argv):
        name = _name(word)
        if name in _AGENTS:
            return place, _AGENTS[name]
        if place == 0 and name not in _LAUNCHERS:
            break
    return 0, "other"


def _name(word: str) -> str:
    """Return the bare name in `/usr/bin/claude`, `claude.exe` or `@anthropic-ai/claude-code@2.1.0`."""
    return PurePath(word).name.partition("@")[0].removesuffix(".exe").removesuffix(".cmd")
