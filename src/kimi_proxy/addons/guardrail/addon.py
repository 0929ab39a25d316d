"""The guardrails of other gateways, which have tool results cut."""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from kimi_proxy.addons.guardrail import routes as guardrail_routes
from kimi_proxy.addons.guardrail.settings import GuardrailSettings
from kimi_proxy.api.addon import Addon, Given, Serving


def routes(given: Given, serving: Serving) -> Sequence[BaseRoute]:
    return guardrail_routes.routes(serving.messages)


ADDON = Addon("guardrail", GuardrailSettings, routes=routes)
