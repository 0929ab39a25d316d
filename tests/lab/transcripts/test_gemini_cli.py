"""Sessions as Gemini CLI writes them, line by line and as one document."""

import json
from pathlib import Path

from kimi_proxy.lab.transcripts.places import find, load, usual_places
from kimi_proxy.lab.transcripts.transcript import AgentCall, CallOutput, ProviderUsage, Transcript

HEAD = {"sessionId": "s1", "projectHash": "abc", "startTime": "2026-06-03T14:00:00Z", "kind": "main"}
AT = "2026-06-03T14:00:01.000Z"
TOKENS = {"input": 9100, "output": 30, "cached": 9000, "thoughts": 10, "tool": 0, "total": 9140}
CALL = {"id": "c1", "name": "read_file", "args": {"path": "a"}, "status": "success", "timestamp": AT}
RESULT = [{"functionResponse": {"id": "c1", "name": "read_file", "response": {"output": "text of a"}}}]
USER = {"id": "u1", "timestamp": AT, "type": "user", "content": [{"text": "read a"}]}
ANSWER = {"id": "g1", "timestamp": AT, "type": "gemini", "content": "Yes.", "model": "gemini-2.5-pro"}
THOUGHTS = [{"subject": "Plan", "description": "hm", "timestamp": AT}]
WHOLE = {**ANSWER, "tokens": TOKENS, "thoughts": THOUGHTS, "toolCalls": [{**CALL, "result": RESULT}]}
LAST = {"id": "g2", "timestamp": AT, "type": "gemini", "content": [{"text": "Done."}], "model": "gemini-2.5-pro"}


def write(home: Path, name: str, text: str) -> list[Transcript]:
    folder = home / ".gemini/tmp/abc/chats"
    folder.mkdir(parents=True)
    (folder / name).write_text(text)
    (folder.parent / "logs.json").write_text("[]")
    return [one for place in find(usual_places({}, home)) for one in load(place)]


def check(transcript: Transcript) -> None:
    first, second = transcript.requests[:2]
    assert (transcript.agent, transcript.id, first.model) == ("Gemini CLI", "s1", "gemini-2.5-pro")
    assert (first.user, first.said, first.thinking) == (["read a"], "Yes.", "Plan\nhm\n")
    assert first.calls == [AgentCall("c1", "read_file", '{"path":"a"}')]
    assert first.usage == ProviderUsage(100, 9000, 0, 0, 40)
    assert (second.outputs, second.said) == ([CallOutput("c1", "text of a")], "Done.")


def test_a_message_that_was_written_again_counts_once_as_it_was_last(tmp_path: Path):
    records = [HEAD, USER, ANSWER, {**ANSWER, "toolCalls": [CALL]}, {"$set": {"lastUpdated": AT}}, WHOLE, LAST]

    (transcript,) = write(tmp_path, "session-1.jsonl", "".join(json.dumps(one) + "\n" for one in records))

    check(transcript)
    assert len(transcript.requests) == 2


def test_a_history_that_was_written_anew_is_a_compaction(tmp_path: Path):
    summary = {"id": "n1", "timestamp": AT, "type": "user", "content": [{"text": "so far"}]}
    after = {**LAST, "id": "g3", "content": "More."}
    records = [HEAD, USER, WHOLE, LAST, {"$set": {"messages": [summary, USER]}}, after]

    (transcript,) = write(tmp_path, "session-1.jsonl", "".join(json.dumps(one) + "\n" for one in records))

    check(transcript)
    third = transcript.requests[2]
    assert (third.is_compacted, third.user, third.is_user_turn, third.said) == (True, ["so far"], False, "More.")


def test_a_session_in_one_document_is_read(tmp_path: Path):
    document = {**HEAD, "messages": [USER, WHOLE, LAST, {"type": "info", "content": "bye"}]}

    (transcript,) = write(tmp_path, "session-1.json", json.dumps(document, indent=2))

    check(transcript)
