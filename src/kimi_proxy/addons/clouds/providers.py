"""Asks Bedrock and Vertex, which have their own form of Anthropic's API.

Conversion to it is the last step of a request, and the first of a response.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from kimi_proxy.addons.clouds.aws import AwsSigner
from kimi_proxy.addons.clouds.bodies import (
    BEDROCK,
    STREAM_TYPE,
    BedrockEvents,
    beta_names,
    close_body,
    plain_body,
)
from kimi_proxy.core import json
from kimi_proxy.core.chat import Wire, read
from kimi_proxy.core.config.providers import is_key_of
from kimi_proxy.core.errors import NoProvider, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject
from kimi_proxy.proxy.headers import CREDENTIALS, Header, UpstreamRequest, credential
from kimi_proxy.services.chat.relay import ProviderClient, ReplyStream, RewrittenReply, read_up_to

MAX_ANSWER_BYTES = 16 * 1024**2
_BETAS = b"anthropic-beta"
_EVENTS = "text/event-stream"
_FORMAT = Wire.MESSAGES.format
_COUNTS = _FORMAT.count_paths[0]


class CloudProviders:
    """Providers of the type `cloud`."""

    is_envelope = False

    def __init__(self, cloud: str) -> None:
        self._cloud = cloud
        self._sign = AwsSigner().sign if cloud == BEDROCK else None

    @asynccontextmanager
    async def send(self, client: ProviderClient, name: str, question: UpstreamRequest) -> AsyncIterator[ReplyStream]:
        """Send a request of Anthropic's API to a cloud; the response has that API's format."""
        cloud = self._cloud
        if question.path not in ("", _COUNTS):
            raise NoProvider(f"{name} is of type {cloud}, which has no route {question.path[:80]}")
        betas = beta_names(value for key, value in question.headers if key == _BETAS)
        closed = close_body(cloud, question.body, betas, counts=question.path == _COUNTS)
        headers = tuple(_cloud_headers(cloud, question.headers))
        asked = replace(question, body=closed.body, headers=headers, query="", address=closed.path, sign=self._sign)
        async with client.send(name, asked) as reply:
            if reply.media_type == STREAM_TYPE:
                yield _with_type(RewrittenReply(reply, _bedrock_events(reply)), _EVENTS)
            elif reply.status >= 400 and question.cloud != cloud:
                yield _with_type(RewrittenReply(reply, _error(name, reply)), "application/json")
            elif question.path == _COUNTS and cloud == BEDROCK and reply.status == 200:
                yield RewrittenReply(reply, _token_count(name, reply))
            else:
                yield reply

    def plain(self, name: str, question: UpstreamRequest) -> UpstreamRequest:
        """Return a request that arrived in a cloud's form for any other provider: its betas move to the header."""
        body, betas = plain_body(question.body)
        named = tuple(dict.fromkeys((*beta_names(v for k, v in question.headers if k == _BETAS), *betas)))
        headers = tuple(each for each in question.headers if each[0] != _BETAS)
        added: tuple[Header, ...] = ((_BETAS, ",".join(named).encode("latin-1", "replace")),) if named else ()
        return replace(question, body=body, headers=(*headers, *added), query="")

    def listing(self, name: str, question: UpstreamRequest) -> None:
        """It has no list that can be read."""


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
