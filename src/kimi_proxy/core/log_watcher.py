"""The logs of agents that are watched, as the settings know them."""

from pydantic import Field

from kimi_proxy.core.section import Section


class LogWatcher(Section):
    """Off unless somebody says so: these files are not ours."""

    enabled: bool = False
    continue_log: str = "~/.continue/logs/core.log"
    kimi_log: str = "~/.kimi/logs/kimi.log"
    kimi_sessions: str = "~/.kimi/sessions"
    poll_ms: int = Field(default=500, ge=20, le=60_000)
