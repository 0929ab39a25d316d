"""Code shared by all commands: standard streams as exact bytes, remarks for people, and the settings.

Only light modules are imported here and at the top of commands, to keep `--help` fast.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TextIO

import click

from kimi_proxy.core.errors import ConfigError

if TYPE_CHECKING:
    from kimi_proxy.core.config import Config
    from kimi_proxy.services.configuration import LoadedSettings

HERE: Final = Path()
STDIN: Final = Path("-")
EXIT_NOT_RUNNING = 3  # the code that service managers use

PATH: Final = click.Path(path_type=Path)
config_option = click.option(
    "--config", "config_file", type=PATH, metavar="FILE", help="Use this configuration file instead of any other."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
html_option = click.option("--html", type=PATH, metavar="FILE", help="Also write a report with plots to one HTML file.")


class CommandGroup(click.Group):
    """Lists commands in the order they were added, each with its full first sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            # By default click truncates the sentence.
            formatter.write_dl([(name, command.get_short_help_str(limit=1000)) for name, command in found if command])


_TERMINAL_CODES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def decode(raw: bytes) -> str:
    """Return text that `encode` turns back into `raw`, even if `raw` is not UTF-8."""
    return raw.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # This surrogate came from a JSON escape, not from a byte, so there are no exact bytes to return.
        return text.encode("utf-8", "surrogatepass")


def read(file: Path) -> str:
    """Return all of `file`, or of standard input for `-`."""
    if file == STDIN:
        if _is_closed(sys.stdin):
            raise click.BadParameter("standard input is closed: give a file", param_hint="FILE")
        if sys.stdin.isatty():
            remark("reading standard input; press Ctrl-D to end it")
        return decode(sys.stdin.buffer.read())
    try:
        return decode(file.read_bytes())
    except OSError as e:
        raise click.BadParameter(
            f"cannot read {file}: {e.strerror}; give a file, or - for standard input", param_hint="FILE"
        ) from e


def write(text: str) -> None:
    """Write `text` to standard output as it is; a terminal gets the newline it lacks."""
    write_bytes(encode(text))
    if sys.stdout.isatty() and text and not text.endswith("\n"):
        write_bytes(b"\n")


def without_terminal_codes(text: str) -> str:
    """Return a text in which nothing is a command to a terminal: files of others may hold some."""
    return _TERMINAL_CODES.sub("\N{REPLACEMENT CHARACTER}", text)


def write_json(value: object) -> None:
    from kimi_proxy.core import json

    write_bytes(json.encode(value) + b"\n")


def write_bytes(raw: bytes) -> None:
    if _is_closed(sys.stdout):
        remark("standard output is closed, so the result cannot be written")
        raise click.exceptions.Exit(1)
    try:
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
    except OSError as e:
        _abandon(sys.stdout)
        if not isinstance(e, BrokenPipeError):  # a broken pipe is normal: a reader such as `head` stops early
            remark(f"cannot write the result: {e.strerror}")
        raise click.exceptions.Exit(1) from None


def remark(text: str) -> None:
    """Write a remark for people to standard error; programs read standard output."""
    if _is_closed(sys.stderr):  # print would then use standard output
        return
    try:
        print(f"kimi-proxy: {text}", file=sys.stderr, flush=True)
    except OSError:
        _abandon(sys.stderr)


def _is_closed(stream: TextIO | None) -> bool:
    """Return whether the shell closed a stream (`2>&-`): Python then sets it to None."""
    return stream is None


def _abandon(stream: TextIO) -> None:
    """Discard unwritten output: otherwise Python retries at exit and prints an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def colour(text: str, code: str) -> str:
    """Return `text` in an ANSI colour if standard output is a terminal and NO_COLOR is unset."""
    wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[{code}m{text}\x1b[0m" if wanted else text


def environment(
    config_file: Path | None = None, options: Mapping[str, str] = MappingProxyType({}), must_exist: bool = True
) -> Mapping[str, str]:
    """Return the environment of a command with its options. Raise ConfigError if there is no file `config_file`."""
    chosen = dict(options)
    if config_file is not None:
        if must_exist and not config_file.is_file():
            raise ConfigError(
                f"--config: {config_file} does not exist; kimi-proxy config init --config {config_file} creates it"
            )
        chosen["KIMI_PROXY_CONFIG"] = str(config_file.absolute())
    return {**os.environ, **chosen}


def load(here: Path | None = None, env: Mapping[str, str] = os.environ) -> LoadedSettings:
    """Return the current settings; `here` is the folder of a server."""
    from kimi_proxy.services import configuration

    return configuration.load(env, here)


def load_of_server(env: Mapping[str, str] = os.environ, here: Path | None = HERE) -> LoadedSettings:
    """Return the settings of the running server, or those that a server started in `here` would have."""
    from kimi_proxy.services import configuration

    return configuration.load_of_server(env, here)


def server_config() -> Config:
    """Return the settings of the running server, or those that one started in this folder would have."""
    return load_of_server().config


def proxy_address(config: Config) -> str | None:
    """Return the address of this home's proxy, even if `start` was given another port; None if it is not running."""
    from kimi_proxy.services import configuration

    return configuration.proxy_address(config)


def home() -> Path:
    """Return the state directory, which no setting but KIMI_PROXY_HOME affects."""
    from kimi_proxy.services import configuration

    return configuration.home(os.environ)


def log_errors_only() -> None:
    """Log only errors: commands print remarks for people themselves."""
    from kimi_proxy.core.config import LogSettings
    from kimi_proxy.core.logs import write_to_stderr

    write_to_stderr(LogSettings(level="error"))
