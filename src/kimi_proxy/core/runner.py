"""The runner of agents, as the settings know it."""

from pydantic import Field

from kimi_proxy.core.section import Section


class Runner(Section):
    """How long the server beside an agent may take to start, to answer and to stop."""

    startup_timeout_ms: int = Field(default=15_000, ge=1, le=600_000)
    shutdown_timeout_ms: int = Field(default=5000, ge=1, le=600_000)
    probe_interval_ms: int = Field(default=3000, ge=10, le=600_000)
    probe_failures: int = Field(default=3, ge=1, le=1000)
