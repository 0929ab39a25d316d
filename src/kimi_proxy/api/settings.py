"""`/api/settings`: what is in force, and what may be switched while it runs."""

from collections.abc import Awaitable, Callable

from pydantic import ConfigDict, RootModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kimi_proxy.api.errors import json_answer, object_in
from kimi_proxy.core.config import Config
from kimi_proxy.core.config.providers import Model, Provider
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.tool import checked
from kimi_proxy.services.chat.handler import Chat
from kimi_proxy.services.settings import Settings

Endpoint = Callable[[Request], Awaitable[Response]]

ADVICE = 'send what to change, such as {"sanitizer.enabled": false}'


class Change(RootModel[dict[str, bool]]):
    model_config = ConfigDict(strict=True)


def routes(settings: Settings) -> list[Route]:
    return [
        Route("/api/settings", _show(settings), methods=["GET"]),
        Route("/api/settings", _change(settings), methods=["PATCH"]),
    ]


def _show(settings: Settings) -> Endpoint:
    async def show(request: Request) -> Response:
        return json_answer(settings.told())

    return show


def _change(settings: Settings) -> Endpoint:
    async def change(request: Request) -> Response:
        body = await object_in(request, ADVICE)
        if not body:
            raise InvalidParams("body", ADVICE)
        return json_answer(await settings.change(checked(Change, body).root))

    return change


def provider_routes(config: Config, chat: Chat) -> list[Route]:
    async def list_providers(request: Request) -> Response:
        return json_answer({"providers": [_provider(name, config) for name in config.providers]})

    async def list_models(request: Request) -> Response:
        return json_answer({"models": [_model(name, config) for name in config.models]})

    async def show_limits(request: Request) -> Response:
        limits: list[JsonObject] = [
            {"provider": name, "requests_per_minute": per_minute, "wait_s": round(wait_s, 3)}
            for name, (per_minute, wait_s) in chat.rate_limiter.limits().items()
            if config.providers[name].enabled
        ]
        return json_answer({"providers": limits})

    return [
        Route("/api/providers", list_providers, methods=["GET"]),
        Route("/api/models", list_models, methods=["GET"]),
        Route("/api/rate-limit", show_limits, methods=["GET"]),
    ]


def _provider(name: str, config: Config) -> JsonObject:
    provider: Provider = config.providers[name]
    return {
        "name": name,
        "enabled": provider.enabled,
        "type": provider.type,
        "base_url": provider.base_url,
        "key": _key(provider, has_key=name in config.provider_keys),
        "models": [key for key, model in config.models.items() if model.provider == name],
    }


def _key(provider: Provider, has_key: bool) -> str:
    """Whose key the provider gets. Nothing of the key itself is told, not even its end."""
    if not provider.key_variable:
        return "client"
    return "configured" if has_key else "missing"


def _model(name: str, config: Config) -> JsonObject:
    model: Model = config.models[name]
    return {
        "id": name,
        "provider": model.provider,
        "model": model.model or name.removeprefix(f"{model.provider}/"),
        "enabled": config.providers[model.provider].enabled,
        "max_context_size": model.max_context_size,
        "input_usd_per_million": model.input_usd_per_million,
        "cached_usd_per_million": model.cached_usd_per_million,
        "output_usd_per_million": model.output_usd_per_million,
    }
