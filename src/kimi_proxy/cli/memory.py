"""`kimi-proxy memory`: what every new conversation is told of the project."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kimi_proxy.cli.streams import STDIN, encode, read, remark, write, write_json
from kimi_proxy.core.types import JsonValue

if TYPE_CHECKING:
    from kimi_proxy.services.memory_file import MemoryFile, Remembered

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
    from kimi_proxy.core import charset, jsontext

    raw = encode(text)
    # Bytes that stand for nothing would be in every request, and providers refuse them.
    return jsontext.decode(raw) if is_json else charset.decode(raw)


def _told(saved: "Remembered") -> None:
    from kimi_proxy.cli.settings import load
    from kimi_proxy.core import tokens
    from kimi_proxy.features.memory.project import block

    text = block(saved.content)
    hint = "" if load(here=Path()).config.memory.inject else "; [memory] inject = true tells it"
    remark(f"new conversations are told {tokens.count(text)} tokens{hint}" if text else "nothing is left to tell")


def _file() -> "MemoryFile":
    from kimi_proxy.cli.settings import load
    from kimi_proxy.services.memory_file import MemoryFile

    config = load(here=Path()).config
    return MemoryFile(config.home, config.memory.max_bytes)
