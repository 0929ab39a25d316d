"""Code shared by all commands: standard streams as exact bytes, remarks for people, and the settings.

Only light modules are imported here and at the top of commands, to keep `--help` fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import click

from kimi_proxy.core.errors import ConfigError

if TYPE_CHECKING:
    from kimi_proxy.core.config import Config


NAME = "kimi-proxy"
FILE = "config.toml"
ENV_FILE = ".env"
SECRETS_DIR = "KIMI_PROXY_SECRETS_DIR"  # a folder; each file supplies a variable that the environment lacks
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


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The current settings and their sources."""

    config: Config
    file: Path | None  # None: there is none
    place: Path  # the path of the file, or where it would be read
    toml: str
    env_file: Path | None = None
    from_env_file: tuple[str, ...] = ()  # the variables that the environment lacked
    unread_env_file: Path | None = None  # in the folder of a server whose configuration file is elsewhere


def load(
    env: Mapping[str, str] = os.environ, here: Path | None = None, running_file: Path | None = None
) -> LoadedSettings:
    """Return the current settings. Raise ConfigError, which names the file.

    `here` is the folder of a server, from which config.toml is read. Commands that run inside projects do not read
    ./config.toml: it belongs to the project, not to the user, and could send their data elsewhere. `running_file` is
    the file that a running server has read.
    """
    from platformdirs import user_config_path

    from kimi_proxy.core.config import parse

    platform = user_config_path(NAME, appauthor=False)
    file = running_file or find(env, here, platform)
    own = _own_folder(env) if here is not None else None
    place = file or (own or platform) / FILE
    env_file = place.parent / ENV_FILE
    added = {name: value for name, value in _read_env(env_file).items() if name not in env}
    mounted = {name: value for name, value in _read_secrets(env.get(SECRETS_DIR, "")).items() if name not in env}
    if env is os.environ:
        os.environ.update({**added, **mounted})  # for programs that we start
    env = {**added, **mounted, **env}
    try:
        toml = _read(file)
        config = parse(toml, env, home(env))
    except ConfigError as e:
        raise ConfigError(f"{e} (file: {file or 'none'})") from e
    config = config.model_copy(update={"file": place})
    beside = (here / ENV_FILE).absolute() if here is not None and own is None else env_file
    unread = beside if beside != env_file.absolute() and beside.is_file() else None
    return LoadedSettings(config, file, place, toml, env_file if added else None, tuple(sorted(added)), unread)


def load_of_server(env: Mapping[str, str] = os.environ, here: Path | None = HERE) -> LoadedSettings:
    """Return the settings of the running server, or those that a server started in `here` would have."""
    from kimi_proxy.services import background

    running = None if env.get("KIMI_PROXY_CONFIG") else background.running(home(env))
    file = running.config_file if running is not None else None
    return load(env, here, file if file is not None and file.is_file() else None)


def proxy_address(config: Config) -> str | None:
    """Return the address of this home's proxy, even if `start` was given another port; None if it is not running."""
    from kimi_proxy.proxy.local_server import local_url, port_owner
    from kimi_proxy.services import background

    if (running := background.running(config.home)) is not None:
        return running.addresses["proxy"]
    where = config.proxy
    owner = port_owner(where.host, where.port) if where.port else None
    return local_url(where.host, where.port) if owner is not None and owner.server == NAME else None


def server_config() -> Config:
    """Return the settings of the running server, or those that one started in this folder would have."""
    return load_of_server().config


def use_config_file(file: Path | None, must_exist: bool = True) -> None:
    """Apply `--config FILE` to this process and to those it starts. Raise ConfigError if the file is missing."""
    if file is not None:
        if must_exist and not file.is_file():
            raise ConfigError(f"--config: {file} does not exist; kimi-proxy config init --config {file} creates it")
        os.environ["KIMI_PROXY_CONFIG"] = str(file.absolute())


def home(env: Mapping[str, str] = os.environ) -> Path:
    """Return the state directory, which no other setting affects."""
    from platformdirs import user_state_path

    from kimi_proxy.core.config import named_path

    return named_path("KIMI_PROXY_HOME", env) or user_state_path(NAME, appauthor=False)


def find(env: Mapping[str, str], here: Path | None, platform: Path) -> Path | None:
    """Return the file to read, if any. Raise ConfigError if KIMI_PROXY_CONFIG names a missing file."""
    from kimi_proxy.core.config import named_path

    if file := named_path("KIMI_PROXY_CONFIG", env):
        if not file.is_file():
            raise ConfigError(f"KIMI_PROXY_CONFIG is {file}, which is not a file: create it, or unset the variable")
        return file
    folders = (platform,) if here is None else (_own_folder(env) or here, platform)
    return next((folder.absolute() / FILE for folder in folders if (folder / FILE).is_file()), None)


def _own_folder(env: Mapping[str, str]) -> Path | None:
    """Return the folder of start.sh, if that script started us: the current folder may then be any project."""
    from kimi_proxy.core.config import named_path

    return named_path("KIMI_PROXY_FOLDER", env)


def _read_secrets(folder: str) -> dict[str, str]:
    """Return the contents of the files in a secrets folder such as /run/secrets, by name, without trailing newlines."""
    try:
        files = [file for file in Path(folder).iterdir() if file.is_file()] if folder else []
        return {file.name: file.read_text("utf-8").rstrip("\r\n") for file in files}
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"{SECRETS_DIR}: cannot read {folder} ({e})") from e


def _read_env(file: Path) -> dict[str, str]:
    """Return the variables of a `.env`: NAME=value lines, with or without `export` and quotes."""
    try:
        text = file.read_text("utf-8-sig") if file.is_file() else ""
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read {file}: {e}") from e
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if not name or name.startswith("#"):
            continue
        if not equals or not name.strip().isidentifier():
            raise ConfigError(f"{file}, line {number}: write NAME=value, or begin the line with #")
        found[name.strip()] = _unquote(value.strip())
    return found


def _unquote(value: str) -> str:
    if value[:1] in ('"', "'"):
        return value[1:].partition(value[0])[0]
    return value.partition(" #")[0].rstrip()


def log_errors_only() -> None:
    """Log only errors: commands print remarks for people themselves."""
    from kimi_proxy.core.config import LogSettings
    from kimi_proxy.core.logs import write_to_stderr

    write_to_stderr(LogSettings(level="error"))


def _read(file: Path | None) -> str:
    try:
        return file.read_text("utf-8-sig") if file else ""  # editors on Windows write a byte order mark
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read the configuration file: {e}") from e
