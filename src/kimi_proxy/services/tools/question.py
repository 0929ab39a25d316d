"""The question that every agent tool may be asked."""

from pydantic import BaseModel, ConfigDict, Field

from kimi_proxy.core.types import JsonObject

MAX_CHARS = 4000

SCHEMA: JsonObject = {
    "type": "string",
    "description": "Full question; keeps only the lines that matter for it",
}


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    context_focus_question: str | None = Field(default=None, max_length=MAX_CHARS)
