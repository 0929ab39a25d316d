"""Connection of a client: the files that it reads, and our entry in each of them."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kimi_proxy.connect import hooks
from kimi_proxy.connect.client_files import ListItems, OwnTextFile, ServersFile, SettingsKeys
from kimi_proxy.connect.clients import (
    GUIDANCE,
    MEMORY_FILE,
    ClientApp,
    Connection,
    Scope,
    memory_entry,
    server_entry,
)
from kimi_proxy.connect.init import EmptyFileEdit, FileEdit, FilePart, PartEdit, RulesEdit, ServerEdit
from kimi_proxy.connect.proxied import BaseUrl, ProxyTarget
from kimi_proxy.core.errors import FileRefused
from kimi_proxy.features.agent_hooks import PATH
from kimi_proxy.features.editing import jsonc


@dataclass(frozen=True, slots=True)
class HookTarget:
    """The server's address for hooks, whether they also pass on files that were read, and the token's variable."""

    url: str
    with_reads: bool = False
    token_variable: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The connections of a client: an MCP server, with or without instructions; the proxy; its hooks."""

    server: Connection | None = None
    guidance: bool = False
    proxy: ProxyTarget | None = None
    hooks: HookTarget | None = None
    status_line: str = ""  # the command that prints it
    memory: bool = False  # a server for long-term memory


def edits(client: ClientApp, scope: Scope, dirs: "BaseDirs", wanted: Wanted) -> Iterator[FileEdit]:
    """Yield the changes that connect. Raise FileRefused if the client cannot be connected so."""
    if wanted.server is not None:
        for file, form in config_files(client, scope, dirs):
            yield ServerEdit(file, form, server_entry(client, wanted.server), _lock(client, scope, file))
        yield from _grant_edits(client, scope, dirs)
    if wanted.guidance:
        yield RulesEdit(rules_file(client, scope, dirs), GUIDANCE, client.rules_start)
    if wanted.proxy is not None:
        yield _proxy_edit(client, scope, dirs, wanted.proxy)
    if wanted.hooks is not None:
        yield _hook_edit(client, scope, dirs, wanted.hooks)
    if wanted.status_line:
        yield _status_edit(client, scope, dirs, wanted.status_line)
    if wanted.memory:
        yield from _memory_edits(client, scope, dirs)


def every_edit(client: ClientApp, scope: Scope, dirs: "BaseDirs") -> Iterator[FileEdit]:
    """Yield all that an earlier run may have changed in this scope."""
    yield from server_edits(client, scope, dirs)
    yield from proxy_edits(client, scope, dirs)
    yield from hook_edits(client, scope, dirs)
    yield from status_edits(client, scope, dirs)
    yield from memory_edits(client, scope, dirs)


def _grant_edits(client: ClientApp, scope: Scope, dirs: "BaseDirs") -> Iterator[PartEdit]:
    """Yield the edit that lets the client call `recover_text` without asking; none where it does not ask."""
    if client.grant is None:
        return
    if scope == "project" and client.grant.project:
        yield PartEdit(dirs.here / client.grant.project, client.grant.part)
        return
    moved = _moved_path(client, dirs, Path(client.grant.user).name)
    yield PartEdit(moved or dirs.home / client.grant.user, client.grant.part)


def server_edits(client: ClientApp, scope: Scope, dirs: "BaseDirs") -> Iterator[FileEdit]:
    """Yield the edits that may have been made for the MCP server, its permission and its guidance."""
    with suppress(FileRefused):  # this client has no such file
        for file, form in all_config_files(client, scope, dirs):
            yield ServerEdit(file, form, {}, _lock(client, scope, file))
    yield from _grant_edits(client, scope, dirs)
    with suppress(FileRefused):
        yield RulesEdit(rules_file(client, scope, dirs), "", client.rules_start)


def proxy_edits(client: ClientApp, scope: Scope, dirs: "BaseDirs") -> Iterator[FileEdit]:
    """Yield the edits that may have been made for the proxy."""
    with suppress(FileRefused):
        yield _proxy_edit(client, scope, dirs, ProxyTarget(""))


def _proxy_edit(client: ClientApp, scope: Scope, dirs: "BaseDirs", target: ProxyTarget) -> PartEdit:
    found = client.proxied
    if not isinstance(found, BaseUrl):
        raise FileRefused(
            f"{client.title} cannot be connected to the proxy by this command: {found.format(url=target.url)}"
        )
    if scope == "project" and not found.project:
        raise FileRefused(f"{client.title} has one address for all projects: use --user")
    if scope == "project":
        return PartEdit(dirs.here / found.project, found.keys(target))
    path = _moved_path(client, dirs, Path(found.user).name) or dirs.home / found.user
    return PartEdit(path, found.keys(target))


def hook_edits(client: ClientApp, scope: Scope, dirs: "BaseDirs") -> Iterator[FileEdit]:
    """Yield the edits that may have been made for hooks."""
    with suppress(FileRefused):
        yield _hook_edit(client, scope, dirs, HookTarget(""))


def _hook_edit(client: ClientApp, scope: Scope, dirs: "BaseDirs", target: HookTarget) -> PartEdit:
    if not client.hooks:
        raise FileRefused(f"{client.title} has no hook that can replace a tool result (docs/hooks.md)")

    part: FilePart
    match client.hooks.kind:
        case "claude":
            items = hooks.claude_items(target.url, target.with_reads, target.token_variable)
            part = ListItems(items, PATH)
        case "opencode":
            part = OwnTextFile(hooks.opencode_plugin(target.url), PATH)
        case "cline":
            part = OwnTextFile(hooks.cline_plugin(target.url), PATH)
    if scope == "project":
        return PartEdit(dirs.here / client.hooks.project, part)
    moved = None if client.hooks.is_own else _moved_path(client, dirs, Path(client.hooks.user).name)
    return PartEdit(moved or dirs.home / client.hooks.user, part)


def status_edits(client: ClientApp, scope: Scope, dirs: "BaseDirs") -> Iterator[FileEdit]:
    """Yield the edits that may have been made for the status line."""
    with suppress(FileRefused):
        yield _status_edit(client, scope, dirs, "")


def _status_edit(client: ClientApp, scope: Scope, dirs: "BaseDirs", command: str) -> PartEdit:
    # Of the clients whose settings we know, Claude Code alone runs a command for its status bar.
    if not client.hooks or client.hooks.kind != "claude":
        raise FileRefused(f"{client.title} cannot run a command for its status bar: --statusline is for Claude Code")
    part = SettingsKeys(jsonc, {("statusLine",): {"type": "command", "command": command}})
    if scope == "project":
        return PartEdit(dirs.here / client.hooks.project, part)
    moved = _moved_path(client, dirs, Path(client.hooks.user).name)
    return PartEdit(moved or dirs.home / client.hooks.user, part)


def memory_edits(client: ClientApp, scope: Scope, dirs: "BaseDirs") -> Iterator[FileEdit]:
    """Yield the edits that may have been made for the memory server."""
    if client.memory and scope == "user":
        file = dirs.home / MEMORY_FILE
        yield EmptyFileEdit(file)
        for path, form in client.memory:
            yield ServerEdit(dirs.home / path, form, memory_entry(str(file)))


def _memory_edits(client: ClientApp, scope: Scope, dirs: "BaseDirs") -> Iterator[FileEdit]:
    if not client.memory:
        raise FileRefused(f"{client.title} is not supported: --memory is for Continue")
    if scope == "project":
        raise FileRefused("the memory server stores its file in your home directory: use --user")
    # The server does not create the directory of its file.
    empty, *servers = memory_edits(client, scope, dirs)
    yield empty
    yield servers[-1] if servers[-1].path.exists() else servers[0]


def _lock(client: ClientApp, scope: Scope, file: Path) -> Path | None:
    return file.with_name(f"{file.name}.lock") if client.is_locked and scope == "user" else None


@dataclass(frozen=True, slots=True)
class BaseDirs:
    """The directories that paths are relative to: the project's, the user's, VS Code's."""

    here: Path
    home: Path
    code: Path
    env: Mapping[str, str]


def all_config_files(client: ClientApp, scope: Scope, dirs: BaseDirs) -> tuple[tuple[Path, ServersFile], ...]:
    """Return every file in which this client may look for its servers. Raise FileRefused if it has none."""
    if not client.user:
        raise FileRefused(f"{client.title} does not support MCP servers: use --proxy")
    if scope == "project":
        if not client.project:
            raise FileRefused(f"{client.title} has no MCP servers per project: use --user")
        return ((dirs.here / client.project, client.form),)
    moved = _moved_path(client, dirs, Path(client.user[0]).name)
    if moved:
        return ((moved, client.form),)
    files = tuple((dirs.home / path.replace("{code}", str(dirs.code)), client.form) for path in client.user)
    return files if client.instead is None else (*files, (dirs.home / client.instead[0], client.instead[1]))


def config_files(client: ClientApp, scope: Scope, dirs: BaseDirs) -> tuple[tuple[Path, ServersFile], ...]:
    """Return the first file and all others that exist, or the one that replaces them all."""
    files = all_config_files(client, scope, dirs)
    if scope == "user" and client.instead is not None and files[-1][0].exists():
        return files[-1:]
    first, *others = files
    return (first, *(each for each in others if each[0].exists()))


def rules_file(client: ClientApp, scope: Scope, dirs: BaseDirs) -> Path:
    """Return the file of an agent's instructions. Raise FileRefused if there is none in this scope."""
    if client.rules == ".clinerules":
        rules = dirs.here / client.rules
        return rules if rules.is_file() else rules / "kimi-proxy.md"
    if scope == "project":
        return dirs.here / client.rules
    if not client.user_rules:
        raise FileRefused(f"{client.title} stores user rules in its settings: use --project, or paste them there")
    return _moved_path(client, dirs, Path(client.user_rules).name) or dirs.home / client.user_rules


def own_command(scope: Scope, path: str | None = None) -> tuple[str, ...]:
    """Return the command that starts us; a project's file is shared, so it gets a path only if it needs one."""
    script = Path(sys.executable).with_name("kimi-proxy")
    found = shutil.which("kimi-proxy", path=path)
    if scope == "project" and found and Path(found).resolve() == script.resolve():
        return ("kimi-proxy",)
    return (str(script),) if script.exists() else (sys.executable, "-P", "-m", "kimi_proxy")


def _moved_path(client: ClientApp, dirs: BaseDirs, name: str) -> Path | None:
    """Return the file that a client's variable names, or `name` in the directory that it names."""
    moved = dirs.env.get(client.moved_by) if client.moved_by else None
    if not moved:
        return None
    return Path(moved) if Path(moved).suffix else Path(moved) / name
