"""Asks providers that do not speak their client's API: the request is translated last, and its answer first.

Everything before that, such as the stages, the rounds in which the model reads back, the accounts and the observers,
sees the client's API alone.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from kimi_proxy.core import json
from kimi_proxy.core.chat import Wire, read
from kimi_proxy.core.config.providers import CHATGPT, Provider, is_key_of, maker_at
from kimi_proxy.core.errors import ParseError, UpstreamUnreadable
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.translation import TRANSLATIONS
from kimi_proxy.features.translation.chat import ChatDialect, EventTranslator, Translation
from kimi_proxy.proxy.headers import CREDENTIALS, Header, UpstreamRequest, credential
from kimi_proxy.services.chat.models import ListModels
from kimi_proxy.services.chat.relay import ProviderClient, ReplyStream, RewrittenReply, read_up_to

MAX_ANSWER_BYTES = 16 * 1024**2
SHORT_BYTES = 256 * 1024  # a request up to this size is translated in the event loop: a few milliseconds

DROPPED = b"x-kimi-proxy-dropped"

_STREAM = "text/event-stream"
_PLAIN = ("", "identity")
# Headers that mean nothing to a provider of another API; some name the client's account, or its machine.
_OF_ONE_API = (b"anthropic-", b"openai-", b"x-codex-", b"chatgpt-")
_CACHE_KEYS = ("openai", "kimi", "kimi-code")  # makers that document `prompt_cache_key`; others may refuse it


class TranslatingClient:
    """Asks the providers by their names, in chat completions where a provider does not speak the client's API."""

    def __init__(self, client: ProviderClient, providers: Mapping[str, Provider], list_models: ListModels) -> None:
        self._client = client
        self._providers = providers
        self._list_models = list_models

    def send(self, name: str, question: UpstreamRequest) -> AbstractAsyncContextManager[ReplyStream]:
        """Ask the provider of that name; its answer is open as long as the block runs."""
        if question.path or not self._providers[name].translates(question.wire):
            return self._client.send(name, question)
        return self._translated(name, question)

    async def model_list(self, name: str, question: UpstreamRequest) -> JsonValue:
        """Return the provider's own list of models; None if it has none that can be read."""
        is_translated = self._providers[name].translates(question.wire)
        return await self._list_models(name, _in_chat(question, b"") if is_translated else question)

    @asynccontextmanager
    async def _translated(self, name: str, question: UpstreamRequest) -> AsyncIterator[ReplyStream]:
        """Raise InvalidParams for a field of the request that cannot be carried and must not be left out."""
        dialect = _dialect(name, self._providers[name])
        if len(question.body) <= SHORT_BYTES:
            translation, body = _translate(question, dialect)
        else:
            translation, body = await asyncio.to_thread(_translate, question, dialect)
        async with self._client.send(name, _in_chat(question, body)) as reply:
            if reply.encoding not in _PLAIN:
                raise UpstreamUnreadable(f"{name} compressed its answer, though it was asked not to")
            yield _reply(name, reply, translation)


def _dialect(name: str, provider: Provider) -> ChatDialect:
    """OpenAI's newer models refuse `max_tokens`; others do not know its successor."""
    maker = maker_at(name, provider)
    limit = "max_completion_tokens" if maker == "openai" else "max_tokens"
    return ChatDialect(provider.include_usage, limit, takes_cache_key=maker in _CACHE_KEYS)


def _translate(question: UpstreamRequest, dialect: ChatDialect) -> tuple[Translation, bytes]:
    translation = TRANSLATIONS[question.wire](read.as_object(json.decode(question.body)), dialect)
    return translation, json.encode(translation.request)


def _in_chat(question: UpstreamRequest, body: bytes) -> UpstreamRequest:
    return replace(question, wire=Wire.CHAT, body=body, headers=_headers(question.headers), query="")


def _headers(headers: tuple[Header, ...]) -> tuple[Header, ...]:
    """Return the client's headers as a client of chat completions would send them.

    A key or a login of the maker of the client's API is no business of another provider.
    """
    key = credential(headers, None)
    others = tuple(
        (name, value) for name, value in headers if name not in CREDENTIALS and not name.startswith(_OF_ONE_API)
    )
    if not key or is_key_of("anthropic", key) or is_key_of(CHATGPT, key):
        return others
    return (*others, (b"authorization", b"Bearer " + key.encode("latin-1")))


def _reply(name: str, reply: ReplyStream, translation: Translation) -> ReplyStream:
    is_stream = reply.status == 200 and reply.media_type == _STREAM
    body = _events(reply, translation.events()) if is_stream else _whole(name, reply, translation)
    translated = RewrittenReply(reply, body)
    translated.media_type = _STREAM if is_stream else "application/json"
    headers = [(key, value) for key, value in translated.headers if key != b"content-type"]
    dropped = [(DROPPED, _header(translation.dropped))] if translation.dropped else []
    translated.headers = [*headers, (b"content-type", translated.media_type.encode()), *dropped]
    return translated


async def _events(reply: ReplyStream, events: EventTranslator) -> AsyncIterator[bytes]:
    async for piece in reply.pieces():
        if shown := events.feed(piece):
            yield shown
    if rest := events.end():
        yield rest


async def _whole(name: str, reply: ReplyStream, translation: Translation) -> AsyncIterator[bytes]:
    body, rest = await read_up_to(MAX_ANSWER_BYTES, reply.pieces())
    if rest is not None:
        raise UpstreamUnreadable(f"{name} answered with more than 16 MiB")
    if reply.status != 200:
        yield json.encode(translation.error(reply.status, body))
        return
    try:
        answer = json.decode(body)
    except ParseError as e:
        raise UpstreamUnreadable(f"{name} answered with something that is not JSON") from e
    yield json.encode(translation.answer(read.as_object(answer)))


def _header(names: tuple[str, ...]) -> bytes:
    """Names come from the client: what a header cannot hold is replaced."""
    printable = ("".join(c if c.isascii() and c.isprintable() and c != "," else "?" for c in name) for name in names)
    return ", ".join(name[:80] for name in printable).encode()[:2000]
