"""Amazon's event stream arrives in slices of any size; botocore reads what we write."""

import base64
import json

import pytest
from botocore.eventstream import EventStreamBuffer
from tests.support import aws
from tests.support.deep import places
from tests.support.model import Call, Says, events

from kimi_proxy.addons.clouds.bodies import BedrockEvents, BedrockMessages
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.errors import UpstreamUnreadable
from kimi_proxy.core.event_stream import StreamMessage, StreamMessageParser, encode

EVENTS = events(Wire.MESSAGES, Says("Voilà, 你好", (Call("c", "bash", {"command": "ls"}),)))
STREAM = b"".join(aws.framed(EVENTS))


def test_every_cut_in_two_gives_the_same_events():
    for at in places(len(STREAM), 7):
        stream = BedrockEvents()
        assert stream.feed(STREAM[:at]) + stream.feed(STREAM[at:]) == b"".join(EVENTS), at
        stream.end()


def test_botocore_reads_the_events_that_we_frame():
    for at in places(len(b"".join(EVENTS)), 97):
        messages, buffer, whole = BedrockMessages(), EventStreamBuffer(), b"".join(EVENTS)
        buffer.add_data(messages.feed(whole[:at]) + messages.feed(whole[at:]))
        read = [message.to_response_dict() for message in buffer]

        assert {each["headers"][":event-type"] for each in read} == {"chunk"}
        datas = [base64.b64decode(json.loads(each["body"])["bytes"]) for each in read]
        assert datas == [event.split(b"data: ")[1].strip() for event in EVENTS]


def test_an_error_in_the_middle_is_an_exception_in_both_forms():
    shown = BedrockEvents().feed(aws.failure("throttlingException", "too fast"))
    assert shown == (
        b'event: error\ndata: {"type":"error","error":{"type":"rate_limit_error",'
        b'"message":"throttlingException: too fast"}}\n\n'
    )
    buffer = EventStreamBuffer()
    buffer.add_data(BedrockMessages().feed(shown))
    (message,) = list(buffer)
    assert message.to_response_dict()["headers"][":exception-type"] == "throttlingException"


@pytest.mark.parametrize("at", [0, 9, 20, 60, -1])
def test_a_damaged_message_is_refused(at: int):
    damaged = bytearray(STREAM[: len(aws.framed(EVENTS)[0])])
    damaged[at] ^= 1

    with pytest.raises(UpstreamUnreadable):
        BedrockEvents().feed(bytes(damaged))


def test_a_stream_that_ends_in_the_middle_of_a_message_is_unreadable():
    stream = BedrockEvents()
    stream.feed(STREAM[:-1])

    with pytest.raises(UpstreamUnreadable, match="middle"):
        stream.end()


def test_a_message_is_read_as_it_was_written():
    message = StreamMessage(b"payload", {":event-type": "é", "b": ""})

    assert list(StreamMessageParser().feed(encode(message))) == [message]
