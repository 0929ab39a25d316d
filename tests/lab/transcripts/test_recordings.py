"""Recordings of our own, as sessions."""

from pathlib import Path

import pytest

from kimi_proxy.lab.transcripts.places import find, load

RECORDINGS = Path(__file__).parents[2] / "recordings"


@pytest.mark.parametrize(("name", "requests"), [("log-hunt", 19), ("refactoring", 33), ("debugging", 24)])
def test_a_recording_is_a_session_in_which_every_answer_stands_once(name: str, requests: int):
    (place,) = find([("ours", RECORDINGS / f"{name}.jsonl")])
    (transcript,) = load(place)

    assert (transcript.agent, transcript.id, len(transcript.requests)) == ("kimi-proxy", name, requests)
    calls = [call.id for request in transcript.requests for call in request.calls]
    outputs = [output.call_id for request in transcript.requests for output in request.outputs]
    assert calls == list(dict.fromkeys(calls))
    assert outputs == calls[: len(outputs)]
    assert all(request.usage for request in transcript.requests)


def test_a_recording_that_is_cut_off_is_read_up_to_there(tmp_path: Path):
    whole = (RECORDINGS / "log-hunt.jsonl").read_bytes()
    (tmp_path / "cut.jsonl").write_bytes(whole[: len(whole) // 2])

    (place,) = find([("ours", tmp_path)])
    (transcript,) = load(place)

    assert 0 < len(transcript.requests) < 19
