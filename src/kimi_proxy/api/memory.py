"""`/api/memory`: what is known of the project, and how much of the conversations is memory."""

from collections.abc import Awaitable, Callable

import pydantic
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api.body import object_in
from kimi_proxy.api.errors import json_answer
from kimi_proxy.core.types import JsonValue
from kimi_proxy.features.tool import checked
from kimi_proxy.services.project_memory import ProjectMemory
from kimi_proxy.services.sessions import Sessions

Endpoint = Callable[[Request], Awaitable[Response]]


class Saving(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    content: pydantic.JsonValue


def routes(memory: ProjectMemory, sessions: Sessions) -> list[Route]:
    return [
        Route("/api/memory/stats", _stats(sessions), methods=["GET"]),
        Route("/api/memory/load", _load(memory), methods=["GET"]),
        Route("/api/memory/save", _save(memory), methods=["POST"]),
    ]


def _stats(sessions: Sessions) -> Endpoint:
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
