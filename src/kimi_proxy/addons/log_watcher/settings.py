"""Settings of the log watcher."""

from pydantic import Field

from kimi_proxy.core.section import AddonSettings


class LogWatcherSettings(AddonSettings):
    """The counts in the logs of agents are shown; off by default, because these files belong to other programs."""

    TABLE = "log_watcher"

    enabled: bool = False
    continue_log: str = "~/.continue/logs/core.log"
    continue_cli_log: str = "~/.continue/logs/cn.log"
    kimi_code_sessions: str = "~/.kimi-code/sessions"
    kimi_log: str = "~/.kimi/logs/kimi.log"
    kimi_sessions: str = "~/.kimi/sessions"
    poll_ms: int = Field(default=500, ge=20, le=60_000)

    @property
    def is_on(self) -> bool:
        return self.enabled


SETTINGS = LogWatcherSettings
