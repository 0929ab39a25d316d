"""Asks providers that speak another API than the client: the request is translated, and its answer back."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from kimi_proxy.addons.translation.translations import TRANSLATIONS
from kimi_proxy.core import json
from kimi_proxy.core.aside import TRANSLATED_BYTES, aside
from kimi_proxy.core.chat import read
from kimi_proxy.core.config.providers import CHATGPT, CLOUDS, Provider, is_key_of, maker_at
from kimi_proxy.core.errors import ParseError, UpstreamUnreadable
from kimi_proxy.features.completions import ChatDialect, StreamTranslator, Translation
from kimi_proxy.features.models import translated_wire
from kimi_proxy.proxy.headers import CREDENTIALS, UpstreamRequest, credential
from kimi_proxy.services.chat.relay import ProviderClient, ReplyStream, RewrittenReply, read_up_to

MAX_ANSWER_BYTES = 16 * 1024**2

DROPPED = b"x-kimi-proxy-dropped"

_STREAM = "text/event-stream"
_PLAIN = ("", "identity")
# Headers that mean nothing to a provider of another API; some name the client's account, or its machine.
_OF_ONE_API = (b"anthropic-", b"openai-", b"x-codex-", b"chatgpt-")
_CACHE_KEYS = ("openai", "kimi", "kimi-code")  # makers that document `prompt_cache_key`; others may refuse it


class Translator:
    """Every provider that does not speak the client's API."""

    is_envelope = False

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = providers

    @asynccontextmanager
    async def send(self, client: ProviderClient, name: str, question: UpstreamRequest) -> AsyncIterator[ReplyStream]:
        """Raise InvalidParams for a field that cannot be translated and must not be dropped."""
        dialect = _dialect(name, self._providers[name])
        is_short = len(question.body) <= TRANSLATED_BYTES
        translation, body = await aside(is_short, _translate, question, dialect)
        async with client.send(name, _in_its_api(name, self._providers[name], question, body)) as reply:
            if reply.encoding not in _PLAIN:
                raise UpstreamUnreadable(f"{name} compressed its response although it was asked not to")
            yield _reply(name, reply, translation)

    def plain(self, name: str, question: UpstreamRequest) -> UpstreamRequest:
        return question

    def listing(self, name: str, question: UpstreamRequest) -> UpstreamRequest:
        return _in_its_api(name, self._providers[name], question, b"")


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
    wire = translated_wire(provider)
    key = credential(question.headers, None)
    is_maker_s = is_key_of("anthropic", key)
    passes = is_maker_s if maker_at(name, provider) == "anthropic" else not (is_maker_s or is_key_of(CHATGPT, key))
    headers = tuple(
        each for each in question.headers if each[0] not in CREDENTIALS and not each[0].startswith(_OF_ONE_API)
    )
    if key and passes:
        is_cloud = provider.type in CLOUDS
        coded = key.encode("latin-1")
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
