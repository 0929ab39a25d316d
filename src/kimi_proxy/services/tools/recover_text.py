"""`recover_text`: the original lines behind a marker."""

from collections.abc import Sequence

from kimi_proxy.core import json
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.recovery import RANGES, LineRange, Recover, check, selection_of
from kimi_proxy.features.tool import Tool, ToolAnswer
from kimi_proxy.services.recover import Recovery

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


def tool(recovery: Recovery) -> Tool[Recover]:
    async def recover_text(who: Caller, asked: Recover) -> ToolAnswer:
        if asked.ranges == []:
            check(())
        found = await recovery.read(who, asked.id, selection_of(asked))
        metadata: JsonObject = {
            "prune_id": asked.id,
            "ranges": _ranges(asked, found.ranges),
            "line_numbering": "original",
            "numbering": found.numbering,
        }
        answer: JsonObject = {"raw_text": found.text, "metadata": metadata}
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


def _ranges(asked: Recover, found: Sequence[LineRange]) -> list[JsonValue]:
    """Return the ranges as they were listed; without a list, the lines that were returned."""
    if asked.ranges is not None:
        return [lines.model_dump() for lines in asked.ranges]
    return [{"start_line": start, "end_line": end} for start, end in found]
