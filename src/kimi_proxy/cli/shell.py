"""Completion scripts of three shells and the manual page, generated from the commands."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import click

from kimi_proxy import __version__
from kimi_proxy.cli.commands import Argument, CommandGroup
from kimi_proxy.cli.console import write

NAME = "kimi-proxy"
FUNCTION = "_kimi_proxy"


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the script that completes commands and options in a shell.

    Nothing is changed: put it where your shell looks for it. It holds all names, so that no key press starts Python.

    Example: kimi-proxy completion bash > ~/.local/share/bash-completion/completions/kimi-proxy

    Example: kimi-proxy completion fish > ~/.config/fish/completions/kimi-proxy.fish

    Example: kimi-proxy completion zsh > ~/.zfunc/_kimi-proxy
    """
    writers = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
    write(writers[shell]())


@dataclass(frozen=True, slots=True)
class CommandOption:
    names: tuple[str, ...]
    about: str
    value: str  # what stands for its value in a usage line; empty for a flag
    choices: tuple[str, ...]


HELP = CommandOption(("-h", "--help"), "Show what a command does, and exit.", "", ())


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command, or a group of them: `path` is how it is called, without `kimi-proxy`."""

    path: tuple[str, ...]
    about: str
    arguments: tuple[str, ...]
    options: tuple[CommandOption, ...]
    choices: tuple[str, ...]  # of its arguments
    commands: tuple[tuple[str, str], ...]  # of a group, with the first sentence of each

    @property
    def words(self) -> str:
        """Return what may follow on it, but files."""
        commands = (name for name, _ in self.commands)
        return " ".join((*commands, *self.choices, *(name for one in self.options for name in one.names)))

    @property
    def spaced(self) -> str:
        return "".join(f" {word}" for word in self.path)


def entries() -> list[CommandEntry]:
    """Return every command, groups before what is in them."""
    from kimi_proxy.cli import app

    return list(_entries((), app, click.Context(app)))


def _entries(path: tuple[str, ...], command: click.Command, context: click.Context) -> Iterator[CommandEntry]:
    below = command.all_commands(context) if isinstance(command, CommandGroup) else {}
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    yield CommandEntry(
        path,
        (command.help or "").strip(),
        tuple(param.make_metavar(context) for param in arguments),
        (*(_option(param) for param in command.params if isinstance(param, click.Option)), HELP),
        tuple(choice for param in arguments for choice in _choices(param)),
        tuple((name, _sentence(one.help or "")) for name, one in sorted(below.items())),
    )
    for name, one in sorted(below.items()):
        yield from _entries((*path, name), one, context)


def _option(param: click.Option) -> CommandOption:
    names, choices = (*param.opts, *param.secondary_opts), _choices(param)
    value = "" if param.is_flag else "|".join(choices) or "VALUE"
    return CommandOption(names, _line(param.help or ""), value, choices)


def _choices(param: click.Parameter) -> tuple[str, ...]:
    """Return the values that a parameter accepts, if these are few."""
    return tuple(param.type.choices) if isinstance(param.type, click.Choice) else ()


def _line(text: str) -> str:
    return " ".join(text.split())


def _sentence(text: str) -> str:
    return _line(text.partition("\n\n")[0]).partition(". ")[0].rstrip(".")


def bash_script() -> str:
    found = entries()
    values = [f'        "{one}") words="{choices}" ;;' for one, choices in _values(found)]
    lines = [
        f"# Completion of {NAME} {__version__} for bash, written by: {NAME} completion bash",
        f"{FUNCTION}() {{",
        '    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" at="" word words=""',
        '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        *_descent(found, "        "),
        "    done",
        '    case "$at" in',
        *(f'        "{one.spaced}") words="{one.words}" ;;' for one in found),
        "    esac",
        '    case "$at $before" in',
        *values,
        "    esac",
        # Not mapfile, which the bash of macOS lacks; no word has a space.
        '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        f"complete -o bashdefault -o default -F {FUNCTION} {NAME}",
    ]
    return "\n".join(lines) + "\n"


def _descent(found: Sequence[CommandEntry], indent: str) -> list[str]:
    """Return the lines that add a word to `at` if it is a command there; the same in bash and zsh."""
    paths = "|".join(f'"{one.spaced}"' for one in found if one.path)
    return [f'{indent}case "$at $word" in {paths}) at="$at $word" ;; esac']


def _values(found: Sequence[CommandEntry]) -> Iterator[tuple[str, str]]:
    """Yield each option with few values after its command, and those values."""
    for one in found:
        for option in one.options:
            if option.choices:
                yield from ((f"{one.spaced} {name}", " ".join(option.choices)) for name in option.names)


def zsh_script() -> str:
    found = entries()
    lines = [
        f"#compdef {NAME}",
        f"# Completion of {NAME} {__version__} for zsh, written by: {NAME} completion zsh",
        f"{FUNCTION}() {{",
        '    local at="" word',
        "    local -a found",
        '    for word in "${(@)words[2,CURRENT-1]}"; do',
        *_descent(found, "        "),
        "    done",
        '    case "$at" in',
    ]
    for one in found:
        rows = [*one.commands, *((name, option.about) for option in one.options for name in option.names)]
        rows += [(choice, "") for choice in one.choices]
        described = " ".join(_quoted(f"{name}:{about}" if about else name) for name, about in rows)
        lines.append(f'        "{one.spaced}") found=({described}) ;;')
    lines += ["    esac", '    case "$at ${words[CURRENT-1]}" in']
    lines += [
        f'        "{one}") found=({choices}); _describe -t values value found; return ;;'
        for one, choices in _values(found)
    ]
    lines += ["    esac", f"    _describe -t commands {NAME} found", "    _files", "}"]
    # From a folder of $fpath the file is a function by its own name, whose first call must complete already.
    lines += [f'if [ "$funcstack[1]" = "_{NAME}" ]; then {FUNCTION} "$@"; else compdef {FUNCTION} {NAME}; fi']
    return "\n".join(lines) + "\n"


def fish_script() -> str:
    found = entries()
    cases = " ".join(_quoted(one.spaced) for one in found if one.path)
    lines = [
        f"# Completion of {NAME} {__version__} for fish, written by: {NAME} completion fish",
        "function __kimi_proxy_at",
        "    set -l at ''",
        "    for word in (commandline -opc)[2..-1]",
        f'        switch "$at $word"\n            case {cases}\n                set at "$at $word"\n        end',
        "    end",
        '    test "$at" = "$argv[1]"',
        "end",
    ]
    for one in found:
        here = f"complete -c {NAME} -n \"__kimi_proxy_at '{one.spaced}'\""
        lines += [f"{here} -f -a {name} -d {_quoted(about)}" for name, about in one.commands]
        lines += [f"{here} -f -a {choice}" for choice in one.choices]
        for option in one.options:
            long = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = f" -x -a {_quoted(' '.join(option.choices))}" if option.choices else " -r" if option.value else ""
            lines.append(f"{here} {long}{value} -d {_quoted(option.about)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return `text` as one word of any of the shells."""
    return "'" + text.replace("\\", "/").replace("'", "’") + "'"


def manual() -> str:
    """Return the manual page, in the macros of man(7)."""
    found = entries()
    lines = [f'.TH KIMI-PROXY 1 "" "kimi-proxy {__version__}" "User Commands"', ".SH NAME"]
    lines += [rf"kimi-proxy \- {_roff(_sentence(found[0].about))}", ".SH SYNOPSIS", ".B kimi-proxy"]
    lines += ['.RI [ OPTIONS ] " " COMMAND " " [ ARGUMENTS ]', ".SH DESCRIPTION", *_paragraphs(found[0].about)]
    lines += [*_option_lines(found[0].options), ".SH COMMANDS"]
    for one in found[1:]:
        usage = " ".join((*one.path, *("COMMAND" for _ in one.commands[:1]), *one.arguments))
        lines += [f".SS {_roff(usage)}", *_paragraphs(one.about), *_option_lines(one.options)]
    lines += [".SH FILES", ".TP", ".I config.toml"]
    lines += [_roff("Settings: kimi-proxy config prints which file is read, and what is in force.")]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        yield ".PP"
        yield _roff(_line(paragraph))


def _option_lines(options: Sequence[CommandOption]) -> Iterator[str]:
    for option in options:
        value = f" {option.value}" if option.value else ""
        yield ".TP"
        yield rf"\fB{_roff(', '.join(option.names))}\fR{_roff(value)}"
        yield _roff(option.about)


def _roff(text: str) -> str:
    """Return `text` so that roff prints it as it is: no word of it is a request."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("`", r"\(ga")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
