"""`kimi-proxy init`: show a change to a client's configuration, ask, make it, undo it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kimi_proxy.cli.console import home, load, remark, write
from kimi_proxy.core.errors import ConfigError, FileRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimi_proxy.features.clients import ClientApp, Scope
    from kimi_proxy.services.clients.init import BaseDirs, FileChange, FileEdit


EXIT_DECLINED = 1


def init(
    client: Annotated[
        Literal["claude", "codex", "cline", "continue", "cursor", "vscode"],
        typer.Argument(metavar="CLIENT", help="claude, codex, cline, continue, cursor or vscode."),
    ],
    project: Annotated[
        bool | None,
        typer.Option("--project/--user", help="For this folder, or for you everywhere.  [default: see docs/cli.md]"),
    ] = None,
    tools: Annotated[
        bool, typer.Option("--tools", help="Offer read, grep and bash with a question, in place of prune_text.")
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Call the server that `kimi-proxy start` runs, instead of starting one.")
    ] = False,
    with_guidance: Annotated[
        bool, typer.Option("--with-guidance", help="Tell the agent in its instructions how to use the tools.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take back what an earlier run changed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the change and make none.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Connect CLIENT to kimi-proxy by a small change to its configuration.

    The change is shown first. The rest of the file stays as it is, and --undo brings back what was there before.

    Example: kimi-proxy init claude --tools --with-guidance
    """
    from kimi_proxy.features.clients import CLIENTS
    from kimi_proxy.services.clients.init import EditLog, apply, plan_edit, plan_undo

    if with_guidance and not (tools or undo):
        raise typer.BadParameter("the guidance is about read, grep and bash: add --tools")
    log, known = EditLog(home()), CLIENTS[client]
    scope: Scope = known.scope if project is None else "project" if project else "user"
    if undo:
        plans = [plan_undo(edit, log) for edit in _undoing(known, scope)]
        changes = [plan for plan in plans if plan is not None]
    else:
        changes = [plan_edit(edit, log) for edit in _edits(known, scope, tools, http, with_guidance)]
    is_needed = _shown(changes, undo)
    if dry_run:
        return
    if is_needed:
        _ask(yes)
    # Undone in reverse order, a directory that was created for two files is empty at the end.
    for change in reversed(changes) if undo else changes:
        apply(change, log, is_private=scope == "user")
    if is_needed:
        _confirm(known, undo)


def _edits(client: ClientApp, scope: Scope, tools: bool, http: bool, guidance: bool) -> Iterator[FileEdit]:
    from kimi_proxy.features.clients import GUIDANCE, Connection, server_entry
    from kimi_proxy.services.clients.init import RulesEdit, ServerEdit, config_files, own_command, rules_file

    dirs = _base_dirs()
    url, token = _address() if http else ("", False)
    connection = Connection(own_command(scope), str(dirs.here), tools, url, token)
    for file in config_files(client, scope, dirs):
        yield ServerEdit(file, client.form, server_entry(client, connection), _lock(client, scope, file))
    if guidance:
        yield RulesEdit(rules_file(client, scope, dirs), GUIDANCE, client.rules_start)
    if token and client.token is None:
        remark(f"{client.title} cannot read a token from the environment: add the header yourself (docs/clients.md)")


def _undoing(client: ClientApp, scope: Scope) -> Iterator[FileEdit]:
    """Yield every file that an earlier run may have changed."""
    from kimi_proxy.services.clients.init import RulesEdit, ServerEdit, all_config_files, rules_file

    dirs = _base_dirs()
    for file in all_config_files(client, scope, dirs):
        yield ServerEdit(file, client.form, {}, _lock(client, scope, file))
    with suppress(FileRefused):  # this client has no such file
        yield RulesEdit(rules_file(client, scope, dirs), "", client.rules_start)


def _base_dirs() -> BaseDirs:
    from platformdirs import user_config_path

    from kimi_proxy.services.clients.init import BaseDirs

    code = user_config_path("Code", appauthor=False, roaming=True)
    return BaseDirs(Path.cwd(), Path.home(), code, os.environ)


def _address() -> tuple[str, bool]:
    """Return the URL of the server of the settings, and whether it needs a token."""
    from kimi_proxy.proxy.local_server import local_url

    config = load().config
    where = config.mcp_pruner
    if where.port == 0:
        raise ConfigError("setting mcp_pruner.port: with 0 the address changes at every start; choose a port")
    return f"{local_url(where.host, where.port)}/mcp", config.token is not None


def _lock(client: ClientApp, scope: Scope, file: Path) -> Path | None:
    return file.with_name(f"{file.name}.lock") if client.is_locked and scope == "user" else None


def _shown(changes: list[FileChange], undo: bool) -> bool:
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
        raise typer.BadParameter("standard input is not a terminal, so nothing can be asked: add --yes")
    if not typer.confirm("Make this change?", err=True):
        raise typer.Exit(EXIT_DECLINED)


def _confirm(client: ClientApp, undo: bool) -> None:
    remark(f"done; {client.title} sees it when it starts anew" + ("" if undo else ". --undo takes it back"))
