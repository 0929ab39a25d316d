"""The built-in MCP servers that `kimi-proxy mcp up NAME` turned on; they are remembered beside the store."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kimi_proxy.core.config import Config
from kimi_proxy.core.config.servers import needs_root, turn_on
from kimi_proxy.core.errors import ConfigError
from kimi_proxy.proxy.private_files import private_file

FILE = "mcp-servers.json"


@dataclass(frozen=True, slots=True)
class TurnedOn:
    """`root` is the folder in which it was turned on."""

    root: str


def file_in(home: Path) -> Path:
    return home / FILE


def read(home: Path) -> dict[str, TurnedOn]:
    """Return the servers by name. Raise ConfigError if the file cannot be read."""
    file = file_in(home)
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, TurnedOn]) if file.is_file() else {}
    except (OSError, msgspec.DecodeError) as e:
        raise ConfigError(f"cannot read {file}: {e}: delete it, and turn the servers on again") from e


def remember(home: Path, names: Iterable[str], root: Path) -> None:
    """Turn servers on from the next start on. Raise ConfigError if one would have the whole disk as its folder."""
    for name in names:
        if root == Path(root.anchor) and needs_root(name):
            raise ConfigError(
                f"{name} is not turned on for the whole disk: run kimi-proxy mcp up {name} in the folder of a project, "
                f'or set run = true and root = "{root}" in [mcp.servers.{name}]'
            )
    _write(home, read(home) | {name: TurnedOn(str(root)) for name in names})


def forget(home: Path, names: Iterable[str]) -> list[str]:
    """Turn servers off again; return those that were on. Without names, all of them."""
    known = read(home)
    wanted = set(names)
    gone = [name for name in known if not wanted or name in wanted]
    if gone:
        _write(home, {name: value for name, value in known.items() if name not in gone})
    return gone


def _write(home: Path, servers: Mapping[str, TurnedOn]) -> None:
    file = file_in(home)
    fresh = file.with_suffix(f".{os.getpid()}")
    private_file(fresh)
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(servers)) + b"\n")
    fresh.replace(file)


def with_turned_on(config: Config) -> Config:
    """Return the settings with these servers running; one that the file configures stays as it says there."""
    chosen = {name: one.root for name, one in read(config.home).items() if name not in config.named_servers}
    return config.model_copy(update={"mcp": turn_on(config.mcp, chosen)}) if chosen else config
