"""`kimi-proxy compress`: the red button, without a dashboard."""

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from kimi_proxy.cli.host import EXIT_NOT_RUNNING, found
from kimi_proxy.cli.streams import remark, write, write_json
from kimi_proxy.core.types import JsonObject


def compress(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Its id, or the name that its client gives it.")],
    simulate: Annotated[bool, typer.Option("--simulate", help="Only show what would become of it.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Even if its window has room left.")] = False,
    light: Annotated[bool, typer.Option("--light", help="Keep fewer exchanges, and ask no provider.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take the last compression back.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead, for programs.")] = False,
) -> None:
    """Replace the old part of a session's history by a summary, from its next request on.

    Exit code: 0 done, 2 refused (there is room, or too little to win), 3 kimi-proxy does not run.
    """
    from kimi_proxy.cli.settings import load

    host = found(load(here=Path()).config)
    if host is None:
        remark("kimi-proxy does not run: histories are compressed on their way through it")
        raise typer.Exit(EXIT_NOT_RUNNING)
    action = "/undo" if undo else "/simulate" if simulate else ""
    path = f"/api/{'compaction' if light else 'compress'}/{quote(session, safe='', errors='replace')}{action}"
    told = host.control.post(path, {} if action else {"force": force})
    if "hint" in told:
        remark(f"the window is at {told['current_percentage']} % of {told['threshold']} %: {told['hint']}")
        raise typer.Exit(2)
    if as_json:
        write_json(told)
    else:
        write(_undone(told) if undo else _story(told))


def _undone(told: JsonObject) -> str:
    return f"{told['undone']} is taken back\n"


def _story(told: JsonObject) -> str:
    verb = "would become" if told.get("simulated") else "become"
    head = f"{told['messages_removed']} messages give way: {told['original_tokens']} tokens {verb} "
    return f"{head}{told['compressed_tokens']}, summary by the {told['summary_by']}:\n\n{told['summary']}\n"
