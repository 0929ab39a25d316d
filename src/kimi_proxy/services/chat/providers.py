"""Sending requests to providers: rate limits, the API of each, and an HTTP client that is loaded on first use.

Bedrock and Vertex have their own form of Anthropic's API: conversion to it is the last step of a request, and the first
of a response.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

from kimi_proxy.core import json
from kimi_proxy.core.aside import TRANSLATED_BYTES, aside
from kimi_proxy.core.chat import Wire, read
from kimi_proxy.core.chat.clouds import (
    BEDROCK,
    STREAM_TYPE,
    BedrockEvents,
    beta_names,
    close_body,
    plain_body,
)
from kimi_proxy.core.chat.code_assist import CODE_ASSIST, AnswerEvents, close_request, open_answer, plain_request
from kimi_proxy.core.chat.code_assist import ROOT as CODE_ASSIST_ROOT
from kimi_proxy.core.config import Config
from kimi_proxy.core.config.providers import CHATGPT, CLOUDS, Provider, is_key_of, maker_at
from kimi_proxy.core.errors import NoProvider, ParseError, RateLimited, StoreUnavailable, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.models import translated_wire
from kimi_proxy.features.translation import TRANSLATIONS
from kimi_proxy.features.translation.chat import ChatDialect, StreamTranslator, Translation
from kimi_proxy.proxy.headers import CREDENTIALS, Header, UpstreamRequest, credential
from kimi_proxy.services.chat.relay import ProviderClient, ReplyStream, RewrittenReply, read_up_to
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
        rate, now = self._rates[provider], self._now()
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


class TranslatingClient:
    """Asks the providers by their names, in another API where a provider does not speak the client's.

    The request is translated last, and its answer first: everything before that, such as the stages, the rounds in
    which the model recalls, the accounts and the observers, sees the client's API alone.
    """

    def __init__(self, client: ProviderClient, providers: Mapping[str, Provider], list_models: ListModels) -> None:
        self._client = client
        self._providers = providers
        self._list_models = list_models

    def send(self, name: str, question: UpstreamRequest) -> AbstractAsyncContextManager[ReplyStream]:
        """Ask the provider of that name; its answer is open as long as the block runs."""
        if question.cloud == CODE_ASSIST and self._providers[name].type != CODE_ASSIST:
            question = _without_code_assist(name, question)
        if question.path or not self._providers[name].translates(question.wire):
            return self._send(name, question)
        return self._translate(name, question)

    def _send(self, name: str, question: UpstreamRequest) -> AbstractAsyncContextManager[ReplyStream]:
        """Send the request in the provider's form of its API."""
        kind = self._providers[name].type
        if kind in CLOUDS:
            return send_to_cloud(self._client, name, kind, question)
        if kind == CODE_ASSIST:
            return _send_to_code_assist(self._client, name, question)
        if addressed := question.wire.format.address(question.body, question.path):
            found = addressed.path, addressed.query, addressed.body
            question = replace(question, address=found[0], query=found[1], body=found[2])
        return self._client.send(name, without_cloud(question) if question.cloud else question)

    async def model_list(self, name: str, question: UpstreamRequest) -> JsonValue:
        """Return the provider's own list of models; None if it has none that can be read."""
        provider = self._providers[name]
        if provider.type in (*CLOUDS, CODE_ASSIST):
            return None
        is_translated = provider.translates(question.wire)
        return await self._list_models(name, _in_its_api(name, provider, question, b"") if is_translated else question)

    @asynccontextmanager
    async def _translate(self, name: str, question: UpstreamRequest) -> AsyncIterator[ReplyStream]:
        """Raise InvalidParams for a field that cannot be translated and must not be dropped."""
        dialect = _dialect(name, self._providers[name])
        is_short = len(question.body) <= TRANSLATED_BYTES
        translation, body = await aside(is_short, _translate, question, dialect)
        async with self._send(name, _in_its_api(name, self._providers[name], question, body)) as reply:
            if reply.encoding not in _PLAIN:
                raise UpstreamUnreadable(f"{name} compressed its response although it was asked not to")
            yield _reply(name, reply, translation)


def _dialect(name: str, provider: Provider) -> ChatDialect:
    """OpenAI's newer models refuse `max_tokens`; others do not know its successor."""
    maker = maker_at(name, provider)
    limit = "max_completion_tokens" if maker == "openai" else "max_tokens"
    return ChatDialect(provider.include_usage, limit, takes_cache_key=maker in _CACHE_KEYS)


def _translate(question: UpstreamRequest, dialect: ChatDialect) -> tuple[Translation, bytes]:
    translation = TRANSLATIONS[question.wire](read.as_object(json.decode(question.body)), dialect)
    return translation, json.encode(translation.request)


def _in_its_api(name: str, provider: Provider, question: UpstreamRequest, body: bytes) -> UpstreamRequest:
    """Return the question as a client of the provider's API would ask it.

    A key or a login of the maker of the client's API is no business of another provider.
    """
    wire, key = translated_wire(provider), credential(question.headers, None)
    is_maker_s = is_key_of("anthropic", key)
    passes = is_maker_s if maker_at(name, provider) == "anthropic" else not (is_maker_s or is_key_of(CHATGPT, key))
    headers = tuple(
        each for each in question.headers if each[0] not in CREDENTIALS and not each[0].startswith(_OF_ONE_API)
    )
    if key and passes:
        is_cloud, coded = provider.type in CLOUDS, key.encode("latin-1")
        headers = (*headers, (b"authorization", b"Bearer " + coded) if is_cloud else wire.format.key_header(coded))
    return replace(question, wire=wire, body=body, headers=headers, query="", cloud="")


def _reply(name: str, reply: ReplyStream, translation: Translation) -> ReplyStream:
    is_stream = reply.status == 200 and reply.media_type == _STREAM
    body = _events(reply, translation.events()) if is_stream else _translate_body(name, reply, translation)
    translated = RewrittenReply(reply, body)
    translated.media_type = _STREAM if is_stream else "application/json"
    headers = [(key, value) for key, value in translated.headers if key != b"content-type"]
    dropped = [(DROPPED, _header(translation.dropped))] if translation.dropped else []
    translated.headers = [*headers, (b"content-type", translated.media_type.encode()), *dropped]
    return translated


async def _events(reply: ReplyStream, events: StreamTranslator) -> AsyncIterator[bytes]:
    async for piece in reply.pieces():
        if shown := events.feed(piece):
            yield shown
    if rest := events.end():
        yield rest


async def _translate_body(name: str, reply: ReplyStream, translation: Translation) -> AsyncIterator[bytes]:
    body, rest = await read_up_to(MAX_ANSWER_BYTES, reply.pieces())
    if rest is not None:
        raise UpstreamUnreadable(f"the response of {name} exceeds 16 MiB")
    if reply.status != 200:
        yield json.encode(translation.error(reply.status, body))
        return
    try:
        answer = json.decode(body)
    except ParseError as e:
        raise UpstreamUnreadable(f"the response of {name} is not JSON") from e
    yield json.encode(translation.answer(read.as_object(answer)))


def _header(names: tuple[str, ...]) -> bytes:
    """Replace characters that a header cannot contain: the names come from the client."""
    printable = ("".join(c if c.isascii() and c.isprintable() and c != "," else "?" for c in name) for name in names)
    return ", ".join(name[:80] for name in printable).encode()[:2000]


_BETAS = b"anthropic-beta"
_EVENTS = "text/event-stream"
_FORMAT = Wire.MESSAGES.format
_COUNTS = _FORMAT.count_paths[0]
_GEMINI_COUNTS = Wire.GEMINI.format.count_paths


@asynccontextmanager
async def send_to_cloud(
    client: ProviderClient, name: str, cloud: str, question: UpstreamRequest
) -> AsyncIterator[ReplyStream]:
    """Send a request of Anthropic's API to a cloud; the response has that API's format."""
    if question.path not in ("", _COUNTS):
        raise NoProvider(f"{name} is of type {cloud}, which has no route {question.path[:80]}")
    betas = beta_names(value for key, value in question.headers if key == _BETAS)
    closed = close_body(cloud, question.body, betas, counts=question.path == _COUNTS)
    headers = tuple(_cloud_headers(cloud, question.headers))
    asked = replace(question, body=closed.body, headers=headers, query="", address=closed.path)
    async with client.send(name, asked) as reply:
        if reply.media_type == STREAM_TYPE:
            yield _with_type(RewrittenReply(reply, _bedrock_events(reply)), _EVENTS)
        elif reply.status >= 400 and question.cloud != cloud:
            yield _with_type(RewrittenReply(reply, _error(name, reply)), "application/json")
        elif question.path == _COUNTS and cloud == BEDROCK and reply.status == 200:
            yield RewrittenReply(reply, _token_count(name, reply))
        else:
            yield reply


@asynccontextmanager
async def _send_to_code_assist(
    client: ProviderClient, name: str, question: UpstreamRequest
) -> AsyncIterator[ReplyStream]:
    """Ask Code Assist what is a question of Gemini's API, or pass on another; its answer is one of that API."""
    is_count = question.path in _GEMINI_COUNTS
    if question.path and not is_count:
        if not question.path.startswith(CODE_ASSIST_ROOT):
            raise NoProvider(f"{name} is of type {CODE_ASSIST}, which has nothing at {question.path[:80]}")
        async with client.send(name, replace(question, address=question.path)) as reply:
            yield reply
        return
    closed = close_request(question.body, counts=is_count)
    asked = replace(question, body=closed.body, query=closed.query, address=closed.path)
    async with client.send(name, asked) as reply:
        is_wrapped = reply.status == 200 and not is_count and reply.encoding in _PLAIN
        yield RewrittenReply(reply, _open_answers(reply)) if is_wrapped else reply


async def _open_answers(reply: ReplyStream) -> AsyncIterator[bytes]:
    if reply.media_type != _STREAM:
        body, rest = await read_up_to(MAX_ANSWER_BYTES, reply.pieces())
        if rest is not None:
            raise UpstreamUnreadable("Code Assist answered with more than 16 MiB")
        yield open_answer(body)
        return
    events = AnswerEvents(closes=False)
    async for piece in reply.pieces():
        if shown := events.feed(piece):
            yield shown


def _without_code_assist(name: str, question: UpstreamRequest) -> UpstreamRequest:
    """Return a question for another provider: without the envelope, and without the login, which is Code Assist's."""
    if question.path not in ("", *_GEMINI_COUNTS):
        raise NoProvider(f"{name} is not of type {CODE_ASSIST}, and has nothing at {question.path[:80]}")
    headers = tuple(each for each in question.headers if each[0] not in CREDENTIALS)
    return replace(question, body=plain_request(question.body), headers=headers, query="", cloud="")


def without_cloud(question: UpstreamRequest) -> UpstreamRequest:
    """Return a request that arrived in a cloud's form for any other provider: its betas move to the header."""
    body, betas = plain_body(question.body)
    named = tuple(dict.fromkeys((*beta_names(v for k, v in question.headers if k == _BETAS), *betas)))
    headers = tuple(each for each in question.headers if each[0] != _BETAS)
    added: tuple[Header, ...] = ((_BETAS, ",".join(named).encode("latin-1", "replace")),) if named else ()
    return replace(question, body=body, headers=(*headers, *added), query="")


def _cloud_headers(cloud: str, headers: tuple[Header, ...]) -> list[Header]:
    """Return the client's headers; of its credentials a bearer token alone means something to a cloud."""
    is_anthropic_s = is_key_of("anthropic", credential(headers, None))
    left_out = CREDENTIALS if is_anthropic_s else CREDENTIALS - {b"authorization"}
    return [each for each in headers if each[0] not in left_out and not (cloud == BEDROCK and each[0] == _BETAS)]


def _with_type(reply: RewrittenReply, media_type: str) -> RewrittenReply:
    reply.media_type = media_type
    others = [(key, value) for key, value in reply.headers if key != b"content-type"]
    reply.headers = [*others, (b"content-type", media_type.encode())]
    return reply


async def _bedrock_events(reply: ReplyStream) -> AsyncIterator[bytes]:
    events = BedrockEvents()
    async for piece in reply.pieces():
        if shown := events.feed(piece):
            yield shown
    events.end()


async def _error(name: str, reply: ReplyStream) -> AsyncIterator[bytes]:
    """Yield a cloud's error in the shape that a client of Anthropic's API reads."""
    body, _ = await read_up_to(MAX_ANSWER_BYTES, reply.pieces())
    found = read.json_object(body)
    if found is not None and read.string(found.get("type")) == "error":
        yield body
        return
    said = "" if found is None else _message(found)
    text = said or body[:1000].decode("utf-8", "replace") or f"{name} answered HTTP {reply.status}"
    yield json.encode(_FORMAT.error_body(reply.status, "upstream_error", text))


def _message(error: read.RawObject) -> str:
    inner = read.members(error.get("error"))
    return read.string(error.get("message")) or read.string(error.get("Message")) or read.string(inner.get("message"))


async def _token_count(name: str, reply: ReplyStream) -> AsyncIterator[bytes]:
    body, _ = await read_up_to(MAX_ANSWER_BYTES, reply.pieces())
    counted = read.value((read.json_object(body) or {}).get("inputTokens"))
    if not isinstance(counted, int):
        raise UpstreamUnreadable(f"{name} returned no token count")
    answer: JsonObject = _FORMAT.token_count(counted)
    yield json.encode(answer)
