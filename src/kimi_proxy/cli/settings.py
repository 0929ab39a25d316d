"""Which file settings come from: the named one, for servers ./config.toml, the platform's, or none at all.

What agents and people run inside of projects reads no ./config.toml: it is the project's, not the user's, and could
send what is read somewhere else.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_config_path, user_state_path

from kimi_proxy.core.config import Config, named_path, parse
from kimi_proxy.core.errors import ConfigError

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
