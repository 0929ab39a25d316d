"""The requests of a session, rebuilt from what its agent keeps."""

import pytest
from tests.conversations import results, texts

from kimi_proxy.core import tokens
from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.features.recording import Recording
from kimi_proxy.lab.session_requests import recording_of
from kimi_proxy.lab.transcripts.transcript import AgentCall, AgentRequest, CallOutput, ProviderUsage, Transcript


def session(model: str, has_tools: bool = True) -> Transcript:
    first = AgentRequest(1000.0, model, ["Mend it."], usage=ProviderUsage(5000, output=20), is_user_turn=True)
    first.calls = [AgentCall("c1", "Edit", '{"file_path": "a.py"}'), AgentCall("c2", "shell", "no JSON")]
    second = AgentRequest(1020.0, model, [], [CallOutput("c1", "done"), CallOutput("c2", "no", failed=True)], "I see.")
    third = AgentRequest(0.0, model, ["And now?"], said="Nothing.", is_user_turn=True)
    return Transcript("any", "s1", [first, second, third], has_tools=has_tools)


def requests(recording: Recording) -> list[Request]:
    return [parse(taken.body.encode(), taken.wire) for taken in recording.requests]


@pytest.mark.parametrize(("model", "wire"), [("claude-sonnet-4-5", Wire.MESSAGES), ("gpt-5", Wire.CHAT)])
def test_each_request_has_all_that_was_said_before(model: str, wire: Wire):
    recording = recording_of(session(model))
    first, second, third = requests(recording)

    assert {taken.wire for taken in recording.requests} == {wire}
    assert [taken.at for taken in recording.requests] == [1000.0, 1020.0, 1030.0]
    assert set(third.tool_names) == {"Edit", "shell"}
    assert results(third) == {"c1": "done", "c2": "no"}
    assert [text for text in texts(third) if text in ("Mend it.", "I see.", "And now?")] == [
        "Mend it.",
        "I see.",
        "And now?",
    ]
    assert len(first.messages) < len(second.messages) < len(third.messages)


def test_a_filler_stands_for_what_the_agent_does_not_keep():
    recording = recording_of(session("claude-sonnet-4-5"))

    weight = sum(tokens.count(part.text) for part in requests(recording)[0].system)
    assert weight == pytest.approx(5000, rel=0.02)
    assert recording.head.prices is not None and recording.head.prices.cache_write == 1.25 * recording.head.prices.input


def test_an_agent_without_tools_gets_results_as_text():
    *_, third = requests(recording_of(session("gpt-5", has_tools=False)))

    assert third.tool_names == () and results(third) == {}
    assert "<output>\ndone\n</output>" in texts(third)


def test_after_a_compaction_nothing_from_before_is_sent():
    transcript = session("gpt-5")
    transcript.requests[2].is_compacted = True

    assert "Mend it." not in texts(requests(recording_of(transcript))[2])
