"""JSON Schemas of what leaves by another way than an answer: WebSocket events, exports and recordings."""

from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from kimi_proxy.api.openapi.events import EVENTS
from kimi_proxy.api.openapi.session_bodies import MetricsBody
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.recording import RecordedLine, RecordingHeadLine

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DEFINED = "#/$defs/{}"
# What one document of each may be: a frame of `/ws`, the file of /api/export/json, a line of a recording.
KINDS: Mapping[str, tuple[str, tuple[object, ...]]] = {
    "events": ("A frame of /ws", EVENTS),
    "export": ("The file of /api/export/json", (MetricsBody,)),
    "recording": ("A line of a recording", (RecordingHeadLine, RecordedLine)),
}


@cache
def schema(name: str) -> JsonObject:
    """Return the schema of `events`, `export` or `recording`. Raise InvalidParams for another name."""
    if name not in KINDS:
        raise InvalidParams("name", f"there are schemas of {', '.join(KINDS)}")
    title, kinds = KINDS[name]
    made, defined = of_types(kinds, DEFINED)
    one: JsonObject = made[0] if len(made) == 1 else {"oneOf": made}
    return {"$schema": DIALECT, "title": title, **one, "$defs": defined}


def of_types(kinds: Sequence[object], ref: str) -> tuple[list[JsonObject], dict[str, JsonValue]]:
    """Return the schema of each type, and those that they refer to by name."""
    made, defined = msgspec.json.schema_components(kinds, schema_hook=_anything, ref_template=ref.format("{name}"))
    return [dict(each) for each in made], dict(defined)


def _anything(kind: type) -> JsonObject:
    """Return the schema of `object`: any JSON. Raise NotImplementedError for what JSON cannot hold."""
    if kind is object:
        return {"description": "any JSON"}
    raise NotImplementedError(kind)
