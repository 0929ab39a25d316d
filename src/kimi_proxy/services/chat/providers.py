"""Sending requests to providers: rate limits, the API of each, and an HTTP client that is loaded on first use."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

from kimi_proxy.core.config import Config
from kimi_proxy.core.config.providers import Provider
from kimi_proxy.core.errors import RateLimited, StoreUnavailable, UpstreamUnreadable
from kimi_proxy.core.json import JsonValue
from kimi_proxy.proxy.headers import UpstreamRequest
from kimi_proxy.services.chat.forms import TRANSLATED, Forms, ProviderForm
from kimi_proxy.services.chat.relay import ProviderClient, ReplyStream
from kimi_proxy.services.store.protocols import Replicas

if TYPE_CHECKING:
    from kimi_proxy.proxy.upstream import ProviderReply, Upstreams

MINUTE_S = 60.0
MAX_ANSWER_BYTES = 16 * 1024**2

DROPPED = b"x-kimi-proxy-dropped"

_STREAM = "text/event-stream"
_PLAIN = ("", "identity")
# Headers that mean nothing to a provider of another API; some name the client's account, or its machine.
_OF_ONE_API = (b"anthropic-", b"openai-", b"x-codex-", b"chatgpt-")
_CACHE_KEYS = ("openai", "kimi", "kimi-code")  # makers that document `prompt_cache_key`; others may refuse it

# Returns a provider's own list of models, unchanged.
ListModels = Callable[[str, UpstreamRequest], Awaitable[JsonValue]]


@dataclass(frozen=True, slots=True)
class Rate:
    """A leaky bucket: `per_minute` requests at once, then as many as drain in a minute; 0 sets no limit."""

    per_minute: int
    level: float = 0.0
    measured_at: float = 0.0

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next request may leave; 0 if one may now."""
        if self.per_minute == 0:
            return 0.0
        return max(0.0, (self._level(now) + 1 - self.per_minute) * MINUTE_S / self.per_minute)

    def with_request(self, now: float) -> "Rate":
        return self if self.per_minute == 0 else Rate(self.per_minute, self._level(now) + 1, now)

    def _level(self, now: float) -> float:
        return max(0.0, self.level - max(0.0, now - self.measured_at) * self.per_minute / MINUTE_S)


class RateLimiter:
    """Holds each provider to `requests_per_minute` of its settings, on all servers together."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        now: Callable[[], float] = time.monotonic,
        replicas: Replicas | None = None,  # other servers ask the same providers
    ) -> None:
        self._rates = {name: Rate(provider.requests_per_minute) for name, provider in providers.items()}
        self._now = now
        self._replicas = replicas

    async def take(self, provider: str) -> None:
        """Count one request to `provider`; raise RateLimited if it is too early for one."""
        rate = self._rates[provider]
        now = self._now()
        wait_s = rate.wait_s(now)
        if wait_s == 0 and rate.per_minute and self._replicas is not None:
            wait_s = await self._take_shared_turn(self._replicas, provider, rate.per_minute)
        if wait_s > 0:
            raise RateLimited(provider, wait_s)
        # While we waited for the database another request may have been counted.
        self._rates[provider] = self._rates[provider].with_request(now)

    async def _take_shared_turn(self, replicas: Replicas, provider: str, per_minute: int) -> float:
        """Count it for all servers; return the seconds to wait. While the store is away each counts for itself."""
        try:
            return await replicas.take_turn(provider, per_minute)
        except StoreUnavailable:
            return 0.0

    def limits(self) -> Mapping[str, tuple[int, float]]:
        """Return the requests per minute of each provider, and the seconds until the next may leave."""
        now = self._now()
        return {name: (rate.per_minute, rate.wait_s(now)) for name, rate in self._rates.items()}


class LazyUpstreams:
    """The way to the providers.

    Its HTTP client takes a third of a second to load: the start does it if a provider is switched on, else the first
    request.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._opened: Upstreams | None = None
        self._turn = asyncio.Lock()

    def send(self, name: str, question: UpstreamRequest) -> AbstractAsyncContextManager["ProviderReply"]:
        """Ask the provider of that name; its answer is open as long as the block runs."""
        return self._send_first(name, question) if self._opened is None else self._opened.send(name, question)

    @asynccontextmanager
    async def _send_first(self, name: str, question: UpstreamRequest) -> AsyncIterator["ProviderReply"]:
        async with (await self.open()).send(name, question) as reply:
            yield reply

    async def model_list(self, name: str, question: UpstreamRequest) -> JsonValue:
        return await (await self.open()).model_list(name, question)

    async def open(self) -> "Upstreams":
        async with self._turn:
            if self._opened is None:
                module = await asyncio.to_thread(import_module, "kimi_proxy.proxy.upstream")
                config = self._config
                arguments = config.providers, config.provider_keys, config.token, config.on_demand
                self._opened = module.Upstreams(*arguments)
            return self._opened

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()


class FormClient:
    """Asks the providers by their names, each in its form of the API."""

    def __init__(self, client: ProviderClient, providers: Mapping[str, Provider], forms: Forms) -> None:
        self._client = client
        self._providers = providers
        self._forms = forms

    def send(self, name: str, question: UpstreamRequest) -> AbstractAsyncContextManager[ReplyStream]:
        form = self._forms.form(self._providers[name].type)
        if form is not None:
            return form.send(self._client, name, question)
        if addressed := question.wire.format.address(question.body, question.path):
            question = replace(question, address=addressed.path, query=addressed.query, body=addressed.body)
        asked_in = self._forms.form(question.cloud) if question.cloud else None
        return self._client.send(name, asked_in.plain(name, question) if asked_in else question)


class TranslatingClient:
    """Asks the providers by their names, in another API where a provider does not speak the client's.

    The request is translated last, and its answer first: everything before that, such as the stages, the rounds in
    which the model recalls, the accounts and the observers, sees the client's API alone.
    """

    def __init__(
        self, client: ProviderClient, providers: Mapping[str, Provider], list_models: ListModels, forms: Forms
    ) -> None:
        self._client = FormClient(client, providers, forms)
        self._providers = providers
        self._list_models = list_models
        self._forms = forms

    def send(self, name: str, question: UpstreamRequest) -> AbstractAsyncContextManager[ReplyStream]:
        """Ask the provider of that name; its answer is open as long as the block runs."""
        provider = self._providers[name]
        if question.cloud and question.cloud != provider.type:
            asked_in = self._forms.form(question.cloud)
            if asked_in is not None and asked_in.is_envelope:
                question = asked_in.plain(name, question)
        if question.path or not provider.translates(question.wire):
            return self._client.send(name, question)
        return self._translation(name).send(self._client, name, question)

    async def model_list(self, name: str, question: UpstreamRequest) -> JsonValue:
        """Return the provider's own list of models; None if it has none that can be read."""
        provider = self._providers[name]
        if provider.type in self._forms.kinds:
            form = self._forms.form(provider.type)
        else:
            form = self._translation(name) if provider.translates(question.wire) else None
        asked = form.listing(name, question) if form else question
        return None if asked is None else await self._list_models(name, asked)

    def _translation(self, name: str) -> ProviderForm:
        form = self._forms.form(TRANSLATED)
        if form is None:
            raise UpstreamUnreadable(f"{name} speaks another API than the client, and the translation is not installed")
        return form
