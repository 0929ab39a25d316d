"""Every setting: environment beats file, file beats defaults, an unknown key is an error."""

import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    create_model,
    field_validator,
)

from kimi_proxy.core.addresses import NO_ADDRESS, Address
from kimi_proxy.core.client_address import is_network
from kimi_proxy.core.config.environment import over, unknown_backend
from kimi_proxy.core.config.providers import KEY_ALIASES, Model, Provider, Providers, is_reference
from kimi_proxy.core.config.removed import IgnoredSettings, without_removed
from kimi_proxy.core.config.sections import (
    NAME,
    CacheSettings,
    CompactionSettings,
    CompressionSettings,
    DisplaySettings,
    MemorySettings,
    MetricsSettings,
    ReinjectionSettings,
    RunnerSettings,
    SanitizerSettings,
    ShutdownSettings,
    ToolSettings,
)
from kimi_proxy.core.config.servers import McpServer, McpSettings
from kimi_proxy.core.config.team import TeamSettings
from kimi_proxy.core.errors import ConfigError
from kimi_proxy.core.section import AddonSettings, SettingsSection

DEEPINFRA_URL = "https://api.deepinfra.com/v1/inference/Qwen/Qwen3-Reranker-0.6B"
DAY_S = 86_400


def _clamp(low: int, high: int) -> BeforeValidator:
    def clamp(value: object) -> object:
        return min(max(value, low), high) if isinstance(value, int) and not isinstance(value, bool) else value

    return BeforeValidator(clamp)


class PrunerSettings(SettingsSection):
    """The pruner's address, limits and backend."""

    host: str = "127.0.0.1"
    port: int = Field(default=8006, ge=0, le=65_535)
    max_input_chars: Annotated[int, _clamp(1, 2_000_000)] = 2_000_000
    prune_id_ttl_s: int = Field(default=7 * DAY_S, ge=1)
    cache_ttl_s: Annotated[int, _clamp(1, 3600)] = 30
    cache_max_entries: Annotated[int, _clamp(1, 100_000)] = 256
    backend: Literal["heuristic", "deepinfra"] = "heuristic"
    deepinfra_endpoint_url: Address = Address(DEEPINFRA_URL)
    deepinfra_timeout_ms: Annotated[int, _clamp(1, 120_000)] = 20_000
    deepinfra_max_docs: Annotated[int, _clamp(1, 512)] = 64


class ProxySettings(SettingsSection):
    """The address on which the proxy, the gateway and the dashboard listen."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65_535)


def _is_postgres(url: Address) -> Address:
    if url and not url.get_secret_value().startswith(("postgres://", "postgresql://")):
        raise ValueError("must begin with postgresql://")
    return url


DatabaseUrl = Annotated[Address, AfterValidator(_is_postgres)]


class StoreSettings(SettingsSection):
    """The maximum size of the originals, and the database that several servers share, if any."""

    max_bytes: int = Field(default=2 * 1024**3, ge=1024**2)
    timeout_ms: int = Field(default=2000, ge=100, le=60_000)
    url: DatabaseUrl = NO_ADDRESS
    pool_size: int = Field(default=8, ge=1, le=200)
    transaction_pooler: bool = False
    listen_url: DatabaseUrl = NO_ADDRESS


class AccessSettings(SettingsSection):
    """The Host headers and body sizes that the servers accept; on loopback nothing needs to be set."""

    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: int = Field(default=32 * 1024**2, ge=1024)
    trusted_proxies: tuple[str, ...] = ()

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for each in given:
            if not is_network(each):
                raise ValueError(f"{each[:60]!r} is no address or network, such as 10.0.0.5 or 10.0.0.0/8")
        return given


class LogSettings(SettingsSection):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class CoreSettings(SettingsSection):
    """The tables of the TOML file, except those of addons."""

    mcp_pruner: PrunerSettings = PrunerSettings()
    proxy: ProxySettings = ProxySettings()
    providers: Providers = Field(default_factory=dict, validate_default=True)
    models: Mapping[str, Model] = Field(default_factory=dict)
    sanitizer: SanitizerSettings = SanitizerSettings()
    memory: MemorySettings = MemorySettings()
    cache: CacheSettings = CacheSettings()
    reinjection: ReinjectionSettings = ReinjectionSettings()
    display: DisplaySettings = DisplaySettings()
    compression: CompressionSettings = CompressionSettings()
    compaction: CompactionSettings = CompactionSettings()
    mcp: McpSettings = McpSettings()
    tools: ToolSettings = ToolSettings()
    runner: RunnerSettings = RunnerSettings()
    store: StoreSettings = StoreSettings()
    access: AccessSettings = AccessSettings()
    team: TeamSettings = TeamSettings()
    shutdown: ShutdownSettings = ShutdownSettings()
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()


def _addon_settings() -> Mapping[str, type[AddonSettings]]:
    """Find the settings of each addon by its folder, so that deleting the folder deletes them too."""
    folder = Path(__file__).parents[2] / "addons"
    names = sorted(each.parent.name for each in folder.glob("*/settings.py"))
    return {name: import_module(f"kimi_proxy.addons.{name}.settings").SETTINGS for name in names}


ADDON_SETTINGS = _addon_settings()  # by the names of the addons

if TYPE_CHECKING:
    FileSettings = CoreSettings
else:
    # Everything that the TOML file may hold.
    FileSettings = create_model(
        "FileSettings",
        __base__=CoreSettings,
        **{model.TABLE: (model, model()) for model in ADDON_SETTINGS.values() if model.TABLE},
    )

Table = TypeVar("Table", bound=AddonSettings)


class Config(FileSettings):
    """The file's settings, and those that only the environment may set."""

    home: Path
    file: Path | None = None  # where a change made at run time is written
    token: SecretStr | None = None
    oidc_client_secret: SecretStr | None = None
    deepinfra_api_key: SecretStr | None = None
    provider_keys: Mapping[str, SecretStr] = Field(default_factory=dict)  # of the enabled providers
    key_problems: tuple[str, ...] = ()  # of keys that are missing, for whom a provider is to be asked
    on_demand: frozenset[str] = frozenset()  # known providers that the file does not name
    off_lines: Mapping[str, int] = Field(default_factory=dict)  # where the file switches providers off
    named_servers: frozenset[str] = frozenset()  # MCP servers that the file adds or changes
    ignored: tuple[IgnoredSettings, ...] = ()  # settings that have no effect

    def of(self, addon: type[Table]) -> Table:
        """Return the settings of an addon."""
        found = getattr(self, addon.TABLE, None)
        return found if isinstance(found, addon) else addon()


_RESERVED = (
    "home",
    "file",
    "token",
    "oidc_client_secret",
    "deepinfra_api_key",
    "provider_keys",
    "key_problems",
    "on_demand",
    "off_lines",
    "named_servers",
    "ignored",
)


def parse(toml: str, env: Mapping[str, str], default_home: Path) -> Config:
    """Return the settings of a TOML file's text and the environment. Raise ConfigError, which names the setting."""
    try:
        file = tomllib.loads(toml)
    except tomllib.TOMLDecodeError as e:
        raise ConfigError(f"the configuration file is not valid TOML: {e}") from e
    _refuse_secrets(file, "")
    file, variables = over(file, env)  # from here on with the settings from the environment
    for reserved in _RESERVED:
        if reserved in file:
            raise ConfigError(f"{reserved} cannot be set in the configuration file: set it in the environment")
    file, ignored = without_removed(file, env, lambda name: _place(name.split("."), toml, variables))
    if unknown := unknown_backend(env):
        name = f"KIMI_PRUNING_BACKEND = {unknown[:40]!r}"
        ignored += (IgnoredSettings(name, "lines are scored on this machine; name heuristic, or deepinfra"),)
    values: dict[str, object] = {
        **file,
        "home": named_path("KIMI_PROXY_HOME", env) or default_home,
        "token": _token(env),
        "oidc_client_secret": _secret(env, "KIMI_PROXY_OIDC_CLIENT_SECRET"),
        "deepinfra_api_key": _secret(env, "DEEPINFRA_API_KEY"),
        "ignored": ignored,
    }
    try:
        config = Config.model_validate(_lists_as_tuples(values))
    except ValidationError as e:
        problem = e.errors(include_url=False, include_input=False)[0]
        raise ConfigError(
            _explain([str(each) for each in problem["loc"]], problem["type"], problem["msg"], toml, variables)
        ) from e
    for name, model in config.models.items():
        if model.provider not in config.providers:
            raise ConfigError(f"setting models.{name}.provider: there is no provider {model.provider!r}")
    given = file.get("providers")
    named = tuple(given) if isinstance(given, Mapping) else ()
    on_demand = frozenset(name for name in config.providers if name not in named)
    config = config.model_copy(update={"on_demand": on_demand, "providers": _override_addresses(config.providers, env)})
    off = {name: line_of(toml, f"providers.{name}", "enabled") for name in named if not config.providers[name].enabled}
    known = McpSettings().servers
    servers = frozenset(name for name, server in config.mcp.servers.items() if server != known.get(name))
    keys, problems = _keys(config, env)
    update = {"provider_keys": keys, "key_problems": problems, "off_lines": off, "named_servers": servers}
    return config.model_copy(update=update)


def require_keys(config: Config) -> None:
    """Raise ConfigError if a provider that is switched on lacks its key: for servers, which ask providers."""
    if config.key_problems:
        raise ConfigError(f"{config.key_problems[0]} (file: {config.file or 'none'})")


def _explain(path: list[str], kind: str, what: str, toml: str, variables: Mapping[str, str]) -> str:
    """Describe an invalid setting by name and position; for an unknown one, suggest the closest name."""
    *section, key = path
    name = ".".join(path)
    where = _place(path, toml, variables)
    if kind != "extra_forbidden":
        return f"setting {name}{where}: {what.removeprefix('Value error, ')}"
    near = get_close_matches(key, _known_keys(section), 1)
    return f"setting {name}{where}: there is no such setting" + (f": did you mean {near[0]}?" if near else "")


def _place(path: list[str], toml: str, variables: Mapping[str, str]) -> str:
    """Return the variable or the line that sets a setting, in parentheses; "" if neither is known."""
    *section, key = path
    if variable := next((variables[name] for name in _outwards(path) if name in variables), ""):
        return f" ({variable})"
    line = line_of(toml, ".".join(section), key) if section else line_of(toml, key, "")
    return f" (line {line})" if line else ""


def _outwards(path: list[str]) -> list[str]:
    """Return a setting's name, its section's, and so on to the outermost."""
    return [".".join(path[:end]) for end in range(len(path), 0, -1)]


def _known_keys(section: list[str]) -> list[str]:
    """Return the names that a section may hold; none for sections whose names people choose."""
    model: type[BaseModel] = FileSettings
    for name in section:
        inner = model.model_fields[name].annotation if name in model.model_fields else None
        if not isinstance(inner, type) or not issubclass(inner, BaseModel):
            chosen: dict[str, type[BaseModel]] = {"providers": Provider, "models": Model, "mcp": McpServer}
            return list(chosen.get(section[0], SettingsSection).model_fields)
        model = inner
    return list(model.model_fields)


def _override_addresses(providers: Mapping[str, Provider], env: Mapping[str, str]) -> Mapping[str, Provider]:
    """Return the providers with the addresses that KIMI_PROXY_UPSTREAMS gives some of them."""
    moved = dict(providers)
    for pair in filter(None, map(str.strip, env.get("KIMI_PROXY_UPSTREAMS", "").split(","))):
        name, _, address = (part.strip() for part in pair.partition("="))
        if not NAME.fullmatch(name):  # it may be an address with a password, which is not repeated
            raise ConfigError("KIMI_PROXY_UPSTREAMS: the format is name=address, with commas between several")
        if name not in moved:
            raise ConfigError(f"KIMI_PROXY_UPSTREAMS: there is no provider {name!r}; the format is name=address")
        try:
            moved[name] = Provider.model_validate(moved[name].model_dump() | {"base_url": address})
        except ValidationError as e:
            raise ConfigError(f"KIMI_PROXY_UPSTREAMS: the address of {name} must begin with http:// or https://") from e
    return moved


def line_of(toml: str, section: str, key: str) -> int:
    """Return the line on which a file sets a key, else that of its section, else 0. TOML has other spellings too."""
    header = re.compile(r"\s*\[\s*" + re.escape(section).replace(r"\.", r"\s*\.\s*") + r"\s*\]")
    at = found = 0
    for number, line in enumerate(toml.split("\n"), 1):
        if line.lstrip().startswith("["):
            at = number if header.match(line.replace('"', "")) else 0
            found = found or at
        elif at and re.match(rf"\s*{re.escape(key)}\s*=", line):
            return number
    return found


def named_path(variable: str, env: Mapping[str, str]) -> Path | None:
    """Return the path in a variable, if it is set; service managers and containers do not expand its tilde."""
    path = env.get(variable)
    return Path(os.path.expanduser(path)) if path else None  # noqa: PTH111 - Path's own raises for unknown users


def _keys(config: Config, env: Mapping[str, str]) -> tuple[Mapping[str, SecretStr], tuple[str, ...]]:
    """Return the providers' keys, and the problems with unusable ones."""
    keys: dict[str, SecretStr] = {}
    problems: list[str] = []
    for name, provider in config.providers.items():
        variable = provider.key_variable
        if variable and (provider.enabled or (name in config.on_demand and _variable_set(variable, env))):
            variable = _variable_set(variable, env) or variable
            key = _secret(env, variable)
            problem = _key_problem(key)
            if key is not None and not problem:
                keys[name] = key
            else:
                place = f"setting providers.{name}.api_key: the environment variable {variable}"
                problems.append(f"{place} {problem}")
    return keys, tuple(problems)


def _variable_set(variable: str, env: Mapping[str, str]) -> str:
    """Return the variable that holds a key: that one, or the other name of it; "" if neither is set."""
    names = (variable, KEY_ALIASES.get(variable, ""))
    return next((name for name in names if _secret(env, name) is not None), "")


def _key_problem(key: SecretStr | None) -> str:
    if key is None:
        return 'is not set: set it, or write api_key = "" if clients send their own key'
    text = key.get_secret_value()
    return "" if text.isascii() and text.isprintable() else "holds characters that no key has: set it again"


def _secret(env: Mapping[str, str], variable: str) -> SecretStr | None:
    """Return a variable without the space around it: one that was filled from a file ends in a newline."""
    value = env.get(variable, "").strip()
    return SecretStr(value) if value else None


def _token(env: Mapping[str, str]) -> SecretStr | None:
    token = _secret(env, "KIMI_PROXY_TOKEN")
    if token is None and env.get("KIMI_PROXY_TOKEN"):
        raise ConfigError("KIMI_PROXY_TOKEN is blank: set a token, or unset it")
    return token


def _lists_as_tuples(value: object) -> object:
    if isinstance(value, dict):
        return {k: _lists_as_tuples(v) for k, v in value.items()}
    return tuple(value) if isinstance(value, list) else value


DATABASE_URLS = {
    "url": "KIMI_PROXY_DATABASE_URL",
    "listen_url": "KIMI_PROXY_DATABASE_LISTEN_URL",
}


def _refuse_secrets(table: Mapping[str, object], path: str) -> None:
    for key, value in table.items():
        if isinstance(value, Mapping):
            _refuse_secrets(value, f"{path}{key}.")
        elif key.lower().endswith(("api_key", "token", "secret", "password")) and not _is_reference(path, value):
            hint = _hint(path, key)
            raise ConfigError(f"{path}{key}: secrets are read from the environment only; remove it from the file{hint}")
        elif path == "store." and key in DATABASE_URLS and isinstance(value, str) and _has_password(value):
            raise ConfigError(f"store.{key}: an address with a password belongs in {DATABASE_URLS[key]}, not the file")


def _has_password(url: str) -> bool:
    parts = urlsplit(url)
    return parts.password is not None or "password=" in parts.query.lower()


def _is_reference(path: str, value: object) -> bool:
    """Return whether a key names its variable as `${NAME}`; MCP servers list theirs in env_pass instead."""
    return is_reference(value) and not path.startswith("mcp.servers.")


def _hint(path: str, key: str) -> str:
    if (path, key) == ("team.oidc.", "client_secret"):
        return ", and set KIMI_PROXY_OIDC_CLIENT_SECRET"
    if path.startswith("providers."):
        return ', or name its variable: api_key = "${NAME}"'
    if path.startswith("mcp.servers.") and path.endswith(".env."):
        return f', and write env_pass = ["{key}"] in its place'
    return ""
