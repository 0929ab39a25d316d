"""Standard streams: results and input as exact bytes, remarks for people beside them."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

import typer
from platformdirs import user_config_path, user_state_path

from kimi_proxy.core.config import Config, named_path, parse
from kimi_proxy.core.errors import ConfigError

STDIN: Final = Path("-")


def decode(raw: bytes) -> str:
    """Text that `encode` turns into `raw` again, even where `raw` is not UTF-8."""
    return raw.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # A surrogate that no byte stands for came in as a JSON escape; no exact bytes exist for it.
        return text.encode("utf-8", "surrogatepass")


def read(file: Path) -> str:
    """All of `file`, or of standard input for `-`."""
    if file == STDIN:
        if _is_closed(sys.stdin):
            raise typer.BadParameter("standard input is closed: name a file", param_hint="FILE")
        if sys.stdin.isatty():
            remark("reading standard input; end it with Ctrl-D")
        return decode(sys.stdin.buffer.read())
    try:
        return decode(file.read_bytes())
    except OSError as e:
        raise typer.BadParameter(f"cannot read {file}: {e.strerror}", param_hint="FILE") from e


def write(text: str) -> None:
    """Put `text` on standard output as it is; a terminal alone gets the newline it lacks."""
    write_bytes(encode(text))
    if sys.stdout.isatty() and text and not text.endswith("\n"):
        write_bytes(b"\n")


def write_json(value: object) -> None:
    from kimi_proxy.core import json

    write_bytes(json.encode(value) + b"\n")


def write_bytes(raw: bytes) -> None:
    if _is_closed(sys.stdout):
        remark("standard output is closed: there is nowhere to write the result")
        raise typer.Exit(1)
    try:
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
    except OSError as e:
        _abandon(sys.stdout)
        if not isinstance(e, BrokenPipeError):  # then the reader, such as `head`, has seen enough
            remark(f"the result cannot be written: {e.strerror}")
        raise typer.Exit(1) from None


def remark(text: str) -> None:
    """Tell the person, if anybody listens; programs read standard output."""
    if _is_closed(sys.stderr):  # print would take standard output for it
        return
    try:
        print(f"kimi-proxy: {text}", file=sys.stderr, flush=True)
    except OSError:
        _abandon(sys.stderr)


def _is_closed(stream: TextIO | None) -> bool:
    """Whether a shell has closed it before we began, with `2>&-` for instance: Python has no stream then."""
    return stream is None


def _abandon(stream: TextIO) -> None:
    """Let what could not be written go nowhere: Python would try once more at exit, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def colour(text: str, code: str) -> str:
    """`text` in an ANSI colour, if standard output is a terminal that wants colours."""
    wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[{code}m{text}\x1b[0m" if wanted else text


# Which file settings come from: the named one, for servers ./config.toml, the platform's, or none at all.
#
# What agents and people run inside of projects reads no ./config.toml: it is the project's, not the user's, and could
# send what is read somewhere else.

NAME = "kimi-proxy"
FILE = "config.toml"


@dataclass(frozen=True, slots=True)
class Settings:
    """What is in force, and the file that said so, if one did."""

    config: Config
    file: Path | None


def load(env: Mapping[str, str] = os.environ, here: Path | None = None) -> Settings:
    """The settings in force; `here` is the folder of a server, whose config.toml counts."""
    platform = user_config_path(NAME, appauthor=False)
    file = find(env, here, platform)
    try:
        config = parse(_read(file), env, home(env))
    except ConfigError as e:
        raise ConfigError(f"{e} (file: {file or 'none'})") from e
    return Settings(config.model_copy(update={"file": file or platform / FILE}), file)


def home(env: Mapping[str, str] = os.environ) -> Path:
    """Where all state is, whatever the other settings say."""
    return named_path("KIMI_PROXY_HOME", env) or user_state_path(NAME, appauthor=False)


def find(env: Mapping[str, str], here: Path | None, platform: Path) -> Path | None:
    """The file to read. Only a file that was named must exist."""
    if file := named_path("KIMI_PROXY_CONFIG", env):
        if not file.is_file():
            raise ConfigError(f"KIMI_PROXY_CONFIG names {file}, which is not a file: create it or unset it")
        return file
    places = (platform,) if here is None else (here, platform)
    return next((place / FILE for place in places if (place / FILE).is_file()), None)


def _read(file: Path | None) -> str:
    try:
        return file.read_text("utf-8-sig") if file else ""  # Windows' editors begin with a mark
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"the configuration file cannot be read: {e}") from e
