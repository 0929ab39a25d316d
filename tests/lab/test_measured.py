"""A session in the provider's tokens, where it counts more than the session keeps."""

import pytest

from kimi_proxy.core import tokens
from kimi_proxy.lab.measured import measure
from kimi_proxy.lab.transcripts.transcript import AgentCall, AgentRequest, CallOutput, ProviderUsage, Transcript

RATIO = 1.5  # the provider's tokens for one of ours
THOUGHT = 2_000  # tokens of thinking in each answer
TEXT = "\n".join(f"value_{row} = lookup({row})" for row in range(120))
CALL = AgentCall("c", "Read", '{"file_path": "a.py"}')


def session(is_sent_back: bool, is_complete: bool = True) -> Transcript:
    """Return a session that reads a file in each of eight requests; thinking is counted, and not kept."""
    visible = round(RATIO * tokens.count(CALL.arguments))
    prompt, requests = 20_000, []
    for at in range(8):
        outputs = [CallOutput("c", f"{at}\n{TEXT}")] if at else []
        prompt += sum(round(RATIO * tokens.count(output.text)) for output in outputs)
        usage = ProviderUsage(input=prompt, output=visible + THOUGHT if is_complete else 3)
        requests.append(AgentRequest(at=float(at), model="m", outputs=outputs, calls=[CALL], usage=usage))
        prompt += visible + (THOUGHT if is_sent_back else 0)
    return Transcript("Claude Code", "s", requests)


@pytest.mark.parametrize("is_sent_back", [True, False])
def test_thinking_that_a_session_does_not_keep_makes_its_results_no_larger(is_sent_back: bool):
    transcript = session(is_sent_back)
    measured = measure(transcript)

    found = [output.tokens for request in measured.requests for output in request.outputs]
    true = [RATIO * tokens.count(output.text) for request in transcript.requests for output in request.outputs]
    assert found == pytest.approx(true, rel=0.02)


def test_so_it_is_if_counts_were_stored_before_the_answers_were_complete():
    """As in old versions of Claude Code, whose answers did not think as long."""
    transcript = session(is_sent_back=False, is_complete=False)
    (output,) = measure(transcript).requests[1].outputs

    assert output.tokens == pytest.approx(RATIO * tokens.count(f"1\n{TEXT}"), rel=0.03)
