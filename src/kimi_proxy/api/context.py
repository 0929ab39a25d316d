"""Routes for a session's context window: compression, project memory, the sanitizer, and a map of the window."""

from typing import TypedDict

import pydantic
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api.routing import Access, RequestBody, RouteSpec, body, caller_of, json_answer, json_route, query
from kimi_proxy.core.errors import CompressionRefused, FileRefused, InvalidParams, NothingSeen, SessionNotFound
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.chat.compression import FullnessBody, Preset
from kimi_proxy.services.chat.compression import SessionCompressions
from kimi_proxy.services.chat.context import ContextBody, ContextMessageBody, LatestRequests, SummarizedMessageBody
from kimi_proxy.services.chat.memory import ProjectMemory, ProjectMemoryBody
from kimi_proxy.services.chat.sanitizer import MaskBody, Sanitizer, SanitizerStatsBody
from kimi_proxy.services.serialize import (
    CompressedBody,
    CompressionStatsBody,
    MemoryStatsBody,
    SessionCompressionStatsBody,
    UndoneBody,
)
from kimi_proxy.services.sessions import Sessions
from kimi_proxy.services.settings import LiveSettings


class Compress(RequestBody):
    force: bool = False


class CompressQuery(BaseModel):
    force: str = Field(default="", json_schema_extra={"enum": ["", "1", "true"]})  # the same as in the body


class SaveMemory(RequestBody):
    content: pydantic.JsonValue


class ToggleSanitizer(RequestBody):
    enabled: bool | None = None  # None: the opposite of now


class MaskLimit(BaseModel):
    limit: int = Field(default=50, ge=1, le=500)


_REFUSED = (SessionNotFound, NothingSeen, CompressionRefused)
_UNSEEN = (SessionNotFound, NothingSeen)
STATS = RouteSpec("Show the totals of compression", access=Access.PEOPLE)
SESSION_STATS = RouteSpec("Show a session's totals of compression", raises=(SessionNotFound,), access=Access.PEOPLE)
COMPRESS = RouteSpec(
    "Replace a session's old exchanges by a summary",
    query=CompressQuery,
    body=Compress,
    raises=_REFUSED,
    more={400: FullnessBody},
    access=Access.PEOPLE,
)
SIMULATE = RouteSpec("Preview compression", raises=_REFUSED, access=Access.PEOPLE)
UNDO = RouteSpec("Undo the last compression", raises=_REFUSED, access=Access.PEOPLE)
MEMORY_STATS = RouteSpec("Show the share of memory in all requests", access=Access.PEOPLE)
LOAD = RouteSpec("Show the project memory", access=Access.PEOPLE)
SAVE = RouteSpec("Save the project memory", body=SaveMemory, raises=(FileRefused,), access=Access.PEOPLE)
SANITIZER = RouteSpec("Show what the sanitizer removed", access=Access.PEOPLE)
TOGGLE = RouteSpec("Turn the sanitizer on or off until the next start", body=ToggleSanitizer, access=Access.ADMINS)
MASKS = RouteSpec("List the newest originals", query=MaskLimit, access=Access.PEOPLE)
CONTEXT = RouteSpec("Show the newest request of a session", raises=_UNSEEN, access=Access.PEOPLE)
MESSAGE = RouteSpec("Show a message of it", raises=(*_UNSEEN, InvalidParams), access=Access.PEOPLE)
SUMMARIZED = RouteSpec("Show a message that a summary replaced", raises=(*_UNSEEN, InvalidParams), access=Access.PEOPLE)


class EnabledBody(TypedDict):
    enabled: bool


class MasksBody(TypedDict):
    masks: list[MaskBody]


def compression_routes(compressions: SessionCompressions) -> list[Route]:
    """`/api/compress` and, if it is enabled, `/api/compaction`: replace old exchanges by a summary, and undo it."""
    presets = {"/api/compress": compressions.usual, "/api/compaction": compressions.light}
    return [
        route
        for path, preset in presets.items()
        if preset is not None
        for route in _preset_routes(path, preset, compressions)
    ]


def _preset_routes(path: str, preset: Preset, compressions: SessionCompressions) -> list[Route]:
    async def compress(request: Request) -> CompressedBody | Response:
        asked = await body(request, Compress, 'send {"force": true}, or nothing')
        is_forced = asked.force or query(request, CompressQuery).force.lower() in ("1", "true")
        fullness = await compressions.fullness(caller_of(request), _session(request), preset)
        if fullness.is_below and not is_forced:
            return json_answer(fullness.to_json(), 400)
        return await compressions.compress(caller_of(request), _session(request), preset)

    async def simulate(request: Request) -> CompressedBody:
        return await compressions.simulate(caller_of(request), _session(request), preset)

    async def undo(request: Request) -> UndoneBody:
        return await compressions.undo(caller_of(request), _session(request))

    async def stats(request: Request) -> SessionCompressionStatsBody:
        return await compressions.session_stats(caller_of(request), preset, _session(request))

    async def all_stats(request: Request) -> CompressionStatsBody:
        return await compressions.stats(caller_of(request), preset)

    one = f"{path}/{{session_id}}"
    return [
        json_route("GET", f"{path}/stats", all_stats, STATS),
        json_route("POST", one, compress, COMPRESS),
        json_route("POST", f"{one}/simulate", simulate, SIMULATE),
        json_route("POST", f"{one}/undo", undo, UNDO),
        json_route("GET", f"{one}/stats", stats, SESSION_STATS),
    ]


def _session(request: Request) -> str:
    return str(request.path_params["session_id"])


def memory_routes(memory: ProjectMemory, sessions: Sessions) -> list[Route]:
    async def stats(request: Request) -> MemoryStatsBody:
        return await sessions.memory_stats(caller_of(request))

    async def load(request: Request) -> ProjectMemoryBody:
        return await memory.load(caller_of(request))

    async def save(request: Request) -> ProjectMemoryBody:
        asked = await body(request, SaveMemory, 'send {"content": "what every new conversation should know"}')
        content: JsonValue = asked.content
        return await memory.save(caller_of(request), content)

    return [
        json_route("GET", "/api/memory/stats", stats, MEMORY_STATS),
        json_route("GET", "/api/memory/load", load, LOAD),
        json_route("POST", "/api/memory/save", save, SAVE),
    ]


def sanitizer_routes(sanitizer: Sanitizer, settings: LiveSettings) -> list[Route]:
    async def stats(request: Request) -> SanitizerStatsBody:
        return await sanitizer.stats(caller_of(request))

    async def toggle(request: Request) -> EnabledBody:
        """The change is not saved: the next start reads the settings again."""
        asked = await body(request, ToggleSanitizer, 'send {"enabled": true}, {"enabled": false}, or nothing')
        is_on = not sanitizer.is_on if asked.enabled is None else asked.enabled
        settings.switch(caller_of(request), {"sanitizer.enabled": is_on})
        return {"enabled": sanitizer.is_on}

    async def masks(request: Request) -> MasksBody:
        return {"masks": await sanitizer.masks(caller_of(request), query(request, MaskLimit).limit)}

    return [
        json_route("GET", "/api/sanitizer/stats", stats, SANITIZER),
        json_route("POST", "/api/sanitizer/toggle", toggle, TOGGLE),
        json_route("GET", "/api/mask", masks, MASKS),
    ]


def context_routes(sessions: Sessions, latest: LatestRequests) -> list[Route]:
    """The map of a session's context window, as its latest request filled it."""

    async def session_id(request: Request) -> str:
        return (await sessions.session(caller_of(request), _session(request))).id

    async def context(request: Request) -> ContextBody:
        record = await sessions.session(caller_of(request), _session(request))
        return await latest.context(caller_of(request), record.id, record)

    async def message(request: Request) -> ContextMessageBody:
        return await latest.message(caller_of(request), await session_id(request), request.path_params["index"])

    async def read_summarized(request: Request) -> SummarizedMessageBody:
        return await latest.summarized_messages(
            caller_of(request), await session_id(request), request.path_params["index"]
        )

    path = "/api/sessions/{session_id}/context"
    return [
        json_route("GET", path, context, CONTEXT, compressed=True),
        json_route("GET", path + "/{index:int}", message, MESSAGE),
        json_route("GET", path + "/summarized/{index:int}", read_summarized, SUMMARIZED),
    ]
