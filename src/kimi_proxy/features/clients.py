"""What each client calls things: where it keeps its servers, how it writes one down, where its instructions are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kimi_proxy.core.types import JsonObject
from kimi_proxy.features.editing.servers import Format, JsonServers, TomlServers, YamlServers

Name = Literal["claude", "codex", "cline", "continue", "cursor", "vscode"]
Scope = Literal["project", "user"]

SERVER_NAME = "pruner"
TOKEN_VARIABLE = "KIMI_PROXY_TOKEN"  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True)
class Client:
    """Paths of `user` begin in the home directory, those of `project` where the command is run.

    Of several paths all are meant that exist, or else the first. `{code}` is VS Code's directory.
    """

    title: str
    form: Format
    user: tuple[str, ...]
    project: str = ""
    scope: Scope = "project"
    moved_by: str = ""  # a variable that names another directory, or another file, for `user`
    is_locked: bool = False  # by a directory beside the file, while the client writes it
    stdio: str = ""  # the word for a server that the client starts
    http: str = ""  # the word for a server that it calls
    token: tuple[str, str] | None = None  # how it is told to send a token that a variable holds
    workspace: str = ""  # what it replaces by the folder that is open
    needs_cwd: bool = False  # it starts servers just anywhere
    loads_late: bool = False  # it hides tools from the model until they are searched for
    rules: str = ""  # instructions of a project
    user_rules: str = ""
    rules_start: str = ""


_MCP_SERVERS = JsonServers("mcpServers", SERVER_NAME)
_CONTINUE = YamlServers("mcpServers", SERVER_NAME, "name: pruner\nversion: 0.0.1\nschema: v1\n")

CLIENTS: Mapping[Name, Client] = {
    "claude": Client(
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
    "codex": Client(
        title="Codex",
        form=TomlServers("mcp_servers", SERVER_NAME),
        user=(".codex/config.toml",),
        project=".codex/config.toml",
        scope="user",
        moved_by="CODEX_HOME",
        token=("bearer_token_env_var", "%s"),
        rules="AGENTS.md",
        user_rules=".codex/AGENTS.md",
    ),
    "cline": Client(
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
    "continue": Client(
        title="Continue",
        form=_CONTINUE,
        user=(".continue/mcpServers/pruner.yaml",),
        project=".continue/mcpServers/pruner.yaml",
        stdio="stdio",
        http="streamable-http",
        rules=".continue/rules/kimi-proxy.md",
        user_rules=".continue/rules/kimi-proxy.md",
    ),
    "cursor": Client(
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
    "vscode": Client(
        title="VS Code",
        form=JsonServers("servers", SERVER_NAME),
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
class Wish:
    """What the user wants connected: the pruner or the agent tools, started by the client or called at `url`."""

    command: tuple[str, ...]
    here: str
    tools: bool = False
    url: str = ""
    token: bool = False


def entry(client: Client, wish: Wish) -> JsonObject:
    """Our server as this client writes it down."""
    late: JsonObject = {"alwaysLoad": True} if client.loads_late and wish.tools else {}
    if wish.url:
        return {**_type(client.http), "url": wish.url, **_token(client, wish), **late}
    program, *before = wish.command
    args = [*before, *_arguments(client, wish)]
    return {**_type(client.stdio), "command": program, "args": args, **late}


def _type(word: str) -> JsonObject:
    return {"type": word} if word else {}


def _arguments(client: Client, wish: Wish) -> tuple[str, ...]:
    if not wish.tools:
        return ("pruner", "--stdio")
    cwd = client.workspace or (wish.here if client.needs_cwd else "")
    return ("tools", "--stdio", "--cwd", cwd) if cwd else ("tools", "--stdio")


def _token(client: Client, wish: Wish) -> JsonObject:
    if not wish.token or client.token is None:
        return {}
    key, variable = client.token
    named = variable % TOKEN_VARIABLE
    return {key: {"Authorization": f"Bearer {named}"} if key == "headers" else named}
