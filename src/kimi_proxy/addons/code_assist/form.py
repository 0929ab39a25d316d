"""Code Assist's form of Gemini's API, which Gemini CLI speaks with a login of Google: `/v1internal:generateContent`."""

from collections.abc import AsyncIterator
from functools import partial

from starlette.types import Scope

from kimi_proxy.addons.code_assist.envelope import AnswerEvents, close_answer, open_request
from kimi_proxy.api.forms import ClientForm
from kimi_proxy.core.chat.members import ENVELOPED
from kimi_proxy.core.config.providers import CODE_ASSIST
from kimi_proxy.services.chat.relay import Answer

_EVENTS = b"text/event-stream"


def _open(scope: Scope, body: bytes, *, is_stream: bool) -> bytes:
    return open_request(body, is_stream)


def _close(answer: Answer) -> Answer:
    """Return an answer in its envelope; an error, and what is compressed, passes as it is."""
    headers = dict(answer.headers)
    if answer.status != 200 or b"content-encoding" in headers:
        return answer
    others = tuple(each for each in answer.headers if each[0] != b"content-length")
    is_stream = headers.get(b"content-type", b"").startswith(_EVENTS)
    return Answer(answer.status, others, b"", _events(answer) if is_stream else _whole(answer))


async def _events(answer: Answer) -> AsyncIterator[bytes]:
    events = AnswerEvents(closes=True)
    async for piece in answer.pieces():
        if shown := events.feed(piece):
            yield shown


async def _whole(answer: Answer) -> AsyncIterator[bytes]:
    yield close_answer(b"".join([piece async for piece in answer.pieces()]))


# Its other methods, such as those by which a user is enrolled, are passed on.
RELAYED = ClientForm(CODE_ASSIST)
CODE_ASSIST_ROUTES = {
    f"{ENVELOPED}:generateContent": ClientForm(CODE_ASSIST, partial(_open, is_stream=False), _close),
    f"{ENVELOPED}:streamGenerateContent": ClientForm(CODE_ASSIST, partial(_open, is_stream=True), _close),
    f"{ENVELOPED}:countTokens": ClientForm(CODE_ASSIST, partial(_open, is_stream=False)),
}


def form_of(path: str) -> ClientForm:
    """Return the form of a path that begins with ENVELOPED."""
    return CODE_ASSIST_ROUTES.get(path, RELAYED)
