"""The settings in force: which file, .env and folder of secrets they come from, and where a server of theirs runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kimi_proxy.core.errors import ConfigError

if TYPE_CHECKING:
    from kimi_proxy.core.config import Config

# Commands load this module before they know what they need: pydantic and the rest are imported where they are used.
NAME = "kimi-proxy"
FILE = "config.toml"
ENV_FILE = ".env"
MAX_FILE_BYTES = 16 * 1024**2  # of either; a longer one is a mistake, and takes minutes to parse
SECRETS_DIR = "KIMI_PROXY_SECRETS_DIR"  # a folder; each file supplies a variable that the environment lacks


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The current settings and their sources."""

    config: Config
    file: Path | None  # None: there is none
    place: Path  # the path of the file, or where it would be read
    toml: str
    env: Mapping[str, str] = field(repr=False)  # with the variables of the .env and of the secrets folder
    env_file: Path | None = None
    from_env_file: tuple[str, ...] = ()  # the variables that the environment lacked
    unread_env_file: Path | None = None  # in the folder of a server whose configuration file is elsewhere


def load(env: Mapping[str, str], here: Path | None = None, running_file: Path | None = None) -> LoadedSettings:
    """Return the current settings. Raise ConfigError, which names the file.

    `here` is the folder of a server, from which config.toml is read. Commands that run inside projects do not read
    ./config.toml: it belongs to the project, not to the user, and could send their data elsewhere. `running_file` is
    the file that a running server has read.
    """
    from platformdirs import user_config_path

    from kimi_proxy.core.config import parse
    from kimi_proxy.services.turned_on import with_turned_on

    platform = user_config_path(NAME, appauthor=False)
    file = running_file or find(env, here, platform)
    own = _own_folder(env) if here is not None else None
    place = file or (own or platform) / FILE
    env_file = place.parent / ENV_FILE
    added = {name: value for name, value in _read_env(env_file).items() if name not in env}
    mounted = {name: value for name, value in _read_secrets(env.get(SECRETS_DIR, "")).items() if name not in env}
    env = {**added, **mounted, **env}
    try:
        toml = _read(file)
        config = parse(toml, env, home(env))
    except ConfigError as e:
        raise ConfigError(f"{e} (file: {file or 'none'})") from e
    config = with_turned_on(config.model_copy(update={"file": place}))
    beside = (here / ENV_FILE).absolute() if here is not None and own is None else env_file
    unread = beside if beside != env_file.absolute() and beside.is_file() else None
    return LoadedSettings(
        config=config,
        file=file,
        place=place,
        toml=toml,
        env=env,
        env_file=env_file if added else None,
        from_env_file=tuple(sorted(added)),
        unread_env_file=unread,
    )


def load_of_server(env: Mapping[str, str], here: Path | None) -> LoadedSettings:
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


def home(env: Mapping[str, str]) -> Path:
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
        if file.is_file() and file.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{file} has over {MAX_FILE_BYTES} bytes: no .env is that long")
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


def _read(file: Path | None) -> str:
    try:
        if file and file.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{file} has over {MAX_FILE_BYTES} bytes: no configuration is that long")
        return file.read_text("utf-8-sig") if file else ""  # editors on Windows write a byte order mark
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read the configuration file: {e}") from e
