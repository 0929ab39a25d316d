"""`/api/compress` and `/api/compaction`: old exchanges give way to a summary, and come back."""

from collections.abc import Awaitable, Callable

import pydantic
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api.errors import json_answer, object_in
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.compression import Preset
from kimi_proxy.features.tool import checked
from kimi_proxy.services.chat.compression import SessionCompressions
from kimi_proxy.services.chat.memory import ProjectMemory
from kimi_proxy.services.chat.sanitizer import Sanitizer
from kimi_proxy.services.sessions import Sessions

Endpoint = Callable[[Request], Awaitable[Response]]


class Wish(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    force: bool = False


def routes(compressions: SessionCompressions) -> list[Route]:
    light = [] if compressions.light is None else _routes("/api/compaction", compressions.light, compressions)
    return [*_routes("/api/compress", compressions.usual, compressions), *light]


def _routes(path: str, preset: Preset, compressions: SessionCompressions) -> list[Route]:
    return [
        Route(f"{path}/stats", _all_stats(compressions), methods=["GET"]),
        Route(f"{path}/{{session_id}}", _compress(compressions, preset), methods=["POST"]),
        Route(f"{path}/{{session_id}}/simulate", _simulate(compressions, preset), methods=["POST"]),
        Route(f"{path}/{{session_id}}/undo", _undo(compressions), methods=["POST"]),
        Route(f"{path}/{{session_id}}/stats", _stats(compressions), methods=["GET"]),
    ]


def _compress(compressions: SessionCompressions, preset: Preset) -> Endpoint:
    async def compress(request: Request) -> Response:
        wish = checked(Wish, await object_in(request, 'send {"force": true}, or nothing'))
        is_forced = wish.force or request.query_params.get("force", "").lower() in ("1", "true")
        fullness = await compressions.fullness(_session(request), preset)
        if fullness.is_below and not is_forced:
            return json_answer(fullness.to_json(), 400)
        return json_answer(await compressions.compress(_session(request), preset))

    return compress


def _simulate(compressions: SessionCompressions, preset: Preset) -> Endpoint:
    async def simulate(request: Request) -> Response:
        return json_answer(await compressions.simulate(_session(request), preset))

    return simulate


def _undo(compressions: SessionCompressions) -> Endpoint:
    async def undo(request: Request) -> Response:
        return json_answer(await compressions.undo(_session(request)))

    return undo


def _stats(compressions: SessionCompressions) -> Endpoint:
    async def stats(request: Request) -> Response:
        return json_answer(await compressions.stats(_session(request)))

    return stats


def _all_stats(compressions: SessionCompressions) -> Endpoint:
    async def stats(request: Request) -> Response:
        return json_answer(await compressions.stats())

    return stats


def _session(request: Request) -> str:
    return str(request.path_params["session_id"])


class Saving(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    content: pydantic.JsonValue


def memory_routes(memory: ProjectMemory, sessions: Sessions) -> list[Route]:
    return [
        Route("/api/memory/stats", _memory_stats(sessions), methods=["GET"]),
        Route("/api/memory/load", _load(memory), methods=["GET"]),
        Route("/api/memory/save", _save(memory), methods=["POST"]),
    ]


def _memory_stats(sessions: Sessions) -> Endpoint:
    async def memory_stats(request: Request) -> Response:
        return json_answer(await sessions.memory_stats())

    return memory_stats


def _load(memory: ProjectMemory) -> Endpoint:
    async def load_memory(request: Request) -> Response:
        return json_answer(await memory.load())

    return load_memory


def _save(memory: ProjectMemory) -> Endpoint:
    async def save_memory(request: Request) -> Response:
        asked = checked(Saving, await object_in(request, 'send {"content": "what every new conversation should know"}'))
        content: JsonValue = asked.content
        return json_answer(await memory.save(content))

    return save_memory


class Switch(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    enabled: bool | None = None  # None: the other way round


class Limit(BaseModel):
    limit: int = Field(default=50, ge=1, le=500)


def sanitizer_routes(sanitizer: Sanitizer) -> list[Route]:
    return [
        Route("/api/sanitizer/stats", _sanitizer_stats(sanitizer), methods=["GET"]),
        Route("/api/sanitizer/toggle", _toggle(sanitizer), methods=["POST"]),
        Route("/api/mask", _masks(sanitizer), methods=["GET"]),
    ]


def _sanitizer_stats(sanitizer: Sanitizer) -> Endpoint:
    async def stats(request: Request) -> Response:
        return json_answer(await sanitizer.stats())

    return stats


def _toggle(sanitizer: Sanitizer) -> Endpoint:
    async def toggle(request: Request) -> Response:
        """Nothing is written: the next start reads the settings again."""
        asked = checked(Switch, await object_in(request, 'send {"enabled": true}, {"enabled": false}, or nothing'))
        sanitizer.is_on = not sanitizer.is_on if asked.enabled is None else asked.enabled
        return json_answer({"enabled": sanitizer.is_on})

    return toggle


def _masks(sanitizer: Sanitizer) -> Endpoint:
    async def masks(request: Request) -> Response:
        asked = checked(Limit, dict(request.query_params))
        return json_answer({"masks": await sanitizer.masks(asked.limit)})

    return masks
