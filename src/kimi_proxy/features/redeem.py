"""The tool by which an agent reads what a marker hides, offered beside the tools of every masked server."""

from collections.abc import Awaitable, Callable

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from kimi_proxy.core.errors import InvalidRange
from kimi_proxy.core.types import JsonObject
from kimi_proxy.features import recovery
from kimi_proxy.features.tool import Answer, Integer, Tool

NAME = "recover_text"
SPARE_NAME = "kimi_proxy_recover_text"  # for servers that have a tool of the first name themselves

DESCRIPTION = """\
Read the original text behind a [KIMI_PROXY_OBSERVATION_MASKED … id=msk_…] or ⟦PRUNÉ: prune_id=prn_… …⟧ marker in an \
answer of this server, exactly as it was. Without a range the whole text comes back, which may be long: prefer \
start_line and end_line (counted from 1, both included), or start_char and end_char (counted from 0, end_char not \
included; a marker's hidden part begins at its head= and ends at original_chars minus tail=). Never write a marker \
into a file: recover the text first. Originals are kept for days after their last use."""

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "The id in the marker, such as msk_0123456789abcdef"},
        "start_line": {"type": "integer", "minimum": 1},
        "end_line": {"type": "integer", "minimum": 1},
        "start_char": {"type": "integer", "minimum": 0},
        "end_char": {"type": "integer", "minimum": 0},
    },
    "required": ["id"],
    "additionalProperties": False,
}


class Recover(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: str = Field(validation_alias=AliasChoices("id", "prune_id", "mask_id"))
    start_line: Integer | None = None
    end_line: Integer | None = None
    start_char: Integer | None = None
    end_char: Integer | None = None


def tool(original: Callable[[str], Awaitable[str]]) -> Tool[Recover]:
    async def recover(asked: Recover) -> Answer:
        return Answer(part(await original(asked.id), asked))

    return Tool(NAME, DESCRIPTION, SCHEMA, Recover, recover, title="Recover masked text")


def part(text: str, asked: Recover) -> str:
    """What was asked of `text`: some of its lines, some of its characters, or all."""
    by_line = asked.start_line is not None or asked.end_line is not None
    by_char = asked.start_char is not None or asked.end_char is not None
    if by_line and by_char:
        raise InvalidRange("ask for lines or for characters, not for both")
    if by_line:
        start = 1 if asked.start_line is None else asked.start_line
        end = max(start, len(text) + 1) if asked.end_line is None else asked.end_line
        return recovery.recover(text, [(start, end)], with_numbers=False)
    return _characters(text, asked.start_char or 0, asked.end_char) if by_char else text


def _characters(text: str, start: int, end: int | None) -> str:
    if start < 0 or (end is not None and end < start):
        raise InvalidRange(f"characters {start} to {end} are no range: they are counted from 0")
    if start > len(text):
        raise InvalidRange(f"start_char {start} is beyond the end: the text has {len(text)} characters")
    return text[start:end]
