"""`kimi-proxy init`: show a change to a client's configuration, ask, make it, undo it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from kimi_proxy.cli.console import home, load_of_server, proxy_address, remark, write
from kimi_proxy.core.errors import ConfigError

if TYPE_CHECKING:
    from kimi_proxy.connect.clients import ClientApp, Name, Scope
    from kimi_proxy.connect.init import EditLog, FileChange
    from kimi_proxy.connect.places import BaseDirs, Wanted
    from kimi_proxy.connect.proxied import ProxyTarget

    Part = Literal["", "proxy", "hooks", "statusline", "memory"]

EXIT_DECLINED = 1
CLIENT_NAMES = (
    *("claude", "codex", "cline", "continue", "cursor", "vscode", "opencode", "kimi", "qwen", "gemini"),
    *("copilot", "kilo", "pi"),
)


@click.command()
@click.argument(
    "client",
    type=click.Choice(CLIENT_NAMES),
    metavar="CLIENT",
    help=f"{', '.join(CLIENT_NAMES[:-1])} or {CLIENT_NAMES[-1]}.",
)
@click.option(
    "--project/--user", default=None, help="For this folder, or for all your projects.  [default: see docs/cli.md]"
)
@click.option("--proxy", is_flag=True, help="Send the agent's requests through the proxy.")
@click.option("--hooks", is_flag=True, help="Shorten the output of the agent's own tools before the model reads it.")
@click.option("--statusline", is_flag=True, help="Show context window, savings and cache in Claude Code's status bar.")
@click.option("--memory", is_flag=True, help="Also add a server for long-term memory (Continue).")
@click.option("--tools", is_flag=True, help="Offer read, grep and bash with a question, instead of prune_text.")
@click.option("--http", is_flag=True, help="Connect to the server of `kimi-proxy start` instead of starting one.")
@click.option("--with-guidance", is_flag=True, help="Add instructions on the tools to the agent's instruction file.")
@click.option("--undo", is_flag=True, help="Revert the changes of earlier runs.")
@click.option("--dry-run", is_flag=True, help="Show the change without making it.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def init(
    client: Name,
    project: bool | None,
    proxy: bool,
    hooks: bool,
    statusline: bool,
    memory: bool,
    tools: bool,
    http: bool,
    with_guidance: bool,
    undo: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Connect CLIENT to kimi-proxy with a small change to its configuration.

    Shows the change and asks first. The rest of the file stays as it is, and --undo restores the original.

    Example: kimi-proxy init claude --proxy
    """
    from kimi_proxy.connect.clients import CLIENTS
    from kimi_proxy.connect.init import EditLog, apply, in_order_of_undo

    if with_guidance and not (tools or undo):
        raise click.BadParameter("--with-guidance is about read, grep and bash: add --tools")
    if (proxy or hooks) and (tools or with_guidance or (proxy and (http or hooks))):
        raise click.BadParameter("--proxy and --hooks cannot be combined with these options: run init once for each")
    if statusline and (proxy or hooks or tools or http or with_guidance):
        raise click.BadParameter("--statusline cannot be combined with these options: run init once for each")
    log = EditLog(home())
    known = CLIENTS[client]
    if memory and (proxy or hooks or statusline):
        raise click.BadParameter("--memory cannot be combined with these options: run init once for each")
    scopes = _scopes(known, project, proxy or hooks or statusline, undo)
    if undo:
        part: Part = (
            "proxy" if proxy else "hooks" if hooks else "statusline" if statusline else "memory" if memory else ""
        )
        changes = _undoing(known, scopes, log, part)
    else:
        if proxy:
            wanted = _proxy_edits(known)
        elif statusline:
            wanted = _status_line_edits(scopes[0])
        else:
            wanted = _server_edits(known, scopes[0], tools, http or hooks, with_guidance, hooks)
            wanted = replace(wanted, memory=memory)
        changes = _doing(known, scopes[0], log, wanted)
    is_needed = _show_changes(changes, undo)
    if dry_run:
        return
    if is_needed:
        _ask(yes)
    for change in in_order_of_undo(changes) if undo else changes:
        apply(change, log, is_private=scopes[0] == "user")
    if is_needed:
        _confirm(known, undo, changes)
    if is_needed and not undo and wanted.server is not None:
        _name_steps(known, scopes[0], wanted.server.tools)


@click.command()
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def uninstall(dry_run: bool, yes: bool) -> None:
    """Revert the changes of every `init`, in all projects, and list what is left.

    Shows the changes and asks first. Originals, settings and the program itself stay; the end of the output says how
    to remove them.
    """
    from kimi_proxy.connect.init import EditLog, apply, in_order_of_undo

    log = EditLog(home())
    changes = _undoing_everything(log)
    is_needed = _show_changes(changes, undo=True)
    if not dry_run:
        if is_needed:
            _ask(yes)
        for change in in_order_of_undo(changes):
            apply(change, log)
        for path in log.paths():
            remark(f"left: our entry in {path}; remove it by hand")
    settings = load_of_server(here=None)
    remark(f"left: originals and state in {settings.config.home}; delete the folder to remove them")
    if settings.file is not None:
        remark(f"left: your settings in {settings.file}")
    remark("left: the program; remove it the way you installed it, for example with pip uninstall kimi-proxy")


def _undoing_everything(log: EditLog) -> list[FileChange]:
    """Return the edits that revert every change in the log, for all clients and projects."""
    from kimi_proxy.connect.clients import CLIENTS

    # A client's files are at most two folders below their project.
    folders = dict.fromkeys([Path.cwd(), *(parent for path in log.paths() for parent in path.parents[:3])])
    found: dict[Path, FileChange] = {}
    for folder in folders:
        for client in CLIENTS.values():
            for change in _undoing(client, ("project", "user"), log, folder=folder):
                found.setdefault(change.path, change)
    return list(found.values())


def _scopes(client: ClientApp, project: bool | None, is_personal: bool, undo: bool) -> tuple[Scope, ...]:
    """Return the scopes to edit; undo covers both unless one is given."""
    if project is not None:
        return ("project" if project else "user",)
    if undo:
        return ("project", "user")
    # The proxy's address is specific to this machine, and a project's file may be shared.
    return ("user" if is_personal else client.scope,)


def _proxy_edits(client: ClientApp) -> Wanted:
    from kimi_proxy.connect.places import Wanted

    return Wanted(proxy=_proxy_target(client))


def _status_line_edits(scope: Scope) -> Wanted:
    import shlex

    from kimi_proxy.connect.places import Wanted, own_command

    return Wanted(status_line=shlex.join((*own_command(scope), "statusline")))


def _server_edits(client: ClientApp, scope: Scope, tools: bool, http: bool, guidance: bool, hooks: bool) -> Wanted:
    """Return an MCP server, and with `hooks` also the hooks; the server restores their cuts."""
    from kimi_proxy.connect.clients import TOKEN_VARIABLE, Connection
    from kimi_proxy.connect.places import HookTarget, Wanted, own_command

    url, token = _address() if http else ("", False)
    if token and client.token is None:
        remark(f"{client.title} cannot read a token from the environment: add the header yourself (docs/clients.md)")
    server = Connection(own_command(scope), str(Path.cwd()), tools, url, token, for_markers=hooks)
    if not hooks:
        return Wanted(server, guidance)
    with_reads = load_of_server(here=None).config.sanitizer.policy == "deep"
    return Wanted(server, hooks=HookTarget(_proxy_url(), with_reads, TOKEN_VARIABLE if token else ""))


def _doing(client: ClientApp, scope: Scope, log: EditLog, wanted: Wanted) -> list[FileChange]:
    from kimi_proxy.connect.init import combine, plan_edit
    from kimi_proxy.connect.places import edits, every_edit
    from kimi_proxy.proxy.private_files import resolve

    dirs = _base_dirs()
    known = {resolve(edit.path): edit for edit in combine(every_edit(client, scope, dirs))}
    return [plan_edit(edit, log, known.get(resolve(edit.path))) for edit in combine(edits(client, scope, dirs, wanted))]


def _undoing(
    client: ClientApp, scopes: tuple[Scope, ...], log: EditLog, part: Part = "", folder: Path | None = None
) -> list[FileChange]:
    """Return the edits that revert all our changes, or only one part of them."""
    from kimi_proxy.connect.init import combine, plan_undo
    from kimi_proxy.connect.places import every_edit, hook_edits, memory_edits, proxy_edits, status_edits
    from kimi_proxy.proxy.private_files import resolve

    dirs = _base_dirs(folder)
    every = combine(edit for scope in scopes for edit in every_edit(client, scope, dirs))
    known = {resolve(edit.path): edit for edit in every}
    parts = {"proxy": proxy_edits, "hooks": hook_edits, "statusline": status_edits, "memory": memory_edits}
    undone = combine(edit for scope in scopes for edit in parts[part](client, scope, dirs)) if part else every
    plans = (plan_undo(edit, log, known.get(resolve(edit.path))) for edit in undone)
    return [plan for plan in plans if plan is not None]


def _proxy_target(client: ClientApp) -> ProxyTarget:
    """Return the proxy's address and the APIs of its providers; print a remark if the needed one is missing."""
    from kimi_proxy.connect.proxied import CLAUDE, BaseUrl, explain_auto_mode, proxy_target

    config = load_of_server(here=None).config
    target = proxy_target(_proxy_url(), config, os.environ)
    api = client.proxied.apis[0] if isinstance(client.proxied, BaseUrl) else ""
    if api in config.off_lines and api not in target.apis:
        remark(f"the provider {api} is turned off: set enabled = true in [providers.{api}] of {config.file}")
    if client.proxied is CLAUDE and (auto_mode := explain_auto_mode(target.answering)):
        remark(auto_mode)
    if config.token is not None:
        remark("the proxy requires its token: use it as the client's API key (docs/clients.md)")
    return target


def _proxy_url() -> str:
    from kimi_proxy.proxy.local_server import local_url

    config = load_of_server(here=None).config
    where = config.proxy
    if where.port == 0:
        raise ConfigError("setting proxy.port: 0 means a different port at every start; choose a fixed one")
    return proxy_address(config) or local_url(where.host, where.port)


def _base_dirs(folder: Path | None = None) -> BaseDirs:
    from platformdirs import user_config_path

    from kimi_proxy.connect.places import BaseDirs

    code = user_config_path("Code", appauthor=False, roaming=True)
    return BaseDirs(folder or Path.cwd(), Path.home(), code, os.environ)


def _address() -> tuple[str, bool]:
    """Return the configured URL of the server, and whether it requires a token."""
    from kimi_proxy.proxy.local_server import local_url

    config = load_of_server(here=None).config
    where = config.mcp_pruner
    if where.port == 0:
        raise ConfigError("setting mcp_pruner.port: 0 means a different port at every start; choose a fixed one")
    return f"{local_url(where.host, where.port)}/mcp", config.token is not None


def _show_changes(changes: list[FileChange], undo: bool) -> bool:
    """Show what will change. Return False if nothing will."""
    needed = [change for change in changes if change.is_needed]
    for change in needed:
        write(change.diff())
    if not needed:
        remark("there is nothing to undo" if undo else "already set up: nothing to change")
    return bool(needed)


def _ask(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.BadParameter("cannot ask for confirmation because standard input is not a terminal: add --yes")
    if not click.confirm("Make this change?", err=True):
        raise click.exceptions.Exit(EXIT_DECLINED)


def _name_steps(client: ClientApp, scope: Scope, with_tools: bool) -> None:
    """Say what keeps the model from our tools until the user acts."""
    if step := client.project_step if scope == "project" else client.user_step:
        remark(f"one step is left: {step}")
    if with_tools and (asking := client.asking):
        them = "it" if asking.tools == "bash" else "them"
        remark(f"{client.title} asks before {asking.tools}; `{asking.headless}` cannot ask, and refuses {them}")


def _confirm(client: ClientApp, undo: bool, changes: list[FileChange]) -> None:
    remark(f"done; restart {client.title} to apply this" + ("" if undo else "; --undo reverts it"))
    is_instead = client.instead is not None and any(str(each.path).endswith(client.instead[0]) for each in changes)
    if client.by_hand and not undo and not is_instead:
        remark(client.by_hand)
