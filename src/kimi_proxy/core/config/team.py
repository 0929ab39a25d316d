"""A team on one server: whether there is one, what its people share, and what they may spend."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator, model_validator

from kimi_proxy.core.config.sections import NAME, SettingsSection

EACH = "*"


class BudgetSettings(SettingsSection):
    """What may be used in a day or a month. `*` gives each person, team or model as much; left out, all share it."""

    person: str = ""
    team: str = ""
    model: str = ""
    per: Literal["day", "month"] = "day"
    requests: int = Field(default=0, ge=0)
    usd: float = Field(default=0, ge=0)
    warn_at: float = Field(default=0.8, gt=0, le=1)
    hard: bool = True

    @model_validator(mode="after")
    def _limits_something(self) -> "BudgetSettings":
        if not self.requests and not self.usd:
            raise ValueError("give it requests, usd, or both")
        return self


class TeamSettings(SettingsSection):
    """Off by default: then there is one person, who needs no token on this machine."""

    enabled: bool = False
    share: Literal["person", "team"] = "person"
    audit_days: int = Field(default=365, ge=1, le=36_500)
    budgets: Mapping[str, BudgetSettings] = Field(default_factory=dict)

    @field_validator("budgets")
    @classmethod
    def _are_named(cls, given: Mapping[str, BudgetSettings]) -> Mapping[str, BudgetSettings]:
        for name in given:
            if not NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a budget's name: use letters, digits, '.', '_' and '-'")
        return given
