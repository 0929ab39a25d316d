"""`POST /api/hooks/claude`: Claude Code's hooks, which may replace what a tool printed."""

from starlette.requests import Request
from starlette.routing import Route

from kimi_proxy.api.answers import json_route, object_in
from kimi_proxy.core.json import JsonObject
from kimi_proxy.services.hooks import ToolHooks


def routes(hooks: ToolHooks) -> list[Route]:
    async def claude(request: Request) -> JsonObject:
        return await hooks.answer(await object_in(request, "send what Claude Code gives to a hook"))

    return [json_route("POST", "/api/hooks/claude", claude)]
