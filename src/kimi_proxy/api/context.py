"""What shapes a session's context window: compression, project memory, the sanitizer, and a map of the window."""

import pydantic
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api.answers import RequestBody, body, json_answer, json_route, query
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.compression import Preset
from kimi_proxy.services.chat.compression import SessionCompressions
from kimi_proxy.services.chat.context import LatestRequests
from kimi_proxy.services.chat.memory import ProjectMemory
from kimi_proxy.services.chat.sanitizer import Sanitizer
from kimi_proxy.services.sessions import Sessions


class Compress(RequestBody):
    force: bool = False


class SaveMemory(RequestBody):
    content: pydantic.JsonValue


class ToggleSanitizer(RequestBody):
    enabled: bool | None = None  # None: the opposite of now


class MaskLimit(BaseModel):
    limit: int = Field(default=50, ge=1, le=500)


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
    async def compress(request: Request) -> JsonObject | Response:
        asked = await body(request, Compress, 'send {"force": true}, or nothing')
        is_forced = asked.force or request.query_params.get("force", "").lower() in ("1", "true")
        fullness = await compressions.fullness(_session(request), preset)
        if fullness.is_below and not is_forced:
            return json_answer(fullness.to_json(), 400)
        return await compressions.compress(_session(request), preset)

    one = f"{path}/{{session_id}}"
    return [
        json_route("GET", f"{path}/stats", lambda _: compressions.stats()),
        json_route("POST", one, compress),
        json_route("POST", f"{one}/simulate", lambda request: compressions.simulate(_session(request), preset)),
        json_route("POST", f"{one}/undo", lambda request: compressions.undo(_session(request))),
        json_route("GET", f"{one}/stats", lambda request: compressions.stats(_session(request))),
    ]


def _session(request: Request) -> str:
    return str(request.path_params["session_id"])


def memory_routes(memory: ProjectMemory, sessions: Sessions) -> list[Route]:
    async def save(request: Request) -> JsonObject:
        asked = await body(request, SaveMemory, 'send {"content": "what every new conversation should know"}')
        content: JsonValue = asked.content
        return await memory.save(content)

    return [
        json_route("GET", "/api/memory/stats", lambda _: sessions.memory_stats()),
        json_route("GET", "/api/memory/load", lambda _: memory.load()),
        json_route("POST", "/api/memory/save", save),
    ]


def sanitizer_routes(sanitizer: Sanitizer) -> list[Route]:
    async def toggle(request: Request) -> JsonObject:
        """Nothing is written: the next start reads the settings again."""
        asked = await body(request, ToggleSanitizer, 'send {"enabled": true}, {"enabled": false}, or nothing')
        sanitizer.is_on = not sanitizer.is_on if asked.enabled is None else asked.enabled
        return {"enabled": sanitizer.is_on}

    async def masks(request: Request) -> JsonObject:
        return {"masks": await sanitizer.masks(query(request, MaskLimit).limit)}

    return [
        json_route("GET", "/api/sanitizer/stats", lambda _: sanitizer.stats()),
        json_route("POST", "/api/sanitizer/toggle", toggle),
        json_route("GET", "/api/mask", masks),
    ]


def context_routes(sessions: Sessions, latest: LatestRequests) -> list[Route]:
    """The map of a session's context window, as its latest request filled it."""

    async def session_id(request: Request) -> str:
        return (await sessions.session(_session(request))).id

    async def context(request: Request) -> JsonObject:
        return await latest.context(await session_id(request))

    async def message(request: Request) -> JsonObject:
        return await latest.message(await session_id(request), request.path_params["index"])

    async def summarized(request: Request) -> JsonObject:
        return await latest.summarized(await session_id(request), request.path_params["index"])

    path = "/api/sessions/{session_id}/context"
    return [
        json_route("GET", path, context, compressed=True),
        json_route("GET", path + "/{index:int}", message),
        json_route("GET", path + "/gave_way/{index:int}", summarized),
    ]
