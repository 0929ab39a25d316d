"""`kimi-proxy memory` and `kimi-proxy compress`: project memory, and the history of one session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from kimi_proxy.cli import console
from kimi_proxy.cli.mcp import running_proxy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kimi_proxy.core.caller import Caller
    from kimi_proxy.core.json import JsonObject, JsonValue
    from kimi_proxy.services.chat.memory import Memories, MemoryContent


EXIT_TROUBLE = 1


@click.group(cls=console.CommandGroup)
def memory() -> None:
    """Show or change the project memory that new conversations receive."""


@memory.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with the time it was saved.")
def show(as_json: bool) -> None:
    """Print the project memory. Exit code 1 if a file that should be read into the store cannot be read."""
    stored = _with_memory(lambda memories, who: memories.read(who))
    if stored.trouble:
        console.remark(stored.trouble)
        raise click.exceptions.Exit(EXIT_TROUBLE)
    if as_json or not isinstance(stored.content, str):
        console.write_json({"content": stored.content, "updated": stored.updated} if as_json else stored.content)
    else:
        console.write(stored.content)


@memory.command()
@click.argument("file", type=console.PATH, default="-", help="A text file, or - for standard input.  [default: -]")
@click.option("--json", "as_json", is_flag=True, help="Read it as JSON and store it as JSON.")
def save(file: Path, as_json: bool) -> None:
    """Replace the project memory with a file or standard input. Running sessions keep theirs."""
    from kimi_proxy.core import json, lines

    raw = console.encode(console.read(file))
    # Invalid bytes would be in every request, and providers reject them.
    _write(json.decode(raw) if as_json else lines.decode(raw))


@memory.command()
def clear() -> None:
    """Delete the project memory; new conversations receive none."""
    _write("")


def _write(content: JsonValue) -> None:
    from kimi_proxy.core import tokens
    from kimi_proxy.features.chat.memory import memory_block

    text = memory_block(_with_memory(lambda memories, who: memories.write(who, content)).content)
    hint = "" if console.server_config().memory.inject else " once [memory] inject = true is set"
    console.remark(
        f"new conversations receive {tokens.count(text)} tokens{hint}" if text else "new conversations receive nothing"
    )


def _with_memory(job: Callable[[Memories, Caller], Awaitable[MemoryContent]]) -> MemoryContent:
    """Return the result of `job` on the project memory of the person that the command works for."""
    import asyncio

    from kimi_proxy.assembly.store import own_store
    from kimi_proxy.services.chat.memory import Memories

    console.log_errors_only()
    config = console.server_config()

    async def open_and_run() -> MemoryContent:
        async with own_store(config) as (store, who):
            return await job(Memories(store.project_memory, config.home, config.memory.max_bytes), who)

    return asyncio.run(open_and_run())


@click.command()
@click.argument("session", help="The session's id, or the name given by its client.")
@click.option("--simulate", is_flag=True, help="Preview the result without changing anything.")
@click.option("--force", is_flag=True, help="Compress even if the context window has room left.")
@click.option("--light", is_flag=True, help="Keep fewer exchanges, and do not call a provider.")
@click.option("--undo", is_flag=True, help="Revert the last compression.")
@console.json_option
def compress(session: str, simulate: bool, force: bool, light: bool, undo: bool, as_json: bool) -> None:
    """Replace the old part of a session's history with a summary, from its next request on.

    Exit code: 0 done, 2 refused (enough room left, or too little to gain), 3 kimi-proxy is not running.
    """
    proxy = running_proxy(console.server_config())
    if proxy is None:
        console.remark(
            "kimi-proxy is not running: start it with kimi-proxy start (it compresses requests on their way)"
        )
        raise click.exceptions.Exit(console.EXIT_NOT_RUNNING)
    action = "/undo" if undo else "/simulate" if simulate else ""
    path = f"/api/{'compaction' if light else 'compress'}/{quote(session, safe='', errors='replace')}{action}"
    answer = proxy.control.post(path, {} if action else {"force": force})
    if "hint" in answer:
        console.remark(
            f"the window is {answer['current_percentage']} % full, below {answer['threshold']} %: {answer['hint']}"
        )
        raise click.exceptions.Exit(2)
    if as_json:
        console.write_json(answer)
    else:
        console.write(f"{answer['undone']} was reverted\n" if undo else _summary(answer))


def _summary(answer: JsonObject) -> str:
    verb = "would become" if answer.get("simulated") else "become"
    head = f"{answer['messages_removed']} messages summarized: {answer['original_tokens']} tokens {verb} "
    return f"{head}{answer['compressed_tokens']}, summary by the {answer['summary_by']}:\n\n{answer['summary']}\n"
