"""What is noted of an answer is what became of it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from tests.support.conversations import User, request

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.errors import UpstreamDisconnected
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target
from kimi_proxy.proxy.headers import Header
from kimi_proxy.services.chat.relay import MAX_HELD_BYTES, Relay


@dataclass(slots=True)
class Breaking:
    """A reply that breaks off after a piece."""

    piece: bytes
    media_type: str
    encoding: str = ""
    status: int = 200
    is_delimited: bool = True
    headers: list[Header] = field(default_factory=list)

    async def pieces(self) -> AsyncIterator[bytes]:
        yield self.piece
        raise UpstreamDisconnected("it broke off in the middle of its answer")


@pytest.mark.parametrize(
    "reply",
    [
        Breaking(b"x" * (MAX_HELD_BYTES + 1), "application/json"),
        Breaking(b"packed", "text/event-stream", encoding="gzip"),
        Breaking(b"data: 1\n\n", "text/event-stream"),
    ],
    ids=["long", "packed", "stream"],
)
async def test_a_provider_that_breaks_off_is_not_noted_as_a_client_that_hung_up(reply: Breaking):
    relay = Relay(Draft(request(Wire.CHAT, [User("hi")]), Target("p", "m"), Session("ses_1"), LOCAL))
    answer = await relay.answer(reply)
    assert answer.rest is not None
    try:
        async for _ in answer.rest:
            pass
    except UpstreamDisconnected:
        pass  # whoever hands it over stops there

    assert relay.exchange().outcome == UpstreamDisconnected.code
