"""The providers that answer chat requests, with their addresses and limits, and their models."""

import base64
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator

from kimi_proxy.core import json
from kimi_proxy.core.addresses import Address
from kimi_proxy.core.config.sections import NAME
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.section import SettingsSection

if TYPE_CHECKING:
    from kimi_proxy.core.chat.wires import Wire

ENVIRONMENT: Literal["environment"] = "environment"  # the proxy that HTTPS_PROXY names
CODE_ASSIST = "code-assist"  # the type of the provider of a login of Google
CLOUDS = ("bedrock", "vertex")  # types of providers that serve Anthropic's API in a form of their own

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)


class Provider(SettingsSection):
    """A provider: its address, its API, its key and its timeouts."""

    enabled: bool = True
    type: Literal["openai", "anthropic", "gemini", "code-assist", "bedrock", "vertex"] = "openai"
    base_url: Address
    api_key: str = ""
    include_usage: bool = True
    translate: tuple[Literal["messages", "responses"], ...] = ("messages",)
    proxy: Literal["", "environment"] | Address = ""
    connect_timeout_s: float = Field(default=10, gt=0, le=600)
    first_token_timeout_s: float = Field(default=600, gt=0, le=86_400)
    idle_timeout_s: float = Field(default=180, gt=0, le=86_400)
    total_timeout_s: float = Field(default=3600, gt=0, le=86_400)
    requests_per_minute: int = Field(default=0, ge=0)

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, given: Address) -> Address:
        return Address(_address(given.get_secret_value()).rstrip("/"))

    @field_validator("proxy")
    @classmethod
    def _is_proxy(cls, given: str | Address) -> str | Address:
        return Address(_address(given.get_secret_value())) if isinstance(given, Address) else given

    @field_validator("api_key")
    @classmethod
    def _is_reference(cls, given: str) -> str:
        if given and not _VARIABLE.fullmatch(given):
            raise ValueError("must be a variable that contains the key, such as ${KIMI_API_KEY}")
        return given

    @property
    def key_variable(self) -> str:
        """Return the variable that holds the key; "" if clients send their own."""
        return self.api_key[2:-1]

    @property
    def speaks_messages(self) -> bool:
        """Return whether it answers in Anthropic's API, or in a cloud's form of it."""
        return self.type in ("anthropic", *CLOUDS)

    def speaks(self, wire: "Wire") -> bool:
        return self.type in wire.format.provider_types and not self.translates(wire)

    def translates(self, wire: "Wire") -> bool:
        """Return whether requests of that API are translated for it: into chat completions, or into messages."""
        if self.speaks_messages:
            return wire.format.name == "chat"
        if self.type == "code-assist":
            return False
        return wire.format.name in self.translate


class Model(SettingsSection):
    """A model under the name that clients use for it."""

    provider: str
    model: str = ""
    max_context_size: int = Field(default=131_072, ge=1)
    input_usd_per_million: float = Field(default=0, ge=0)
    cached_usd_per_million: float = Field(default=0, ge=0)
    cache_write_usd_per_million: float = Field(default=0, ge=0)
    long_write_usd_per_million: float = Field(default=0, ge=0)
    output_usd_per_million: float = Field(default=0, ge=0)


def is_reference(value: object) -> bool:
    """Return whether a setting names a variable (or nothing) instead of holding a secret."""
    return isinstance(value, str) and (value == "" or _VARIABLE.fullmatch(value) is not None)


def _address(given: str) -> str:
    try:
        parts = urlsplit(given)
        port_is_number = parts.port is None or parts.port >= 0
    except ValueError:
        parts = urlsplit("")
        port_is_number = False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_number:
        raise ValueError("must begin with http:// or https://")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("must not contain a user, password, query or fragment")
    return given


def _known_provider(base_url: str, variable: str = "", **more: object) -> dict[str, object]:
    return {"enabled": False, "base_url": base_url, "api_key": f"${{{variable}}}" if variable else ""} | more


def _chat_only(base_url: str, variable: str, **more: object) -> dict[str, object]:
    """Return a known provider that does not speak the Responses API."""
    return _known_provider(base_url, variable, translate=("messages", "responses"), **more)


# Known, and on demand only: nothing goes to one of these unless the file names it, or a client asks for one of its
# models and there is a key for it, in the environment or from the client itself.
_DEFAULTS: dict[str, dict[str, object]] = {
    "kimi": _chat_only("https://api.moonshot.ai/v1", "KIMI_API_KEY"),
    "kimi-code": _chat_only("https://api.kimi.com/coding/v1", "KIMI_CODE_API_KEY"),
    "openai": _known_provider("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "chatgpt": _known_provider("https://chatgpt.com/backend-api/codex"),  # Codex with the login of a ChatGPT plan
    "anthropic": _known_provider("https://api.anthropic.com", "ANTHROPIC_API_KEY", type="anthropic"),
    "openrouter": _known_provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "nvidia": _chat_only("https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    "mistral": _chat_only("https://api.mistral.ai/v1", "MISTRAL_API_KEY", include_usage=False),
    "groq": _known_provider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "deepseek": _known_provider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "qwen": _known_provider("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    "zai": _chat_only("https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
    "xai": _known_provider("https://api.x.ai/v1", "XAI_API_KEY"),
    "gemini": _chat_only("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY", type="gemini"),
    "code-assist": _known_provider("https://cloudcode-pa.googleapis.com", type="code-assist"),  # Gemini CLI's login
    "ollama": _known_provider("http://127.0.0.1:11434/v1"),
    "lm-studio": _known_provider("http://127.0.0.1:1234/v1"),
    "vllm": _known_provider("http://127.0.0.1:8080/v1"),
}

# Other names under which people keep the same keys.
KEY_ALIASES = {"KIMI_API_KEY": "MOONSHOT_API_KEY", "GEMINI_API_KEY": "GOOGLE_API_KEY"}

# How the keys begin; the longest beginning that fits decides. Mistral's and Z.ai's look like nothing in particular.
_SHARED_BEGINNING = "sk-"
_KEY_BEGINNINGS: dict[str, tuple[str, ...]] = {
    _SHARED_BEGINNING: ("openai", "kimi", "deepseek", "qwen"),
    "sk-proj-": ("openai",),
    "sk-svcacct-": ("openai",),
    "sk-admin-": ("openai",),
    "sk-ant-": ("anthropic",),
    "sk-kimi-": ("kimi-code",),
    "sk-or-": ("openrouter",),
    "nvapi-": ("nvidia",),
    "gsk_": ("groq",),
    "xai-": ("xai",),
    "AIza": ("gemini",),
    "ya29.": ("code-assist", "gemini"),
}
CHATGPT = "chatgpt"
_CHATGPT_CLAIM = "https://api.openai.com/auth"  # in the token of a login with a plan


def is_key_of(provider: str, credential: str) -> bool:
    """Return whether a client's credential looks like a key, or a login, of that known provider."""
    if provider == CHATGPT:
        return _is_chatgpt_login(credential)
    return provider in _KEY_BEGINNINGS.get(_beginning(credential), ())


def _beginning(credential: str) -> str:
    return max((each for each in _KEY_BEGINNINGS if credential.startswith(each)), key=len, default="")


def may_pass_key(name: str, provider: Provider, credential: str, is_on_demand: bool) -> bool:
    """Return whether a client's own key may be sent to a provider, by its form or because the file names the provider.

    Without a file, only the form counts, and no key reaches a program that happens to listen on this machine. With one,
    a key is sent unless it has the form of another known provider.
    """
    maker = maker_at(name, provider)
    if is_on_demand:
        return is_key_of(maker, credential)
    return not maker or _beginning(credential) in ("", _SHARED_BEGINNING) or is_key_of(maker, credential)


def _is_chatgpt_login(credential: str) -> bool:
    """Many gateways take a JSON web token: only one that names a plan of ChatGPT may go there."""
    claims = credential.split(".")[1:2] if credential.startswith("eyJ") else []
    try:
        decoded = [json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in claims]
    except (ParseError, ValueError):
        return False
    return any(isinstance(each, Mapping) and _CHATGPT_CLAIM in each for each in decoded)


def is_local(provider: Provider) -> bool:
    """Return whether a provider runs on this machine."""
    return provider.base_url.host in ("127.0.0.1", "localhost", "::1")


@cache
def _makers() -> dict[str | None, str]:
    """Return the known providers by their hosts; of several on one host the first."""
    return {urlsplit(str(default["base_url"])).hostname: known for known, default in reversed(_DEFAULTS.items())}


def maker_at(name: str, provider: Provider) -> str:
    """Return which known provider answers at an address, whatever the file calls it; "" if none that we know."""
    found = "" if is_local(provider) else _makers().get(provider.base_url.host, "")
    return found or (name if name in _DEFAULTS else "")


def _at_same_address(provider: object) -> dict[str, object]:
    """Return the unsupported APIs of a known provider that the file configures under another name."""
    address = str(provider.get("base_url")).rstrip("/") if isinstance(provider, Mapping) else ""
    known = next((each for each in _DEFAULTS.values() if each["base_url"] == address), {})
    return {name: value for name, value in known.items() if name == "translate"}


def _over_defaults(given: object) -> object:
    """Return the file's providers merged with the known ones; a table enables its provider by default."""
    if not isinstance(given, Mapping):
        return given
    merged: dict[str, object] = {}
    for name, provider in given.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a provider's name: use letters, digits, '.', '_' and '-'")
        known = _DEFAULTS.get(name) or _at_same_address(provider)
        merged[name] = {**known, "enabled": True, **provider} if isinstance(provider, Mapping) else provider
    return merged | {name: known for name, known in _DEFAULTS.items() if name not in merged}


Providers = Annotated[Mapping[str, Provider], BeforeValidator(_over_defaults)]
