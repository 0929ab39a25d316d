"""The MCP servers behind the gateway, as the settings name them."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator

from kimi_proxy.core.section import Section

Transport = Literal["plain", "streamable", "stdio"]

PRUNER = "pruner"
ALIASES = {"mcp-pruner": PRUNER}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


class Masking(Section):
    """Strings of a tool's answer longer than `max_chars` keep their head and tail only."""

    enabled: bool = True
    max_chars: int = Field(default=4000, ge=1)
    head_chars: int = Field(default=2000, ge=0)
    tail_chars: int = Field(default=2000, ge=0)


class Pruning(Section):
    """Long texts are pruned for the call's goal before they are masked."""

    enabled: bool = False
    max_prune_ratio: float = Field(default=0.9, ge=0, le=1)
    min_keep_lines: int = Field(default=40, ge=0)
    timeout_ms: int = Field(default=1500, ge=1)


class McpServer(Section):
    """One upstream: an address or a command, and what may pass through."""

    enabled: bool = True
    url: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict)
    env_pass: tuple[str, ...] = ()
    transport: Literal["auto", "plain", "streamable", "stdio"] = "auto"
    timeout_s: float = Field(default=120, gt=0, le=3600)
    start_timeout_s: float = Field(default=30, gt=0, le=600)
    tools: tuple[str, ...] = ()
    root: str = ""
    allow_marker_writes: bool = False
    masking: Masking = Masking()
    pruning: Pruning = Pruning()

    @model_validator(mode="after")
    def _one_way_in(self) -> "McpServer":
        if bool(self.url) == bool(self.command):
            raise ValueError("give either url or command")
        if self.url and urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError("url must begin with http:// or https://")
        if self.transport != "auto" and bool(self.command) != (self.transport == "stdio"):
            raise ValueError("transport stdio goes with command, plain and streamable go with url")
        return self

    @property
    def way(self) -> Transport:
        """How this server is spoken to; `auto` takes an address that ends in /rpc for plain JSON-RPC."""
        if self.transport != "auto":
            return self.transport
        if self.command:
            return "stdio"
        return "plain" if urlsplit(self.url).path.rstrip("/").endswith("/rpc") else "streamable"


def _rpc(port: int) -> dict[str, object]:
    return {"url": f"http://127.0.0.1:{port}/rpc"}


# Our own pruner answers with what was recovered, and reads markers by trade.
_DEFAULTS: dict[str, dict[str, object]] = {
    "sequential-thinking": _rpc(8003),
    "fast-filesystem": _rpc(8004),
    "json-query": _rpc(8005),
    PRUNER: _rpc(8006) | {"masking": {"enabled": False}, "allow_marker_writes": True},
    "shrimp-task-manager": _rpc(8007),
}


def _over_defaults(given: object) -> object:
    """The file's servers beside ours; a server of the same name changes only the keys that it names."""
    if not isinstance(given, Mapping):
        return given
    merged: dict[str, object] = dict(_DEFAULTS)
    for name, server in given.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a server's name: use letters, digits, '.', '_' and '-'")
        merged[name] = _over(_DEFAULTS.get(name, {}), server)
    return merged


def _over(default: Mapping[str, object], given: object) -> object:
    if not isinstance(given, Mapping):
        return given
    merged = {key: value for key, value in default.items() if key != "url" or not given.get("command")}
    for key, value in given.items():
        below = merged.get(key)
        merged[key] = {**below, **value} if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


class Mcp(Section):
    """The servers that the gateway may talk to, by name."""

    servers: Annotated[Mapping[str, McpServer], BeforeValidator(_over_defaults)] = Field(
        default_factory=dict, validate_default=True
    )

    def server(self, name: str) -> McpServer | None:
        """The server of that name or alias, if it is switched on."""
        found = self.servers.get(ALIASES.get(name, name))
        return found if found is not None and found.enabled else None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, server in self.servers.items() if server.enabled)


class Proxy(Section):
    """Where the proxy, the gateway and the dashboard listen."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65_535)
