"""Anthropic's API in the form of Bedrock and Vertex, for clients and for providers."""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from kimi_proxy.addons.clouds import routes as cloud_routes
from kimi_proxy.addons.clouds.bodies import BEDROCK, VERTEX
from kimi_proxy.addons.clouds.providers import CloudProviders
from kimi_proxy.addons.clouds.settings import CloudsSettings
from kimi_proxy.api.addon import Addon, Given, Serving


def routes(given: Given, serving: Serving) -> Sequence[BaseRoute]:
    return cloud_routes.routes(serving.chat)


ADDON = Addon(
    "clouds",
    CloudsSettings,
    routes=routes,
    forms={
        BEDROCK: lambda providers: CloudProviders(BEDROCK),
        VERTEX: lambda providers: CloudProviders(VERTEX),
    },
)
