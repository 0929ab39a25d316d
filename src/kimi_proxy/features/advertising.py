"""How an agent is told of the tools that run beside it, without a change to any file of its user."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, NotRequired, TypedDict

SERVER_NAME = "kimi-proxy"
URL_VARIABLE = "KIMI_PROXY_MCP_URL"
TOKEN_VARIABLE = "KIMI_PROXY_MCP_TOKEN"  # noqa: S105 - the name of a variable
CONFIG_VARIABLE = "KIMI_PROXY_MCP_CONFIG"
VARIABLES = (URL_VARIABLE, TOKEN_VARIABLE, CONFIG_VARIABLE)

Agent = Literal["claude", "codex", "other"]

# What people type, and what packages are called that hold it.
_AGENTS: Mapping[str, Agent] = {
    "claude": "claude",
    "claude-code": "claude",
    "codex": "codex",
}
_LAUNCHERS = ("npx", "bunx", "pnpx", "env", "nice", "nohup")


class ClaudeServer(TypedDict):
    """An MCP server as Claude Code and the Claude Agent SDK describe one."""

    type: Literal["http"]
    url: str
    headers: NotRequired[dict[str, str]]
    alwaysLoad: NotRequired[bool]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the tools are, and what opens the door."""

    url: str
    token: str

    def claude_mcp_servers(self) -> dict[str, ClaudeServer]:
        headers = {"Authorization": f"Bearer {self.token}"}
        # Behind Claude Code's tool search a model would have to guess that these tools exist.
        return {SERVER_NAME: {"type": "http", "url": self.url, "headers": headers, "alwaysLoad": True}}

    def codex_config_overrides(self) -> tuple[str, ...]:
        """The token is read from the environment: arguments can be seen by everybody on the machine."""
        server = f"mcp_servers.{SERVER_NAME}"
        return (f'{server}.url="{self.url}"', f'{server}.bearer_token_env_var="{TOKEN_VARIABLE}"')

    def env(self, config_file: str) -> dict[str, str]:
        return {URL_VARIABLE: self.url, TOKEN_VARIABLE: self.token, CONFIG_VARIABLE: config_file}

    def command(self, argv: Sequence[str], config_file: str, agent: Agent | None = None) -> list[str]:
        """`argv` with what its agent needs to find the tools."""
        place, found = (0, agent) if agent else recognised(argv)
        before, after = list(argv[: place + 1]), list(argv[place + 1 :])
        match found:
            case "claude":
                # With "=" the option takes one value, and not the prompt that may follow.
                return [*before, f"--mcp-config={config_file}", *after]
            case "codex":
                overrides = self.codex_config_overrides()
                return [*before, *(word for override in overrides for word in ("-c", override)), *after]
            case _:
                return [*before, *after]


def recognised(argv: Sequence[str]) -> tuple[int, Agent]:
    """Which agent a command starts, and the place of its name; a launcher's name may come before it."""
    for place, word in enumerate(argv):
        name = _name(word)
        if name in _AGENTS:
            return place, _AGENTS[name]
        if place == 0 and name not in _LAUNCHERS:
            break
    return 0, "other"


def _name(word: str) -> str:
    """`/usr/bin/claude`, `claude.exe` and `@anthropic-ai/claude-code@2.1.0` without what surrounds the name."""
    return PurePath(word).name.partition("@")[0].removesuffix(".exe").removesuffix(".cmd")
