"""One conversation of the day outgrows its model, on whichever day, and no part of it is long enough to be cut."""

from collections.abc import Iterator

import pytest

from kimi_proxy.core import json, tokens
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.config.sections import RoutingSettings
from kimi_proxy.features.chat import context
from kimi_proxy.features.sanitizer.stage import tool_tokens
from kimi_proxy.lab.demo import THRESHOLD_TOKENS, PlayedTranscript, StreamedCall, StreamedReply
from kimi_proxy.lab.demo_day import FERRY, LARGER_WINDOW, WINDOW, ScriptedConversation, ScriptedReply, day


def labels(seed: int) -> ScriptedConversation:
    (found,) = (each for each in day(seed).conversations.values() if each.model == FERRY)
    return found


def sizes(conversation: ScriptedConversation) -> Iterator[int]:
    """The tokens of each request of the first turn, with the tool that the proxy adds."""
    transcript, turn = PlayedTranscript(conversation), conversation.turns[0]
    transcript.add_user(turn.said)
    for number, reply in enumerate(turn.replies):
        yield tool_tokens() + context.tokens_of(parse(json.encode(transcript.body()), Wire.CHAT), tokens.count)
        transcript.add_reply(StreamedReply(reply.text, calls(conversation, number, reply)))
        transcript.add_results(
            [(conversation.call_id(0, number, at), call.prints) for at, call in enumerate(reply.calls)]
        )


def calls(conversation: ScriptedConversation, number: int, reply: ScriptedReply) -> list[StreamedCall]:
    return [
        StreamedCall(conversation.call_id(0, number, at), call.tool, json.encode(call.arguments).decode())
        for at, call in enumerate(reply.calls)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_its_last_request_is_more_than_the_small_window_should_hold_and_those_before_are_not(seed: int):
    *before, last = sizes(labels(seed))
    tight = WINDOW * RoutingSettings().fallback_threshold

    assert max(before) < tight < last < WINDOW < LARGER_WINDOW


def test_nothing_of_it_is_long_enough_to_be_cut():
    printed = [tokens.count(call.prints) for reply in labels(7).turns[0].replies for call in reply.calls]

    assert max(printed) < THRESHOLD_TOKENS
