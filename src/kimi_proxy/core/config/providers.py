"""The providers that answer chat requests, with their addresses and limits, and their models."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator

from kimi_proxy.core.chat.wires import Wire
from kimi_proxy.core.config.sections import NAME, SettingsSection

ENVIRONMENT = "environment"

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)


class Provider(SettingsSection):
    """A provider: its address, its API, its key and its timeouts."""

    enabled: bool = True
    type: Literal["openai", "anthropic", "gemini"] = "openai"
    base_url: str
    api_key: str = ""
    include_usage: bool = True
    proxy: str = ""
    connect_timeout_s: float = Field(default=10, gt=0, le=600)
    first_token_timeout_s: float = Field(default=600, gt=0, le=86_400)
    idle_timeout_s: float = Field(default=180, gt=0, le=86_400)
    total_timeout_s: float = Field(default=3600, gt=0, le=86_400)
    requests_per_minute: int = Field(default=0, ge=0)

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, given: str) -> str:
        return _address(given).rstrip("/")

    @field_validator("proxy")
    @classmethod
    def _is_proxy(cls, given: str) -> str:
        return given if given in ("", ENVIRONMENT) else _address(given)

    @field_validator("api_key")
    @classmethod
    def _is_reference(cls, given: str) -> str:
        if given and not _VARIABLE.fullmatch(given):
            raise ValueError("name the variable that holds the key, such as ${KIMI_API_KEY}")
        return given

    @property
    def key_variable(self) -> str:
        """Return the variable that holds the key; "" if clients send their own."""
        return self.api_key[2:-1]

    def speaks(self, wire: Wire) -> bool:
        return self.type in wire.format.provider_types


class Model(SettingsSection):
    """A model under the name that clients use for it."""

    provider: str
    model: str = ""
    max_context_size: int = Field(default=131_072, ge=1)
    input_usd_per_million: float = Field(default=0, ge=0)
    cached_usd_per_million: float = Field(default=0, ge=0)
    cache_write_usd_per_million: float = Field(default=0, ge=0)
    output_usd_per_million: float = Field(default=0, ge=0)


def is_reference(value: object) -> bool:
    """Return whether a setting names a variable (or nothing) instead of holding a secret."""
    return isinstance(value, str) and (value == "" or _VARIABLE.fullmatch(value) is not None)


def _address(given: str) -> str:
    try:
        parts = urlsplit(given)
        port_is_number = parts.port is None or parts.port >= 0
    except ValueError:
        parts, port_is_number = urlsplit(""), False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_number:
        raise ValueError("give an address that begins with http:// or https://")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("an address here holds no user, no password, no query and no fragment")
    return given


def _disabled(base_url: str, variable: str = "", **more: object) -> dict[str, object]:
    return {"enabled": False, "base_url": base_url, "api_key": f"${{{variable}}}" if variable else ""} | more


# Known but disabled: nothing leaves this machine until the user enables one.
_DEFAULTS: dict[str, dict[str, object]] = {
    "kimi": _disabled("https://api.moonshot.ai/v1", "KIMI_API_KEY"),
    "openai": _disabled("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic": _disabled("https://api.anthropic.com", "ANTHROPIC_API_KEY", type="anthropic"),
    "openrouter": _disabled("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "nvidia": _disabled("https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    "mistral": _disabled("https://api.mistral.ai/v1", "MISTRAL_API_KEY", include_usage=False),
    "groq": _disabled("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "deepseek": _disabled("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "gemini": _disabled("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY", type="gemini"),
    "ollama": _disabled("http://127.0.0.1:11434/v1"),
    "lm-studio": _disabled("http://127.0.0.1:1234/v1"),
    "vllm": _disabled("http://127.0.0.1:8080/v1"),
}


def _over_defaults(given: object) -> object:
    """Return the file's providers with the known ones; one that the file names is enabled unless it says otherwise."""
    if not isinstance(given, Mapping):
        return given
    merged: dict[str, object] = {}
    for name, provider in given.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a provider's name: use letters, digits, '.', '_' and '-'")
        known = _DEFAULTS.get(name, {}) | {"enabled": True}
        merged[name] = {**known, **provider} if isinstance(provider, Mapping) else provider
    return merged | {name: known for name, known in _DEFAULTS.items() if name not in merged}


Providers = Annotated[Mapping[str, Provider], BeforeValidator(_over_defaults)]
