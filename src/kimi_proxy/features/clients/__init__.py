"""What differs by client: where it lists its MCP servers, how it writes one, where its instructions are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
