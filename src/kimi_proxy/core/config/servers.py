"""The MCP servers behind the gateway: how to reach them, and the limits on their calls and answers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from kimi_proxy.core.addresses import NO_ADDRESS, Address
from kimi_proxy.core.config.sections import NAME
from kimi_proxy.core.section import SettingsSection

Transport = Literal["plain", "streamable", "stdio"]

PRUNER = "pruner"
ALIASES = {"mcp-pruner": PRUNER}


class MaskingSettings(SettingsSection):
    """Strings of a tool result longer than `max_chars` keep their head and tail only."""

    enabled: bool = True
    max_chars: int = Field(default=4000, ge=1)
    head_chars: int = Field(default=2000, ge=0)
    tail_chars: int = Field(default=2000, ge=0)


class PruningSettings(SettingsSection):
    """Long texts are pruned for the goal of the call before they are masked."""

    enabled: bool = False
    max_prune_ratio: float = Field(default=0.9, ge=0, le=1)
    min_keep_lines: int = Field(default=40, ge=0)
    timeout_ms: int = Field(default=1500, ge=1)


class McpServer(SettingsSection):
    """One upstream MCP server: a URL or a command, and the limits on its calls and answers."""

    enabled: bool = True
    url: Address = NO_ADDRESS
    command: str = ""
    args: tuple[SecretStr, ...] = ()
    run: bool = True
    env: Mapping[str, SecretStr] = Field(default_factory=dict)
    env_pass: tuple[str, ...] = ()
    transport: Literal["auto", "plain", "streamable", "stdio"] = "auto"
    timeout_s: float = Field(default=120, gt=0, le=3600)
    start_timeout_s: float = Field(default=30, gt=0, le=600)
    tools: tuple[str, ...] = ()
    per: Literal["auto", "person", "server"] = "auto"
    root: str = ""
    allow_marker_writes: bool = False
    masking: MaskingSettings = MaskingSettings()
    pruning: PruningSettings = PruningSettings()

    @model_validator(mode="after")
    def _has_one_transport(self) -> "McpServer":
        if not self.url and not self.is_run:
            raise ValueError("give a url, or a command to run")
        where = urlsplit(self.url.get_secret_value())
        if self.url and where.scheme not in ("http", "https"):
            raise ValueError("url must begin with http:// or https://")
        if self.url and not where.hostname:
            raise ValueError("url must name a host")
        if self.transport != "auto" and bool(self.url) == (self.transport == "stdio"):
            raise ValueError("transport stdio needs a command without a url; plain and streamable need a url")
        return self

    @property
    def is_run(self) -> bool:
        """Return whether kimi-proxy runs this server as its own process."""
        return bool(self.command) and self.run

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the arguments to start it with; a known file server is told its `root`."""
        given = tuple(each.get_secret_value() for each in self.args)
        option = self._folder_option
        return (*given, option, str(self.folder)) if option and self.folder else given

    @property
    def folder(self) -> Path | None:
        """Return its `root`, in which it is started; None if it has none."""
        return Path(self.root).expanduser() if self.root else None

    @property
    def lacks_root(self) -> bool:
        """Return whether this program would write outside of any project: it is not started without a `root`."""
        return self.is_run and not self.root and self._folder_option is not None

    @property
    def _folder_option(self) -> str | None:
        """Return the option by which a known file server takes another folder; None for any other program."""
        arguments = [each.get_secret_value() for each in self.args]
        found = (option for name, option in _FILE_SERVERS.items() if any(name in each for each in arguments))
        return next(found, None)

    @property
    def way(self) -> Transport:
        """Return the transport; `auto` takes a URL that ends in /rpc for plain JSON-RPC."""
        if self.transport != "auto":
            return self.transport
        if not self.url:
            return "stdio"
        return "plain" if urlsplit(self.url.get_secret_value()).path.rstrip("/").endswith("/rpc") else "streamable"


def _rpc(port: int) -> dict[str, object]:
    return {"url": f"http://127.0.0.1:{port}/rpc"}


def _npm(package: str) -> dict[str, object]:
    """Return the command of an npm package. Its first start downloads it, which may take minutes."""
    return {"command": "npx", "args": ("-y", package), "start_timeout_s": 300}


# Programs that may write outside of a project, and the option that adds a folder to their own list. Without that option
# fast-filesystem has the home folder, /home and /tmp, and refuses every other one.
_FILE_SERVERS = {"fast-filesystem-mcp": "--allow"}

_ELSEWHERE: dict[str, object] = {"run": False}

# Our own pruner returns recovered text and must see markers, so it is not masked. The others are stdio programs; until
# `run` or `enabled` is set, they are expected at that URL, run by the user or not at all.
_DEFAULTS: dict[str, dict[str, object]] = {
    "sequential-thinking": _rpc(8003) | _npm("@modelcontextprotocol/server-sequential-thinking@2026.8.31") | _ELSEWHERE,
    "fast-filesystem": _rpc(8004) | _npm("fast-filesystem-mcp@3.5.2") | _ELSEWHERE,
    "json-query": _rpc(8005) | _npm("mcp-json@1.0.0") | _ELSEWHERE,
    PRUNER: _rpc(8006) | {"masking": {"enabled": False}, "allow_marker_writes": True},
    "shrimp-task-manager": _rpc(8007) | _npm("mcp-shrimp-task-manager@1.0.21") | _ELSEWHERE,
    "task-master": _npm("task-master-ai@0.43.1") | {"enabled": False, "env": {"TASK_MASTER_TOOLS": "standard"}},
}
_LOCATION = ("url", "command", "args", "run", "start_timeout_s")


def _over_defaults(given: object) -> object:
    """Return the known servers with the file's; one of a known name changes only the keys that it gives."""
    if not isinstance(given, Mapping):
        return given
    merged: dict[str, object] = dict(_DEFAULTS)
    for name, server in given.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a server's name: use letters, digits, '.', '_' and '-'")
        known = ALIASES.get(name, name)
        if known != name and known in given:
            raise ValueError(f"{name} is an alias of {known}: remove one of the two")
        merged[known] = _over(_DEFAULTS.get(known, {}), server)
    return merged


def _over(default: Mapping[str, object], given: object) -> object:
    if not isinstance(given, Mapping):
        return given
    # Another server under a known name: the URL and the command of the known one do not apply.
    another = given.get("command") or given.get("url")
    merged = {key: value for key, value in default.items() if not (another and key in _LOCATION)}
    for key, value in given.items():
        below = merged.get(key)
        merged[key] = {**below, **value} if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    if merged.get("run") is True and all(merged.get(key) == default.get(key, "") for key in ("url", "command")):
        # A known program uses stdio; its default URL was for a server that the user runs.
        merged.pop("url", None)
    return merged


class McpSettings(SettingsSection):
    """The servers behind the gateway, by name."""

    ready_timeout_s: float = Field(default=12, gt=0, le=600)
    servers: Annotated[Mapping[str, McpServer], BeforeValidator(_over_defaults)] = Field(
        default_factory=dict, validate_default=True
    )

    def switched_on(self) -> dict[str, McpServer]:
        """Return the servers that are switched on, by name and by alias."""
        names = {name: name for name in self.servers} | ALIASES
        return {name: self.servers[known] for name, known in names.items() if self.servers[known].enabled}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, server in self.servers.items() if server.enabled)

    @property
    def run(self) -> tuple[str, ...]:
        """Return the names of the servers that kimi-proxy runs as its own processes."""
        return tuple(
            name for name, server in self.servers.items() if server.enabled and server.is_run and not server.lacks_root
        )

    @property
    def built_in(self) -> tuple[str, ...]:
        """Return the names of those that are built in."""
        return tuple(name for name in self.run if name in _DEFAULTS)

    @property
    def without_root(self) -> tuple[str, ...]:
        """Return the names of those that are not started because they have no `root`."""
        return tuple(name for name, server in self.servers.items() if server.enabled and server.lacks_root)


def can_turn_on(name: str) -> bool:
    """Return whether this is a built-in server with a command."""
    return "command" in _DEFAULTS.get(name, {})


def needs_root(name: str) -> bool:
    """Return whether this is a built-in server that must be kept to a folder."""
    return McpServer.model_validate(_over(_DEFAULTS[name], {"run": True, "enabled": True})).lacks_root


def turn_on(settings: McpSettings, roots: Mapping[str, str]) -> McpSettings:
    """Return settings in which these built-in servers run; those that handle files are kept to their `root`."""
    servers = dict(settings.servers)
    for name in filter(can_turn_on, roots):
        started = McpServer.model_validate(_over(_DEFAULTS[name], {"run": True, "enabled": True}))
        servers[name] = started.model_copy(update={"root": roots[name]}) if started.lacks_root else started
    return settings.model_copy(update={"servers": servers})
