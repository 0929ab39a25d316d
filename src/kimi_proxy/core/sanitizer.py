"""The sanitizer, as the settings know it."""

from pydantic import Field

from kimi_proxy.core.section import Section


class Routing(Section):
    """A request that nearly fills the window of its model goes to a larger one of the same provider."""

    fallback_threshold: float = Field(default=0.90, gt=0, le=1)
    heavy_duty_fallback: bool = True


class Sanitizer(Section):
    """Long outputs of tools are shortened before they are sent, and kept."""

    enabled: bool = True
    threshold_tokens: int = Field(default=1000, ge=1)
    preview_length: int = Field(default=200, ge=0)
    budget_ms: int = Field(default=400, ge=1, le=60_000)
    recover_tool: bool = True
    recover_rounds: int = Field(default=4, ge=1, le=20)
    routing: Routing = Routing()
