"""Ollama's API in front of any provider."""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from kimi_proxy.addons.ollama import routes as ollama_routes
from kimi_proxy.addons.ollama.settings import OllamaSettings
from kimi_proxy.api.addon import Addon, Given, Serving


def routes(given: Given, serving: Serving) -> Sequence[BaseRoute]:
    return ollama_routes.routes(serving.chat)


ADDON = Addon("ollama", OllamaSettings, routes=routes)
