"""Differences between clients: the file and format of their MCP servers, and the file of their instructions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kimi_proxy.connect import proxied
from kimi_proxy.connect.client_files import ListValue, OwnTextFile, ServersFile, SharedFile
from kimi_proxy.connect.proxied import BaseUrl
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.editing import jsonc, toml
from kimi_proxy.features.editing.yaml import OwnYamlFile, YamlList

Name = Literal[
    "claude",
    "codex",
    "cline",
    "continue",
    "cursor",
    "vscode",
    "opencode",
    "kimi",
    "qwen",
    "gemini",
    "copilot",
    "kilo",
    "pi",
]
Scope = Literal["project", "user"]

SERVER_NAME = "pruner"
RECOVER_TEXT = "recover_text"
MEMORY_NAME = "memory"
MEMORY_PACKAGE = "@modelcontextprotocol/server-memory"
MEMORY_FILE = ".kimi-proxy/mcp-memory.json"
MEMORY_VARIABLE = "MEMORY_FILE_PATH"
TOKEN_VARIABLE = "KIMI_PROXY_TOKEN"  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True)
class HookFiles:
    """The file with a client's hooks: the user's, a project's; `is_own` if it holds nothing else."""

    kind: Literal["claude", "opencode", "cline"]
    user: str
    project: str
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class GrantFile:
    """The permission of `recover_text`, alone of our tools: the user's file, a project's, and what is written there.

    Without it, the client asks before the model reads cut text back, and refuses where it cannot ask.
    """

    user: str
    project: str  # empty if only the user's file may allow something
    part: ListValue | OwnTextFile


@dataclass(frozen=True, slots=True)
class Asking:
    """Tools of ours that a client asks about, and the command with which it cannot ask and refuses them."""

    tools: Literal["bash", "read, grep and bash"]
    headless: str


@dataclass(frozen=True, slots=True)
class ClientApp:
    """Paths of `user` are relative to the home directory, those of `project` to the current one.

    Of several paths the first is changed, and all others that exist. `{code}` is VS Code's directory.
    """

    title: str
    form: ServersFile
    user: tuple[str, ...]
    project: str = ""
    scope: Scope = "project"
    moved_by: str = ""  # a variable with another directory, or another file, for `user`
    is_locked: bool = False  # the client takes a lock directory next to the file while it writes
    stdio: str = ""  # its `type` of a server that it starts
    http: str = ""  # its `type` of a server that it calls
    http_key: str = "url"  # its key for the address of such a server
    is_list: bool = False  # it writes a command and its arguments as one list
    token: tuple[str, str] | None = None  # the key and value that make it send a token from a variable
    workspace: str = ""  # the placeholder that it replaces with the open folder
    needs_cwd: bool = False  # it starts servers in an arbitrary directory
    eager: str = ""  # its key for a server whose tools are not hidden from the model until the model searches for them
    timeout_s: int = 0  # how long it is to wait for a server, where its own limit is too short for a busy machine
    rules: str = ""  # instructions of a project
    user_rules: str = ""
    rules_start: str = ""
    instead: tuple[str, ServersFile] | None = None  # the user's file that is changed in place of `user`, if it exists
    memory: tuple[tuple[str, ServersFile], ...] = ()  # the place for a memory server: the last file, if it exists
    by_hand: str = ""  # what else the user has to do for a part of this client
    project_step: str = ""  # what the user has to do before the client shows a project's server to the model
    user_step: str = ""  # and before it shows the user's
    asking: Asking | None = None  # None: it asks about none of our tools
    hooks: HookFiles | None = None  # where its hooks are that may replace outputs
    grant: GrantFile | None = None  # None: it calls read-only tools without asking
    proxied: BaseUrl | str = ""  # how to make it call the proxy, or instructions for the user


_MCP_SERVERS = SharedFile(jsonc, "mcpServers", SERVER_NAME)
ALLOWED = ListValue(("permissions", "allow"), f"mcp__{SERVER_NAME}__{RECOVER_TEXT}")
# It shows the model no tool that it would have to ask about where it cannot ask.
GEMINI_RULE = OwnTextFile(
    "# kimi-proxy: lets the model read cut text back without asking, and nothing else.\n"
    f'[[rule]]\nmcpName = "{SERVER_NAME}"\ntoolName = "{RECOVER_TEXT}"\ndecision = "allow"\npriority = 100\n',
    "kimi-proxy",
)
# No rule of its settings kept it from asking.
_APPROVE_KIMI = "choose 'Approve for this session' when Kimi Code asks about recover_text in a terminal"
_TRUST_GEMINI = "trust this folder when Gemini CLI asks: it starts MCP servers in trusted folders only"

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
        eager="alwaysLoad",
        rules="CLAUDE.md",
        user_rules=".claude/CLAUDE.md",
        hooks=HookFiles("claude", ".claude/settings.json", ".claude/settings.local.json"),
        # What a shared file of a project allows, Claude Code ignores until its user trusts the project.
        grant=GrantFile(
            ".claude/settings.json",
            ".claude/settings.local.json",
            ALLOWED,
        ),
        asking=Asking("read, grep and bash", "claude -p"),
        proxied=proxied.CLAUDE,
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
        asking=Asking("bash", "codex exec"),
        proxied=proxied.CODEX,
    ),
    "cline": ClientApp(
        title="Cline",
        form=_MCP_SERVERS,
        user=(
            ".cline/data/settings/cline_mcp_settings.json",  # of its command line
            ".cline/mcp.json",
            "{code}/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        ),
        scope="user",
        moved_by="CLINE_MCP_SETTINGS_PATH",
        stdio="stdio",
        http="streamableHttp",
        needs_cwd=True,
        timeout_s=60,
        rules=".clinerules",
        hooks=HookFiles("cline", ".cline/plugins/kimi-proxy.js", ".cline/plugins/kimi-proxy.js", is_own=True),
        proxied="choose the provider 'OpenAI Compatible' in its settings, with the base URL {url}/v1",
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
        scope="user",
        instead=(".continue/config.yaml", YamlList("mcpServers", SERVER_NAME)),
        memory=(
            (".continue/mcpServers/memory.yaml", OwnYamlFile(MEMORY_NAME, MEMORY_VARIABLE)),
            (".continue/config.yaml", YamlList("mcpServers", MEMORY_NAME)),
        ),
        by_hand="its command line `cn` reads ~/.continue/config.yaml alone: use --user where that file exists. "
        "`kimi-proxy init continue --memory` adds a server for long-term memory",
        proxied="write `apiBase: {url}/v1` below each model in ~/.continue/config.yaml",
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
        proxied="its requests are sent by Cursor's own servers, which cannot reach this machine",
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
        proxied="add a model under 'Manage Models', 'OpenAI Compatible', with the base URL {url}/v1",
    ),
    "opencode": ClientApp(
        title="OpenCode",
        form=SharedFile(jsonc, "mcp", SERVER_NAME),
        user=(".config/opencode/opencode.json",),
        project="opencode.json",
        is_list=True,
        stdio="local",
        http="remote",
        token=("headers", "{env:%s}"),
        rules="AGENTS.md",
        user_rules=".config/opencode/AGENTS.md",
        hooks=HookFiles(
            "opencode", ".config/opencode/plugin/kimi-proxy.js", ".opencode/plugin/kimi-proxy.js", is_own=True
        ),
        proxied=proxied.OPENCODE,
    ),
    "kimi": ClientApp(
        title="Kimi Code",
        form=_MCP_SERVERS,
        user=(".kimi-code/mcp.json",),
        project=".kimi-code/mcp.json",
        moved_by="KIMI_CODE_HOME",
        token=("bearerTokenEnvVar", "%s"),
        rules="AGENTS.md",
        user_rules=".kimi-code/AGENTS.md",
        project_step=f"start `kimi` here and choose 'Trust this folder', or it skips the server; {_APPROVE_KIMI}",
        user_step=_APPROVE_KIMI,
        proxied='write `base_url = "{url}/v1"` below [providers.…] in ~/.kimi-code/config.toml',
    ),
    "qwen": ClientApp(
        title="Qwen Code",
        form=_MCP_SERVERS,
        user=(".qwen/settings.json",),
        project=".qwen/settings.json",
        http_key="httpUrl",
        token=("headers", "${%s}"),
        rules="QWEN.md",
        user_rules=".qwen/QWEN.md",
        project_step="run `qwen mcp approve pruner` in this folder: until then Qwen Code hides the server",
        grant=GrantFile(".qwen/settings.json", ".qwen/settings.json", ALLOWED),
        asking=Asking("read, grep and bash", "qwen -p"),
        eager="alwaysLoadTools",
        proxied=proxied.QWEN,
    ),
    "gemini": ClientApp(
        title="Gemini CLI",
        form=_MCP_SERVERS,
        user=(".gemini/settings.json",),
        project=".gemini/settings.json",
        http_key="httpUrl",
        token=("headers", "${%s}"),
        rules="GEMINI.md",
        user_rules=".gemini/GEMINI.md",
        project_step=_TRUST_GEMINI,
        user_step=_TRUST_GEMINI,
        grant=GrantFile(".gemini/policies/kimi-proxy.toml", "", GEMINI_RULE),
        asking=Asking("read, grep and bash", "gemini -p"),
        proxied="set GOOGLE_GEMINI_BASE_URL={url} in ~/.gemini/.env; with a Google login CODE_ASSIST_ENDPOINT={url}",
    ),
    "copilot": ClientApp(
        title="Copilot CLI",
        form=_MCP_SERVERS,
        user=(".copilot/mcp-config.json",),
        project=".github/mcp.json",
        scope="user",
        stdio="local",
        http="http",
        token=("headers", "${%s}"),
        rules="AGENTS.md",
        user_rules=".copilot/copilot-instructions.md",
        asking=Asking("bash", "copilot -p"),
        proxied="start it by `kimi-proxy run --proxy copilot`, with the name of a model in COPILOT_MODEL",
    ),
    "kilo": ClientApp(
        title="Kilo",
        form=SharedFile(jsonc, "mcp", SERVER_NAME),
        user=(".config/kilo/kilo.json",),
        project="kilo.json",
        is_list=True,
        stdio="local",
        http="remote",
        token=("headers", "{env:%s}"),
        rules="AGENTS.md",
        user_rules=".config/kilo/AGENTS.md",
        proxied=proxied.KILO,
    ),
    "pi": ClientApp(title="pi", form=_MCP_SERVERS, user=(), scope="user", rules="AGENTS.md", proxied=proxied.PI),
}


@dataclass(frozen=True, slots=True)
class Connection:
    """The server to connect: the pruner or the agent tools, started by the client or called at `url`."""

    command: tuple[str, ...]
    here: str
    tools: bool = False
    url: str = ""
    token: bool = False
    for_markers: bool = False  # the model meets markers that it did not ask for, so it has to know recover_text


def server_entry(client: ClientApp, connection: Connection) -> JsonObject:
    """Return our server as this client writes it."""
    more: JsonObject = {"timeout": client.timeout_s} if client.timeout_s else {}
    if client.eager and (connection.tools or connection.for_markers):
        more |= {client.eager: True}
    if connection.url:
        return {**_type(client.http), client.http_key: connection.url, **_token(client, connection), **more}
    words = [*connection.command, *_arguments(client, connection)]
    program, *args = words
    command: JsonObject = {"command": [program, *args]} if client.is_list else {"command": program, "args": [*args]}
    return {**_type(client.stdio), **command, **more}


def memory_entry(file: str) -> JsonObject:
    """Return the reference server for long-term memory, which keeps its graph in `file`."""
    return {"type": "stdio", "command": "npx", "args": ["-y", MEMORY_PACKAGE], "env": {MEMORY_VARIABLE: file}}


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

1. Locate with `grep`, then `read` around the hit, or the whole file with a question if it is long. A question for a
   short output costs more than it saves.
2. Ask one full question that stands by itself and names what it is about: "How does Session.refresh decide that a token
   has expired?", not "token expiry".
3. `⟦PRUNÉ: prune_id=… lignes 40-90 …⟧` stands for lines that were left out, not lost. When you need them, call
   `recover_text` with that prune_id and those lines; don't read the file again.
4. Before an edit, see the exact lines. Never write a marker into a file.
5. When every line counts, ask no question: the output is whole.
"""
