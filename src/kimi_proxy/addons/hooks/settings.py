"""Settings of hooks of agents."""

from pydantic import Field

from kimi_proxy.core.section import AddonSettings


class HookSettings(AddonSettings):
    """Tool outputs received from agents' hooks are shortened by the sanitizer's policy."""

    TABLE = "hooks"
    PATHS = ("/api/hooks/",)

    enabled: bool = True
    budget_ms: int = Field(default=250, ge=1, le=10_000)  # a third of the time that agents wait for a hook


SETTINGS = HookSettings
