"""What differs by client: where it lists its MCP servers, how it writes one, where its instructions are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, NotRequired, TypedDict

from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.editing import jsonc, toml
from kimi_proxy.features.editing.client_files import OwnYamlFile, ServersFile, SharedFile

Name = Literal["claude", "codex", "cline", "continue", "cursor", "vscode"]
Scope = Literal["project", "user"]

SERVER_NAME = "pruner"
TOKEN_VARIABLE = "KIMI_PROXY_TOKEN"  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True)
class ClientApp:
    """Paths of `user` are relative to the home directory, those of `project` to the current one.

    Of several paths, all that exist are changed, or else the first. `{code}` is VS Code's directory.
    """

    title: str
    form: ServersFile
    user: tuple[str, ...]
    project: str = ""
    scope: Scope = "project"
    moved_by: str = ""  # a variable with another directory, or another file, for `user`
    is_locked: bool = False  # the client takes a lock directory beside the file while it writes
    stdio: str = ""  # its `type` of a server that it starts
    http: str = ""  # its `type` of a server that it calls
    token: tuple[str, str] | None = None  # the key and value that make it send a token from a variable
    workspace: str = ""  # what it replaces with the open folder
    needs_cwd: bool = False  # it starts servers in an arbitrary directory
    loads_late: bool = False  # it hides tools from the model until the model searches for them
    rules: str = ""  # instructions of a project
    user_rules: str = ""
    rules_start: str = ""


_MCP_SERVERS = SharedFile(jsonc, "mcpServers", SERVER_NAME)

CLIENTS: Mapping[Name, ClientApp] = {
    "claude": ClientApp(
        title="Claude Code",
        form=_MCP_SERVERS,
        user=(".claude.json",),
        project=".mcp.json",
        moved_by="CLAUDE_CONFIG_DIR",
        is_locked=True,
        stdio="stdio",
        http="http",
        token=("headers", "${%s}"),
        loads_late=True,
        rules="CLAUDE.md",
        user_rules=".claude/CLAUDE.md",
    ),
    "codex": ClientApp(
        title="Codex",
        form=SharedFile(toml, "mcp_servers", SERVER_NAME),
        user=(".codex/config.toml",),
        project=".codex/config.toml",
        scope="user",
        moved_by="CODEX_HOME",
        token=("bearer_token_env_var", "%s"),
        rules="AGENTS.md",
        user_rules=".codex/AGENTS.md",
    ),
    "cline": ClientApp(
        title="Cline",
        form=_MCP_SERVERS,
        user=(
            ".cline/mcp.json",
            ".cline/data/settings/cline_mcp_settings.json",
            "{code}/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        ),
        scope="user",
        moved_by="CLINE_MCP_SETTINGS_PATH",
        stdio="stdio",
        http="streamableHttp",
        needs_cwd=True,
        rules=".clinerules",
    ),
    "continue": ClientApp(
        title="Continue",
        form=OwnYamlFile(SERVER_NAME),
        user=(".continue/mcpServers/pruner.yaml",),
        project=".continue/mcpServers/pruner.yaml",
        stdio="stdio",
        http="streamable-http",
        rules=".continue/rules/kimi-proxy.md",
        user_rules=".continue/rules/kimi-proxy.md",
    ),
    "cursor": ClientApp(
        title="Cursor",
        form=_MCP_SERVERS,
        user=(".cursor/mcp.json",),
        project=".cursor/mcp.json",
        stdio="stdio",
        http="http",
        token=("headers", "${env:%s}"),
        workspace="${workspaceFolder}",
        rules=".cursor/rules/kimi-proxy.mdc",
        rules_start="---\ndescription: Reading with the pruner tools\nalwaysApply: true\n---\n\n",
    ),
    "vscode": ClientApp(
        title="VS Code",
        form=SharedFile(jsonc, "servers", SERVER_NAME),
        user=("{code}/User/mcp.json",),
        project=".vscode/mcp.json",
        stdio="stdio",
        http="http",
        token=("headers", "${env:%s}"),
        workspace="${workspaceFolder}",
        rules="AGENTS.md",
    ),
}


@dataclass(frozen=True, slots=True)
class Connection:
    """What is to be connected: the pruner or the agent tools, started by the client or called at `url`."""

    command: tuple[str, ...]
    here: str
    tools: bool = False
    url: str = ""
    token: bool = False


def server_entry(client: ClientApp, connection: Connection) -> JsonObject:
    """Return our server as this client writes it."""
    late: JsonObject = {"alwaysLoad": True} if client.loads_late and connection.tools else {}
    if connection.url:
        return {**_type(client.http), "url": connection.url, **_token(client, connection), **late}
    program, *before = connection.command
    args = [*before, *_arguments(client, connection)]
    return {**_type(client.stdio), "command": program, "args": args, **late}


def _type(word: str) -> JsonObject:
    return {"type": word} if word else {}


def _arguments(client: ClientApp, connection: Connection) -> tuple[str, ...]:
    if not connection.tools:
        return ("pruner", "--stdio")
    cwd = client.workspace or (connection.here if client.needs_cwd else "")
    return ("tools", "--stdio", "--cwd", cwd) if cwd else ("tools", "--stdio")


def _token(client: ClientApp, connection: Connection) -> JsonObject:
    if not connection.token or client.token is None:
        return {}
    key, variable = client.token
    value = variable % TOKEN_VARIABLE
    return {key: {"Authorization": f"Bearer {value}"} if key == "headers" else value}


AGENT_SERVER_NAME = "kimi-proxy"
URL_VARIABLE = "KIMI_PROXY_MCP_URL"
AGENT_TOKEN_VARIABLE = "KIMI_PROXY_MCP_TOKEN"  # noqa: S105 - the name of a variable
CONFIG_VARIABLE = "KIMI_PROXY_MCP_CONFIG"
VARIABLES = (URL_VARIABLE, AGENT_TOKEN_VARIABLE, CONFIG_VARIABLE)

Agent = Literal["claude", "codex", "other"]

# Names of commands and of npm packages.
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


GUIDANCE = """\
## Reading with the `pruner` tools

`read`, `grep` and `bash` of the MCP server `pruner` take `context_focus_question` and then print only the lines that
matter for it. Prefer them for long files, logs and test runs.

1. Locate with `grep`, then `read` around the hit, or the whole file with a question.
2. Ask one full question that stands by itself and names what it is about: "How does Session.refresh decide that a token
   has expired?", not "token expiry".
3. `⟦PRUNÉ: prune_id=… lignes 40-90 …⟧` stands for lines that were left out, not lost. When you need them, call
   `recover_text` with that prune_id and those lines; don't read the file again.
4. Before an edit, see the exact lines. Never write a marker into a file.
5. When every line counts, ask no question: the output is whole.
"""
