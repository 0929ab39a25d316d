"""What holds for the stream of every translation, whichever API its client speaks."""

import pytest
from tests.support.core.chat.streams import said

from kimi_proxy.addons.translation.translations import TRANSLATIONS
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.errors import UpstreamDisconnected, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.completions import ChatDialect, StreamTranslator

BODIES: dict[Wire, JsonObject] = {
    Wire.CHAT: {"model": "m", "messages": []},
    Wire.MESSAGES: {"model": "m", "max_tokens": 9, "messages": []},
    Wire.RESPONSES: {"model": "m", "input": []},
}


@pytest.fixture(params=TRANSLATIONS, ids=lambda wire: wire.name)
def stream(request: pytest.FixtureRequest) -> StreamTranslator:
    return TRANSLATIONS[request.param](BODIES[request.param], ChatDialect()).events()


def test_a_stream_without_its_end_is_an_error(stream: StreamTranslator):
    stream.feed(said("hi").encode())

    with pytest.raises(UpstreamDisconnected):
        stream.end()


def test_an_event_without_an_end_is_not_held_for_ever(stream: StreamTranslator):
    with pytest.raises(UpstreamUnreadable, match="16 MiB"):
        for _ in range(20):
            stream.feed(b"data: " + b"x" * 1024**2)
