"""The route that Claude Code's hooks and our plugins send tool results to."""

from starlette.requests import Request
from starlette.routing import Route

from kimi_proxy.addons.hooks.hooks import ToolHooks
from kimi_proxy.api.routing import Access, RouteSpec, caller_of, json_route, object_in
from kimi_proxy.core.json import OpenObject

CLAUDE = RouteSpec("Answer a hook of Claude Code", body=OpenObject, access=Access.PEOPLE)


def routes(hooks: ToolHooks) -> list[Route]:
    async def claude(request: Request) -> OpenObject:
        return await hooks.answer(caller_of(request), await object_in(request, "send what Claude Code gives to a hook"))

    return [json_route("POST", "/api/hooks/claude", claude, CLAUDE)]
