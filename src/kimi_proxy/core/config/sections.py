"""The sections of the settings that are plain lists of keys, each with its default and its bounds."""

import re
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from kimi_proxy.core.addresses import NO_ADDRESS, Address
from kimi_proxy.core.section import SettingsSection

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)  # of a provider or an MCP server
MAX_BASH_TIMEOUT_MS = 600_000


class ToolSettings(SettingsSection):
    """The files and commands allowed to read, bash and grep, and the pruner for their output."""

    enabled: bool = True
    cwd: str = ""
    roots: tuple[str, ...] = ()
    denied_names: tuple[str, ...] = (
        ".env",
        ".env.development",
        ".env.local",
        ".env.production",
        ".env.staging",
        ".env.test",
        ".git-credentials",
        ".gnupg",
        ".netrc",
        ".ssh",
    )
    bash_over_http: bool = False
    bash_timeout_ms: int = Field(default=120_000, ge=1, le=MAX_BASH_TIMEOUT_MS)
    bash_env: tuple[str, ...] = ()
    max_processes: int = Field(default=1000, ge=1)
    max_output_bytes: int = Field(default=1024**3, ge=1024**2)
    max_tokens: int = Field(default=8000, ge=100)
    max_prune_ratio: float = Field(default=0.75, ge=0, le=1)
    max_log_prune_ratio: float = Field(default=0.9, ge=0, le=1)
    max_prune_input_bytes: int = Field(default=2_000_000, ge=1)
    pruner_endpoint: Address = NO_ADDRESS
    pruner_timeout_ms: int = Field(default=5000, ge=1, le=600_000)

    @field_validator("pruner_endpoint")
    @classmethod
    def _is_url(cls, url: Address) -> Address:
        parts = urlsplit(url.get_secret_value())
        if url and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("must begin with http:// or https:// and name a host")
        return url


def read_switch(text: str) -> bool:
    """Return the boolean in a variable such as `true`, `0` or `off`. Raise ValueError for anything else."""
    word = text.strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    if word in ("false", "0", "no", "off"):
        return False
    raise ValueError("neither true nor false")


class CompressionSettings(SettingsSection):
    """A summary replaces old exchanges when the context window is nearly full; the originals are stored."""

    automatic: bool = False
    rescue: bool = True
    threshold_percentage: float = Field(default=85, gt=0, le=100)
    keep_exchanges: int = Field(default=5, ge=1, le=100)
    ask_provider: bool = True
    summary_tokens: int = Field(default=1500, ge=100, le=20_000)
    summary_timeout_s: float = Field(default=30, gt=0, le=600)
    cooldown_s: float = Field(default=60, ge=0, le=86_400)
    max_in_a_row: int = Field(default=3, ge=1, le=1000)


class CompactionSettings(SettingsSection):
    """The light preset: fewer exchanges stay, and the summary is made without a provider."""

    enabled: bool = True
    threshold_percentage: float = Field(default=80, gt=0, le=100)
    max_preserved_messages: int = Field(default=2, ge=1, le=100)


class MemorySettings(SettingsSection):
    """Project memory: a text that is added to the beginning of every new conversation."""

    inject: bool = False
    max_bytes: int = Field(default=65_536, ge=1, le=1024**2)


ClearThinking: TypeAlias = bool | Literal["auto"]


class CacheSettings(SettingsSection):
    """Use of the provider's prompt cache, and of the moments when it is lost anyway."""

    marks: bool = True
    anchor: bool = True
    cut_after_change: bool = True
    clear_thinking: ClearThinking = "auto"  # for API keys, of models for which the provider does so by default


class DisplaySettings(SettingsSection):
    """The currency in which the dashboard and the status line show money; prices are in USD."""

    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    currency_per_usd: float = Field(default=1.0, gt=0, le=1_000_000)


class ReinjectionSettings(SettingsSection):
    """Instructions that are too far from the end of the prompt are repeated there."""

    enabled: bool = False
    threshold: float = Field(default=0.5, gt=0, le=1)
    max_tokens: int = Field(default=4000, ge=1)


class RunnerSettings(SettingsSection):
    """Timeouts of the tool server that `kimi-proxy run` starts for an agent."""

    startup_timeout_ms: int = Field(default=15_000, ge=1, le=600_000)
    shutdown_timeout_ms: int = Field(default=5000, ge=1, le=600_000)
    probe_interval_ms: int = Field(default=3000, ge=10, le=600_000)
    probe_failures: int = Field(default=3, ge=1, le=1000)


class ShutdownSettings(SettingsSection):
    """The steps between a stop signal and the exit."""

    notice_s: float = Field(default=0, ge=0, le=600)
    drain_s: float = Field(default=5, ge=0, le=3600)


class MetricsSettings(SettingsSection):
    """A separate port for Prometheus, which needs no token because it serves only figures."""

    enabled: bool = False
    host: str = "127.0.0.1"
    port: int = Field(default=9464, ge=0, le=65_535)


class RoutingSettings(SettingsSection):
    """A request that nearly fills its context window is sent to a larger model of the same provider."""

    fallback_threshold: float = Field(default=0.90, gt=0, le=1)
    fallback_models: tuple[str, ...] = ()  # known models that [models] lacks and that may answer too, as PROVIDER/NAME
    heavy_duty_fallback: bool = True


class SanitizerSettings(SettingsSection):
    """Long tool results are shortened before they are sent; the originals are stored."""

    enabled: bool = True
    mode: Literal["on", "observe"] = "on"  # observe: decide and count, but change nothing
    policy: Literal["careful", "default", "deep"] = "default"
    threshold_tokens: int = Field(default=0, ge=0)  # 0: the policy's limit
    preview_length: int = Field(default=200, ge=0)
    budget_ms: int = Field(default=400, ge=1, le=60_000)
    recover_tool: bool = True
    recover_rounds: int = Field(default=4, ge=1, le=20)
    change_attested: bool = False
    routing: RoutingSettings = RoutingSettings()
