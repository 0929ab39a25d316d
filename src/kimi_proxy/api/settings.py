"""`/api/settings`, `/api/providers` and `/api/models`: current settings, and switches that can change at runtime."""

from dataclasses import asdict, dataclass
from typing import Annotated, Literal, NotRequired, TypedDict

import msgspec
from pydantic import BaseModel, ConfigDict, Field, RootModel, StringConstraints
from starlette.requests import Request
from starlette.routing import Route

from kimi_proxy.api.routing import Access, RouteSpec, caller_of, json_route, object_in, query
from kimi_proxy.core.addresses import show_address
from kimi_proxy.core.config import Config
from kimi_proxy.core.config.providers import Provider
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.features.models import Models
from kimi_proxy.features.models.known import KnownModel, table
from kimi_proxy.features.tool import validate
from kimi_proxy.services.chat.handler import Chat
from kimi_proxy.services.chat.models import ModelWindows, UnknownModelBody
from kimi_proxy.services.settings import ChangedSettingsBody, LiveSettings, SettingsBody
from kimi_proxy.services.store.protocols import Store, StoreUsage

ADVICE = 'send what to change, such as {"sanitizer.enabled": false}'


Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Names = Annotated[list[Name], Field(max_length=1000)]


class ChangeSettings(RootModel[dict[str, bool | Names]]):
    model_config = ConfigDict(strict=True)


class ModelsWanted(BaseModel):
    all: bool = False  # also the table of known models, which is long and the same for everyone


STORE = RouteSpec("Show the size of the store", access=Access.PEOPLE)
SHOW = RouteSpec("Show the current settings", access=Access.PEOPLE)
CHANGE = RouteSpec("Change settings at runtime", body=ChangeSettings, access=Access.ADMINS)
PROVIDERS = RouteSpec("List the available providers", access=Access.PEOPLE)
MODELS = RouteSpec(
    "List the models of the settings, and what is known of others", query=ModelsWanted, access=Access.PEOPLE
)
LIMITS = RouteSpec("Show the rate limit of each provider", access=Access.PEOPLE)

KeySource = Literal["client", "configured", "missing"]


@dataclass(frozen=True)
class StoreBody(StoreUsage):
    """Members of a team see neither where it is, nor the names of files, nor the reason of a problem."""

    configuration: str | None = None


class ProviderBody(TypedDict):
    name: str
    enabled: bool
    on_demand: bool
    type: str
    base_url: str | None  # its scheme and host; null for members of a team
    key: KeySource
    models: list[str]


class ProvidersBody(TypedDict):
    providers: list[ProviderBody]


class ModelBody(TypedDict):
    id: str
    provider: str
    model: str
    enabled: bool
    max_context_size: int | None
    input_usd_per_million: float | None
    cached_usd_per_million: float | None
    cache_write_usd_per_million: float | None
    output_usd_per_million: float | None


class KnownModelBody(TypedDict):
    """A row of the table of known models, without its unknown values."""

    provider: str
    name: str
    aliases: list[str]
    apis: list[str]
    tokenizer: str
    window: int
    max_output: NotRequired[int]
    input_usd: NotRequired[float]
    cached_usd: NotRequired[float]
    cache_write_usd: NotRequired[float]
    output_usd: NotRequired[float]
    checked: str
    source: str


class ModelsBody(TypedDict):
    models: list[ModelBody]
    unknown: list[UnknownModelBody]
    known: NotRequired[list[KnownModelBody]]


class LimitBody(TypedDict):
    provider: str
    requests_per_minute: float
    wait_s: float


class LimitsBody(TypedDict):
    providers: list[LimitBody]


def store_route(config: Config, store: Store) -> Route:
    async def show(request: Request) -> StoreBody:
        usage = await store.usage()
        if not caller_of(request).is_admin:
            return StoreBody(**asdict(usage.without_places()))
        return StoreBody(**asdict(usage), configuration=str(config.file) if config.file else None)

    return json_route("GET", "/api/store", show, STORE)


def settings_routes(settings: LiveSettings) -> list[Route]:
    async def show(request: Request) -> SettingsBody:
        return settings.to_json(caller_of(request))

    async def change(request: Request) -> ChangedSettingsBody:
        wanted = await object_in(request, ADVICE)
        if not wanted:
            raise InvalidParams("body", ADVICE)
        return await settings.change(caller_of(request), validate(ChangeSettings, wanted).root)

    return [json_route("GET", "/api/settings", show, SHOW), json_route("PATCH", "/api/settings", change, CHANGE)]


def provider_routes(config: Config, chat: Chat, windows: ModelWindows) -> list[Route]:
    async def list_providers(request: Request) -> ProvidersBody:
        is_admin = caller_of(request).is_admin
        return {"providers": [_provider(name, config, is_admin) for name in config.providers]}

    async def list_models(request: Request) -> ModelsBody:
        configured = [_configured_model(name, config, chat.models) for name in config.models]
        found: ModelsBody = {"models": configured, "unknown": windows.unknown_windows(caller_of(request))}
        if query(request, ModelsWanted).all:
            found["known"] = [_known_model(row) for row in table()]
        return found

    async def show_limits(request: Request) -> LimitsBody:
        limits: list[LimitBody] = [
            {"provider": name, "requests_per_minute": per_minute, "wait_s": round(wait_s, 3)}
            for name, (per_minute, wait_s) in chat.rate_limiter.limits().items()
            if config.providers[name].enabled
        ]
        return {"providers": limits}

    return [
        json_route("GET", "/api/providers", list_providers, PROVIDERS),
        json_route("GET", "/api/models", list_models, MODELS, compressed=True),
        json_route("GET", "/api/rate-limit", show_limits, LIMITS),
    ]


def _provider(name: str, config: Config, is_admin: bool) -> ProviderBody:
    provider: Provider = config.providers[name]
    return {
        "name": name,
        "enabled": provider.enabled,
        "on_demand": name in config.on_demand,
        "type": provider.type,
        "base_url": show_address(provider.base_url) if is_admin else None,
        "key": _key(provider, has_key=name in config.provider_keys),
        "models": [key for key, model in config.models.items() if model.provider == name],
    }


def _key(provider: Provider, has_key: bool) -> KeySource:
    """Return whose key the provider gets. No part of the key itself is shown, not even its end."""
    if not provider.key_variable:
        return "client"
    return "configured" if has_key else "missing"


def _configured_model(name: str, config: Config, models: Models) -> ModelBody:
    target = models.configured_target(name)
    model = models.model(target) or config.models[name]
    named = model.model_fields_set
    return {
        "id": name,
        "provider": model.provider,
        "model": target.model,
        "enabled": config.providers[model.provider].enabled,
        "max_context_size": model.max_context_size,
        "input_usd_per_million": model.input_usd_per_million if "input_usd_per_million" in named else None,
        "cached_usd_per_million": model.cached_usd_per_million if "cached_usd_per_million" in named else None,
        "cache_write_usd_per_million": (
            model.cache_write_usd_per_million if "cache_write_usd_per_million" in named else None
        ),
        "output_usd_per_million": model.output_usd_per_million if "output_usd_per_million" in named else None,
    }


def _known_model(row: KnownModel) -> KnownModelBody:
    known = {name: value for name, value in asdict(row).items() if value is not None}
    return msgspec.convert(known, KnownModelBody)
