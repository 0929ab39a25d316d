"""The tokens of each of a client's tool descriptions, the tools that are never called, and how to disable them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypedDict

from kimi_proxy.core.chat import Request

_MCP = "mcp__"  # as Claude Code and Codex name the tools of a server: mcp__SERVER__TOOL
CLAUDE_CODE, CODEX, OPENCODE, KIMI_CLI = "Claude Code", "Codex", "opencode", "Kimi CLI"

# Tools by which a client is known; all of a set have to be there.
_KNOWN_BY: tuple[tuple[str, frozenset[str]], ...] = (
    (CLAUDE_CODE, frozenset({"Bash", "Read"})),
    (KIMI_CLI, frozenset({"Shell", "ReadFile"})),
    (OPENCODE, frozenset({"bash", "todowrite"})),
    (CODEX, frozenset({"apply_patch"})),
    (CODEX, frozenset({"update_plan"})),
)


# What agents do most of their work with, however they spell it: without dashes, underscores and capitals.
_CORE = frozenset(
    """
    agent applydiff applypatch askfollowupquestion askuserquestion attemptcompletion bash bashoutput container.exec
    createfile delete edit editfile exec execcommand executecommand exitplanmode fileedit fileread filewrite
    findtools glob grep insert killshell list listdir listdirectory listfiles localshell ls multiedit multiread
    notebookedit patch plan question read readfile readmanyfiles replace replaceinfile runcommand runshellcommand
    runterminalcmd search searchfilecontent searchfiles searchreplace shell shellcommand skill strreplace
    strreplacebasededittool strreplaceeditor strreplacefile task taskoutput think todo todoread todowrite updateplan
    updatetodolist usetool viewimage webfetch websearch write writefile writestdin writetodos writetofile
    """.split()
)
# Ours, by way of MCP: they come with a prefix of the client's.
_OURS = (
    *("recover_text", "prune_text", "search_tools", "describe_tool", "call_read_tool", "call_write_tool"),
    *("pruner__read", "pruner__grep", "pruner__bash", "pruner_read", "pruner_grep", "pruner_bash"),
)


@dataclass(frozen=True, slots=True)
class ToolWeight:
    name: str
    server: str  # of MCP; "" for one of the client's own
    tokens: float  # in every request
    calls: int


def server_of(name: str) -> str:
    """Return the MCP server that a tool is named after; "" if its name does not say so."""
    server, found, _ = name.removeprefix(_MCP).partition("__")
    return server if found and name.startswith(_MCP) else ""


def client_of(names: Iterable[str]) -> str:
    """Return the client that offers tools of these names; "" if it is not known by them."""
    offered = frozenset(names)
    return next((client for client, known_by in _KNOWN_BY if known_by <= offered), "")


def tool_weights(request: Request, count: Callable[[str], int], own: Collection[str] = ()) -> list[ToolWeight]:
    """Return the tools that a request describes, the heaviest first, with their calls in it; `own` are not counted."""
    parts = (part for message in request.messages for part in message.parts)
    calls = Counter(part.name for part in parts if part.kind == "tool_call")
    described = request.format.tools(request.json)
    texts = {name: bytes(raw).decode("utf-8", "replace") for name, raw in described if name and name not in own}
    return weigh_tools({name: count(text) for name, text in texts.items()}, calls)


def weigh_tools(tokens: Mapping[str, float], calls: Mapping[str, int]) -> list[ToolWeight]:
    made = [ToolWeight(name, server_of(name), size, calls.get(name, 0)) for name, size in tokens.items()]
    return sorted(made, key=lambda one: (-one.tokens, one.name))


@dataclass(frozen=True, slots=True)
class DescribedTools:
    """One tool of the client's own, or all of an MCP server."""

    name: str
    is_server: bool
    tools: int
    tokens: float
    calls: int
    switch_off: str  # the line that does it; "" if none is known
    names: tuple[str, ...] = ()

    @property
    def pattern(self) -> str:
        """Return what stands for it in the list of tools to leave out of requests."""
        return f"{_MCP}{self.name}__*" if self.is_server else self.name


def by_server(weights: Iterable[ToolWeight], client: str) -> list[DescribedTools]:
    """Return the client's own tools one by one and those of each MCP server together, the heaviest first."""
    servers: defaultdict[str, list[ToolWeight]] = defaultdict(list)
    made: list[DescribedTools] = []
    for one in weights:
        if one.server:
            servers[one.server].append(one)
        else:
            off = _without_tool(one.name, client)
            made.append(DescribedTools(one.name, False, 1, one.tokens, one.calls, off, (one.name,)))
    for server, found in servers.items():
        tokens = sum(one.tokens for one in found)
        calls = sum(one.calls for one in found)
        names = tuple(one.name for one in found)
        made.append(DescribedTools(server, True, len(found), tokens, calls, _without_server(server, client), names))
    return sorted(made, key=lambda one: (-one.tokens, one.name))


def _without_server(server: str, client: str) -> str:
    if client == CLAUDE_CODE:
        return f"claude mcp remove {server}"
    if client == CODEX:
        return f"[mcp_servers.{server}] enabled = false  # in ~/.codex/config.toml"
    if client == KIMI_CLI:
        return f"kimi mcp remove {server}"
    return f'take "{server}" out of the MCP servers in the settings of your client'


def _without_tool(name: str, client: str) -> str:
    if client == CLAUDE_CODE:
        return f'"permissions": {{"deny": ["{name}"]}}  // in .claude/settings.json'
    if client == OPENCODE:
        return f'"tools": {{"{name}": false}}  // in opencode.json'
    return ""


class DescribedToolsBody(TypedDict):
    name: str
    is_server: bool
    tools: int
    tokens: int
    calls: int
    switch_off: str
    pattern: str  # for `tools` of [deferred_tools]


def to_json(one: DescribedTools) -> DescribedToolsBody:
    return {
        "name": one.name,
        "is_server": one.is_server,
        "tools": one.tools,
        "tokens": round(one.tokens),
        "calls": one.calls,
        "switch_off": one.switch_off,
        "pattern": one.pattern,
    }


def is_core(name: str) -> bool:
    """Return whether an agent needs a tool all the time, or it is one of ours."""
    return name.translate({ord("_"): None, ord("-"): None}).lower() in _CORE or name.endswith(_OURS)
