"""`kimi-proxy memory` and `kimi-proxy compress`: project memory, and the history of one session."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from kimi_proxy.cli import console
from kimi_proxy.cli.mcp import running_proxy

if TYPE_CHECKING:
    from kimi_proxy.core.json import JsonObject, JsonValue
    from kimi_proxy.services.chat.memory import MemoryFile


EXIT_TROUBLE = 1


@click.group(cls=console.CommandGroup)
def memory() -> None:
    """The text that every new conversation gets about the project."""


@memory.command()
@click.option("--json", "as_json", is_flag=True, help="Print the file's JSON instead.")
def show(as_json: bool) -> None:
    """Print it. Exit code 1 if the file cannot be read."""
    stored = _file().read()
    if stored.trouble:
        console.remark(stored.trouble)
        raise click.exceptions.Exit(EXIT_TROUBLE)
    if as_json or not isinstance(stored.content, str):
        console.write_json({"content": stored.content, "updated": stored.updated} if as_json else stored.content)
    else:
        console.write(stored.content)


@memory.command()
@click.argument("file", type=console.PATH, default="-", help="A text, or - for standard input.  [default: -]")
@click.option("--json", "as_json", is_flag=True, help="It is JSON, and kept as such.")
def save(file: Path, as_json: bool) -> None:
    """Replace it by a file, or by standard input. Sessions that have begun keep what they have."""
    from kimi_proxy.core import json, lines

    raw = console.encode(console.read(file))
    # Bytes that stand for nothing would be in every request, and providers refuse them.
    _write(json.decode(raw) if as_json else lines.decode(raw))


@memory.command()
def clear() -> None:
    """Give new conversations nothing."""
    _write("")


def _write(content: JsonValue) -> None:
    from kimi_proxy.core import tokens
    from kimi_proxy.features.chat.memory import memory_block

    text = memory_block(_file().write(content, time.time()).content)
    hint = "" if console.server_config().memory.inject else "; [memory] inject = true adds them"
    console.remark(
        f"new conversations get {tokens.count(text)} tokens{hint}" if text else "new conversations get nothing"
    )


def _file() -> MemoryFile:
    from kimi_proxy.core.errors import AccessDenied
    from kimi_proxy.services.chat.memory import MemoryFile

    config = console.server_config()
    if config.team.enabled:
        raise AccessDenied("in a team everyone has their own: POST /api/memory/save with your token")
    return MemoryFile(config.home, config.memory.max_bytes)


@click.command()
@click.argument("session", help="Its id, or the name that its client gives it.")
@click.option("--simulate", is_flag=True, help="Only show what would become of it.")
@click.option("--force", is_flag=True, help="Even if its window has room left.")
@click.option("--light", is_flag=True, help="Keep fewer exchanges, and ask no provider.")
@click.option("--undo", is_flag=True, help="Take the last compression back.")
@console.json_option
def compress(session: str, simulate: bool, force: bool, light: bool, undo: bool, as_json: bool) -> None:
    """Replace the old part of a session's history by a summary, from its next request on.

    Exit code: 0 done, 2 refused (there is room, or too little to win), 3 kimi-proxy does not run.
    """
    proxy = running_proxy(console.server_config())
    if proxy is None:
        console.remark("kimi-proxy does not run: histories are compressed on their way through it")
        raise click.exceptions.Exit(console.EXIT_NOT_RUNNING)
    action = "/undo" if undo else "/simulate" if simulate else ""
    path = f"/api/{'compaction' if light else 'compress'}/{quote(session, safe='', errors='replace')}{action}"
    answer = proxy.control.post(path, {} if action else {"force": force})
    if "hint" in answer:
        console.remark(
            f"the window is at {answer['current_percentage']} % of {answer['threshold']} %: {answer['hint']}"
        )
        raise click.exceptions.Exit(2)
    if as_json:
        console.write_json(answer)
    else:
        console.write(f"{answer['undone']} is taken back\n" if undo else _summary(answer))


def _summary(answer: JsonObject) -> str:
    verb = "would become" if answer.get("simulated") else "become"
    head = f"{answer['messages_removed']} messages give way: {answer['original_tokens']} tokens {verb} "
    return f"{head}{answer['compressed_tokens']}, summary by the {answer['summary_by']}:\n\n{answer['summary']}\n"
