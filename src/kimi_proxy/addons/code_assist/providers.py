"""Asks Code Assist, which has Gemini's API in an envelope."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from kimi_proxy.addons.code_assist.envelope import AnswerEvents, close_request, open_answer, plain_request
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.members import ENVELOPED
from kimi_proxy.core.config.providers import CODE_ASSIST
from kimi_proxy.core.errors import NoProvider, UpstreamUnreadable
from kimi_proxy.proxy.headers import CREDENTIALS, UpstreamRequest
from kimi_proxy.services.chat.relay import ProviderClient, ReplyStream, RewrittenReply, read_up_to

MAX_ANSWER_BYTES = 16 * 1024**2
_STREAM = "text/event-stream"
_PLAIN = ("", "identity")
_GEMINI_COUNTS = Wire.GEMINI.format.count_paths


class CodeAssistProviders:
    """Providers of the type `code-assist`."""

    is_envelope = True

    @asynccontextmanager
    async def send(self, client: ProviderClient, name: str, question: UpstreamRequest) -> AsyncIterator[ReplyStream]:
        """Ask Code Assist what is a question of Gemini's API, or pass on another; its answer is one of that API."""
        is_count = question.path in _GEMINI_COUNTS
        if question.path and not is_count:
            if not question.path.startswith(ENVELOPED):
                raise NoProvider(f"{name} is of type {CODE_ASSIST}, which has nothing at {question.path[:80]}")
            async with client.send(name, replace(question, address=question.path)) as reply:
                yield reply
            return
        closed = close_request(question.body, counts=is_count)
        asked = replace(question, body=closed.body, query=closed.query, address=closed.path)
        async with client.send(name, asked) as reply:
            is_wrapped = reply.status == 200 and not is_count and reply.encoding in _PLAIN
            yield RewrittenReply(reply, _open_answers(reply)) if is_wrapped else reply

    def plain(self, name: str, question: UpstreamRequest) -> UpstreamRequest:
        """Return a question without the envelope, and without the login, which is Code Assist's."""
        if question.path not in ("", *_GEMINI_COUNTS):
            raise NoProvider(f"{name} is not of type {CODE_ASSIST}, and has nothing at {question.path[:80]}")
        headers = tuple(each for each in question.headers if each[0] not in CREDENTIALS)
        return replace(question, body=plain_request(question.body), headers=headers, query="", cloud="")

    def listing(self, name: str, question: UpstreamRequest) -> None:
        """It has no list that can be read."""


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
