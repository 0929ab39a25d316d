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
    from kimi_proxy.features.clients import ClientApp, Name, Scope
    from kimi_proxy.features.clients.proxied import ProxyTarget
    from kimi_proxy.services.clients.init import EditLog, FileChange
    from kimi_proxy.services.clients.places import BaseDirs, Wanted

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
    "--project/--user", default=None, help="For this folder, or for you everywhere.  [default: see docs/cli.md]"
)
@click.option("--proxy", is_flag=True, help="Send the agent's requests to its model through the proxy.")
@click.option("--hooks", is_flag=True, help="Cut what the agent's own tools print, before the model reads it.")
@click.option("--statusline", is_flag=True, help="Show window, savings and cache in Claude Code's status bar.")
@click.option("--memory", is_flag=True, help="Add a server for long-term memory too (Continue).")
@click.option("--tools", is_flag=True, help="Offer read, grep and bash with a question, in place of prune_text.")
@click.option("--http", is_flag=True, help="Call the server that `kimi-proxy start` runs, instead of starting one.")
@click.option("--with-guidance", is_flag=True, help="Tell the agent in its instructions how to use the tools.")
@click.option("--undo", is_flag=True, help="Take back what an earlier run changed.")
@click.option("--dry-run", is_flag=True, help="Show the change and make none.")
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
    """Connect CLIENT to kimi-proxy by a small change to its configuration.

    The change is shown first. The rest of the file stays as it is, and --undo brings back what was there before.

    Example: kimi-proxy init claude --proxy
    """
    from kimi_proxy.features.clients import CLIENTS
    from kimi_proxy.services.clients.init import EditLog, apply

    if with_guidance and not (tools or undo):
        raise click.BadParameter("the guidance is about read, grep and bash: add --tools")
    if (proxy or hooks) and (tools or with_guidance or (proxy and (http or hooks))):
        raise click.BadParameter("--proxy and --hooks need runs of their own")
    if statusline and (proxy or hooks or tools or http or with_guidance):
        raise click.BadParameter("--statusline needs a run of its own")
    log, known = EditLog(home()), CLIENTS[client]
    if memory and (proxy or hooks or statusline):
        raise click.BadParameter("--memory needs a run of its own")
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
    # Undone in reverse order, a directory that was created for two files is empty at the end.
    for change in reversed(changes) if undo else changes:
        apply(change, log, is_private=scopes[0] == "user")
    if is_needed:
        _confirm(known, undo, changes)


@click.command()
@click.option("--dry-run", is_flag=True, help="Show the changes and make none.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def uninstall(dry_run: bool, yes: bool) -> None:
    """Take back what every `init` changed, in all projects, and say what is left.

    The changes are shown first. Originals, settings and the program itself stay: how to remove them is said at the end.
    """
    from kimi_proxy.services.clients.init import EditLog, apply

    log = EditLog(home())
    changes = _undoing_everything(log)
    is_needed = _show_changes(changes, undo=True)
    if not dry_run:
        if is_needed:
            _ask(yes)
        for change in reversed(changes):
            apply(change, log)
        for path in log.paths():
            remark(f"what is left: our entry in {path}: take it out by hand")
    settings = load_of_server(here=None)
    remark(f"what is left: originals and state in {settings.config.home}: delete it to lose them")
    if settings.file is not None:
        remark(f"what is left: your settings in {settings.file}")
    remark("what is left: the program: remove it as you installed it, such as with pip uninstall kimi-proxy")


def _undoing_everything(log: EditLog) -> list[FileChange]:
    """Return what takes back each change that the log knows, whichever client and project it was for."""
    from kimi_proxy.features.clients import CLIENTS

    # A client's files of a project are at most in a folder of a folder of it.
    folders = dict.fromkeys([Path.cwd(), *(parent for path in log.paths() for parent in path.parents[:3])])
    found: dict[Path, FileChange] = {}
    for folder in folders:
        for client in CLIENTS.values():
            for change in _undoing(client, ("project", "user"), log, folder=folder):
                found.setdefault(change.path, change)
    return list(found.values())


def _scopes(client: ClientApp, project: bool | None, is_personal: bool, undo: bool) -> tuple[Scope, ...]:
    """Return where to look: undone is what was done in either scope, unless one is named."""
    if project is not None:
        return ("project" if project else "user",)
    if undo:
        return ("project", "user")
    # The address of the proxy is this machine's, and a project's file may be shared.
    return ("user" if is_personal else client.scope,)


def _proxy_edits(client: ClientApp) -> Wanted:
    from kimi_proxy.services.clients.places import Wanted

    return Wanted(proxy=_proxy_target(client))


def _status_line_edits(scope: Scope) -> Wanted:
    import shlex

    from kimi_proxy.services.clients.places import Wanted, own_command

    return Wanted(status_line=shlex.join((*own_command(scope), "statusline")))


def _server_edits(client: ClientApp, scope: Scope, tools: bool, http: bool, guidance: bool, hooks: bool) -> Wanted:
    """Return an MCP server, and with `hooks` the hooks whose cuts it reads back."""
    from kimi_proxy.features.clients import TOKEN_VARIABLE, Connection
    from kimi_proxy.services.clients.places import HookTarget, Wanted, own_command

    url, token = _address() if http else ("", False)
    if token and client.token is None:
        remark(f"{client.title} cannot read a token from the environment: add the header yourself (docs/clients.md)")
    server = Connection(own_command(scope), str(Path.cwd()), tools, url, token, for_markers=hooks)
    if not hooks:
        return Wanted(server, guidance)
    with_reads = load_of_server(here=None).config.sanitizer.policy == "deep"
    return Wanted(server, hooks=HookTarget(_proxy_url(), with_reads, TOKEN_VARIABLE if token else ""))


def _doing(client: ClientApp, scope: Scope, log: EditLog, wanted: Wanted) -> list[FileChange]:
    from kimi_proxy.services.clients.init import combine, plan_edit
    from kimi_proxy.services.clients.places import edits, every_edit

    dirs = _base_dirs()
    known = {edit.path.resolve(): edit for edit in combine(every_edit(client, scope, dirs))}
    return [
        plan_edit(edit, log, known.get(edit.path.resolve())) for edit in combine(edits(client, scope, dirs, wanted))
    ]


def _undoing(
    client: ClientApp, scopes: tuple[Scope, ...], log: EditLog, part: Part = "", folder: Path | None = None
) -> list[FileChange]:
    """Return what takes back all that we changed, or a part of it alone."""
    from kimi_proxy.services.clients.init import combine, plan_undo
    from kimi_proxy.services.clients.places import every_edit, hook_edits, memory_edits, proxy_edits, status_edits

    dirs = _base_dirs(folder)
    every = combine(edit for scope in scopes for edit in every_edit(client, scope, dirs))
    known = {edit.path.resolve(): edit for edit in every}
    parts = {"proxy": proxy_edits, "hooks": hook_edits, "statusline": status_edits, "memory": memory_edits}
    undone = combine(edit for scope in scopes for edit in parts[part](client, scope, dirs)) if part else every
    plans = (plan_undo(edit, log, known.get(edit.path.resolve())) for edit in undone)
    return [plan for plan in plans if plan is not None]


def _proxy_target(client: ClientApp) -> ProxyTarget:
    """Return the proxy's address, with what its providers speak. A provider that is missing is remarked upon."""
    from kimi_proxy.features.clients.proxied import BaseUrl, proxy_target

    config = load_of_server(here=None).config
    target = proxy_target(_proxy_url(), config, os.environ)
    api = client.proxied.apis[0] if isinstance(client.proxied, BaseUrl) else ""
    if api in config.off_lines and api not in target.apis:
        remark(f"the provider {api} is switched off: set enabled = true in [providers.{api}] of {config.file}")
    if config.token is not None:
        remark("the proxy wants its token: give it to the client as its API key (docs/llm-proxy.md)")
    return target


def _proxy_url() -> str:
    from kimi_proxy.proxy.local_server import local_url

    config = load_of_server(here=None).config
    where = config.proxy
    if where.port == 0:
        raise ConfigError("setting proxy.port: with 0 the address changes at every start; choose a port")
    return proxy_address(config) or local_url(where.host, where.port)


def _base_dirs(folder: Path | None = None) -> BaseDirs:
    from platformdirs import user_config_path

    from kimi_proxy.services.clients.places import BaseDirs

    code = user_config_path("Code", appauthor=False, roaming=True)
    return BaseDirs(folder or Path.cwd(), Path.home(), code, os.environ)


def _address() -> tuple[str, bool]:
    """Return the URL of the server of the settings, and whether it needs a token."""
    from kimi_proxy.proxy.local_server import local_url

    config = load_of_server(here=None).config
    where = config.mcp_pruner
    if where.port == 0:
        raise ConfigError("setting mcp_pruner.port: with 0 the address changes at every start; choose a port")
    return f"{local_url(where.host, where.port)}/mcp", config.token is not None


def _show_changes(changes: list[FileChange], undo: bool) -> bool:
    """Show what will change. Return False if nothing will."""
    needed = [change for change in changes if change.is_needed]
    for change in needed:
        write(change.diff())
    if not needed:
        remark("there is nothing to take back" if undo else "everything is as it should be already")
    return bool(needed)


def _ask(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.BadParameter("standard input is not a terminal, so nothing can be asked: add --yes")
    if not click.confirm("Make this change?", err=True):
        raise click.exceptions.Exit(EXIT_DECLINED)


def _confirm(client: ClientApp, undo: bool, changes: list[FileChange]) -> None:
    remark(f"done; restart {client.title} to apply this" + ("" if undo else ", or take it back with --undo"))
    is_instead = client.instead is not None and any(str(each.path).endswith(client.instead[0]) for each in changes)
    if client.by_hand and not undo and not is_instead:
        remark(client.by_hand)
