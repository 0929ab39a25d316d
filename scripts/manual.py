"""Print the manual page, in the macros of man(7), from the commands."""

import re
from collections.abc import Iterator

import click

from kimi_proxy import __version__
from kimi_proxy.cli import app

Path = tuple[str, ...]


def manual() -> Iterator[str]:
    top = click.Context(app)
    name = app.get_short_help_str(limit=1000).rstrip(".")
    yield f'.TH KIMI-PROXY 1 "" "kimi-proxy {__version__}" "User Commands"'
    yield from (".SH NAME", rf"kimi-proxy \- {roff(name)}", ".SH SYNOPSIS", ".B kimi-proxy")
    yield from ('.RI [ OPTIONS ] " " COMMAND " " [ ARGUMENTS ]', ".SH DESCRIPTION", *paragraphs(app.help or ""))
    yield from (*options(app), ".SH COMMANDS")
    for path, command in commands((), app, top):
        below = ("COMMAND",) if isinstance(command, click.Group) else ()
        arguments = [param.make_metavar(top) for param in command.params if isinstance(param, click.Argument)]
        yield f".SS {roff(' '.join((*path, *below, *arguments)))}"
        yield from (*paragraphs(command.help or ""), *options(command))
    yield from (".SH FILES", ".TP", ".I config.toml")
    yield roff("Settings: kimi-proxy config prints the current settings and the file they come from.")


def commands(path: Path, group: click.Group, context: click.Context) -> Iterator[tuple[Path, click.Command]]:
    """Yield every command with its full name, groups before their commands."""
    for name in sorted(group.list_commands(context)):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands((*path, name), command, context)


def paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        yield from (".PP", roff(" ".join(paragraph.split())))


def options(command: click.Command) -> Iterator[str]:
    for param in command.params:
        if isinstance(param, click.Option):
            choices = "|".join(param.type.choices) if isinstance(param.type, click.Choice) else ""
            value = "" if param.is_flag else f" {choices or 'VALUE'}"
            yield from (".TP", rf"\fB{roff(', '.join((*param.opts, *param.secondary_opts)))}\fR{roff(value)}")
            yield roff(" ".join((param.help or "").split()))
    yield from (".TP", rf"\fB{roff('-h, --help')}\fR", "Show what a command does, and exit.")


def roff(text: str) -> str:
    """Return `text` escaped for roff, so that no word of it is a request."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("`", r"\(ga")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    print("\n".join(manual()))
