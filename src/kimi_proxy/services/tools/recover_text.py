"""`recover_text`: the original lines behind a marker."""

from kimi_proxy.core import json
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.recovery import RANGES, Recover
from kimi_proxy.features.tool import Tool, ToolAnswer
from kimi_proxy.services.pruner import Pruner

DESCRIPTION = """\
Read original lines behind a ⟦PRUNÉ: prune_id=<id> lignes <start>-<end> …⟧ marker, exactly as they were.
Take prune_id, start_line and end_line from the marker or from annotations; any other lines of the same text can be \
read too. Lines are 1-based, both ends included, and an end beyond the last line means the last line. Several ranges \
come in the order asked; without ranges the whole text comes back. \
With include_line_numbers each line begins with its number: 120│ …"""

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


def tool(pruner: Pruner) -> Tool[Recover]:
    async def recover_text(who: Caller, asked: Recover) -> ToolAnswer:
        raw = await pruner.recover(who, asked)
        answer: JsonObject = {
            "raw_text": raw,
            "metadata": {"prune_id": asked.id, "ranges": _ranges(asked, raw), "line_numbering": "original"},
        }
        return ToolAnswer(json.encode(answer).decode(), answer)

    return Tool(
        "recover_text",
        DESCRIPTION,
        SCHEMA,
        Recover,
        recover_text,
        title="Recover pruned lines",
        aliases=("recover_range",),
    )


def _ranges(asked: Recover, raw: str) -> list[JsonValue]:
    """Return the requested ranges; without a list, the lines that were returned."""
    if asked.ranges is not None:
        return [lines.model_dump() for lines in asked.ranges]
    if asked.start_char is not None or asked.end_char is not None:
        return []
    start = asked.start_line or asked.start or 1
    return [{"start_line": start, "end_line": start + raw.count("\n")}]
