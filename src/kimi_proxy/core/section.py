"""What every part of the settings is."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Frozen, and misspelt keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
