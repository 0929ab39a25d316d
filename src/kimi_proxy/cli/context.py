"""`kimi-proxy memory`: what every new conversation is told of the project."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from kimi_proxy.cli.console import STDIN, encode, read, remark, write, write_json
from kimi_proxy.cli.mcp import EXIT_NOT_RUNNING, found
from kimi_proxy.core.json import JsonObject, JsonValue

if TYPE_CHECKING:
    from kimi_proxy.services.chat.memory import MemoryContent, MemoryFile


EXIT_TROUBLE = 1

memory = typer.Typer(name="memory", no_args_is_help=True, help="What every new conversation is told of the project.")


@memory.command()
def show(as_json: Annotated[bool, typer.Option("--json", help="Print the file's JSON instead.")] = False) -> None:
    """Print it. Exit code 1 if the file cannot be read."""
    found = _file().read()
    if found.trouble:
        remark(found.trouble)
        raise typer.Exit(EXIT_TROUBLE)
    if as_json or not isinstance(found.content, str):
        write_json({"content": found.content, "updated": found.updated} if as_json else found.content)
    else:
        write(found.content)


@memory.command()
def save(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="A text, or - for standard input.")] = STDIN,
    as_json: Annotated[bool, typer.Option("--json", help="It is JSON, and kept as such.")] = False,
) -> None:
    """Replace it by a file, or by standard input. Sessions that have begun keep what they were told."""
    _told(_file().write(_content(read(file), as_json), time.time()))


@memory.command()
def clear() -> None:
    """Have new conversations told nothing."""
    _told(_file().write("", time.time()))


def _content(text: str, is_json: bool) -> JsonValue:
    from kimi_proxy.core import json, lines

    raw = encode(text)
    # Bytes that stand for nothing would be in every request, and providers refuse them.
    return json.decode(raw) if is_json else lines.decode(raw)


def _told(saved: "MemoryContent") -> None:
    from kimi_proxy.cli.console import load
    from kimi_proxy.core import tokens
    from kimi_proxy.features.memory import block

    text = block(saved.content)
    hint = "" if load(here=Path()).config.memory.inject else "; [memory] inject = true tells it"
    remark(f"new conversations are told {tokens.count(text)} tokens{hint}" if text else "nothing is left to tell")


def _file() -> "MemoryFile":
    from kimi_proxy.cli.console import load
    from kimi_proxy.services.chat.memory import MemoryFile

    config = load(here=Path()).config
    return MemoryFile(config.home, config.memory.max_bytes)


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
    from kimi_proxy.cli.console import load

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
