"""Hooks of agents: their tools' output is cut before it enters a conversation."""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from kimi_proxy.addons.hooks import routes as hook_routes
from kimi_proxy.addons.hooks.hooks import ToolHooks
from kimi_proxy.addons.hooks.settings import HookSettings
from kimi_proxy.api.addon import Addon, Given, Serving


def routes(given: Given, serving: Serving) -> Sequence[BaseRoute]:
    hooks = ToolHooks(
        given.config.of(HookSettings),
        given.config.sanitizer,
        given.store.originals,
        given.names,
        given.workers,
        given.metrics,
        given.facts,
        given.publish,
        mode=given.mode,
    )
    given.forgetters.append(hooks.forget)
    return hook_routes.routes(hooks)


ADDON = Addon("hooks", HookSettings, routes=routes)
