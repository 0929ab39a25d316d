"""`recover_text`: the original lines behind a marker."""

from pydantic import BaseModel, ConfigDict, model_validator

from kimi_proxy.core import json
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.recovery import RANGES, LinesArgument
from kimi_proxy.features.tool import Tool, ToolAnswer
from kimi_proxy.services.pruner import Pruner

DESCRIPTION = """\
Read original lines behind a ⟦PRUNÉ: prune_id=<id> lignes <start>-<end> …⟧ marker, exactly as they were.
Take prune_id, start_line and end_line from the marker or from annotations; any other lines of the same text can be \
read too. Lines are 1-based, both ends included, and an end beyond the last line means the last line. Several ranges \
come in the order asked. With include_line_numbers each line begins with its number: 120│ …"""

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "prune_id": {"type": "string"},
        "ranges": RANGES,
        "include_line_numbers": {"type": "boolean"},
    },
    "required": ["prune_id", "ranges", "include_line_numbers"],
    "additionalProperties": False,
}


class RecoverText(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    prune_id: str
    ranges: list[LinesArgument]
    include_line_numbers: bool = False

    @model_validator(mode="before")
    @classmethod
    def _in_our_shape(cls, given: object) -> object:
        """Return the arguments with what models write in their place: `id`, and one range without the list."""
        if not isinstance(given, dict):
            return given
        named = dict(given)
        if "id" in named and "prune_id" not in named:
            named["prune_id"] = named.pop("id")
        if "start_line" in named and "ranges" not in named:
            start = named.pop("start_line")
            named["ranges"] = [{"start_line": start, "end_line": named.pop("end_line", start)}]
        return named


def tool(pruner: Pruner) -> Tool[RecoverText]:
    async def recover_text(who: Caller, asked: RecoverText) -> ToolAnswer:
        ranges = [(lines.start_line, lines.end_line) for lines in asked.ranges]
        answer: JsonObject = {
            "raw_text": await pruner.recover(who, asked.prune_id, ranges, asked.include_line_numbers),
            "metadata": {
                "prune_id": asked.prune_id,
                "ranges": [lines.model_dump() for lines in asked.ranges],
                "line_numbering": "original",
            },
        }
        return ToolAnswer(json.encode(answer).decode(), answer)

    return Tool(
        "recover_text",
        DESCRIPTION,
        SCHEMA,
        RecoverText,
        recover_text,
        title="Recover pruned lines",
        aliases=("recover_range",),
    )
