"""Settings from the environment: named variables, and `KIMI_PROXY__SECTION__KEY` for all others."""

import tomllib
from collections.abc import Callable, Mapping

from kimi_proxy.core.config.sections import read_switch
from kimi_proxy.core.errors import ConfigError

_BACKENDS = {"heuristic": "heuristic", "deepinfra": "deepinfra", "cloud": "deepinfra"}

# variable → section, key, reader; a later variable for the same key is an alias and loses to the earlier one
ENVIRONMENT: tuple[tuple[str, str, str, Callable[[str], object]], ...] = (
    ("MCP_PRUNER_HOST", "mcp_pruner", "host", str),
    ("MCP_PRUNER_PORT", "mcp_pruner", "port", int),
    ("KIMI_PROXY_HOST", "proxy", "host", str),
    ("KIMI_PROXY_PORT", "proxy", "port", int),
    ("KIMI_PROXY_DATABASE_URL", "store", "url", str.strip),
    ("KIMI_PROXY_DATABASE_LISTEN_URL", "store", "listen_url", str.strip),
    ("MCP_PRUNER_MAX_INPUT_CHARS", "mcp_pruner", "max_input_chars", int),
    ("MCP_PRUNER_PRUNE_ID_TTL_S", "mcp_pruner", "prune_id_ttl_s", int),
    ("MCP_PRUNER_CACHE_TTL_S", "mcp_pruner", "cache_ttl_s", int),
    ("MCP_PRUNER_CACHE_MAX_ITEMS", "mcp_pruner", "cache_max_entries", int),
    ("MCP_PRUNER_CACHE_MAX_ENTRIES", "mcp_pruner", "cache_max_entries", int),
    ("KIMI_PRUNING_BACKEND", "mcp_pruner", "backend", lambda v: _BACKENDS.get(v.strip().lower(), "heuristic")),
    ("DEEPINFRA_ENDPOINT_URL", "mcp_pruner", "deepinfra_endpoint_url", str),
    ("DEEPINFRA_TIMEOUT_MS", "mcp_pruner", "deepinfra_timeout_ms", int),
    ("DEEPINFRA_MAX_DOCS", "mcp_pruner", "deepinfra_max_docs", int),
    (
        "KIMI_PROXY_ALLOWED_HOSTS",
        "access",
        "allowed_hosts",
        lambda v: tuple(h.strip() for h in v.split(",") if h.strip()),
    ),
    ("JEEVES_MCP_PRUNER_ENABLED", "tools", "enabled", read_switch),
    ("JEEVES_PRUNER_ENDPOINT", "tools", "pruner_endpoint", str.strip),
    ("PRUNER_URL", "tools", "pruner_endpoint", str.strip),
    ("PRUNER_TIMEOUT_MS", "tools", "pruner_timeout_ms", int),
    ("MCP_PRUNER_CWD", "tools", "cwd", str),
    ("KIMI_PROXY_LOG_LEVEL", "log", "level", lambda v: v.strip().lower()),
)

PREFIX = "KIMI_PROXY__"  # before a setting's path, its steps separated by two underscores

VARIABLES = (
    "KIMI_PROXY_HOME",
    "KIMI_PROXY_CONFIG",
    "KIMI_PROXY_FOLDER",
    "KIMI_PROXY_TOKEN",
    "KIMI_PROXY_OIDC_CLIENT_SECRET",
    "KIMI_PROXY_UPSTREAMS",
    "DEEPINFRA_API_KEY",
    *(name for name, *_ in ENVIRONMENT),
)


def unknown_backend(env: Mapping[str, str]) -> str:
    """Return the value of KIMI_PRUNING_BACKEND if it names no backend: it then means the local one. "" if it does."""
    name = env.get("KIMI_PRUNING_BACKEND", "").strip()
    return "" if name.lower() in _BACKENDS else name


def over(file: Mapping[str, object], env: Mapping[str, str]) -> tuple[dict[str, object], dict[str, str]]:
    """Return a file's settings with those of the environment over them, and which variable set which.

    Raise ConfigError for a number or a switch that is none.
    """
    settings = dict(file)
    variables = dict[str, str]()
    for variable in sorted(name for name in env if name.startswith(PREFIX)):
        _set(settings, variable.removeprefix(PREFIX).lower().split("__"), _value(env[variable]), variable, variables)
    for variable, section, key, reader in reversed(ENVIRONMENT):
        if text := env.get(variable, ""):
            _set(settings, [section, key], _read(variable, text, reader), variable, variables)
    return settings, variables


def _set(settings: dict[str, object], path: list[str], value: object, variable: str, variables: dict[str, str]) -> None:
    """Set one setting in copies of the tables around it. A table is laid over the table that is there."""
    *sections, key = path
    table = settings
    for name in sections:
        inner = table.get(name, {})
        if not isinstance(inner, Mapping):
            return  # the settings report what is wrong with it
        table[name] = inner = dict(inner)
        table = inner
    below = table.get(key)
    table[key] = {**below, **value} if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    variables[".".join(path)] = variable


def _value(text: str) -> object:
    """Return the value of a variable: a number, boolean, list or table in TOML syntax, otherwise the text itself."""
    try:
        read = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return read["value"] if len(read) == 1 else text


def _read(variable: str, text: str, reader: Callable[[str], object]) -> object:
    try:
        return reader(text)
    except ValueError as e:
        wanted = "true or false" if reader is read_switch else "a whole number"
        raise ConfigError(f"environment variable {variable} must be {wanted}, not {text[:40]!r}") from e
