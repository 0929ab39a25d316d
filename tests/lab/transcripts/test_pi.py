"""Sessions as pi writes them."""

import json
from pathlib import Path

from kimi_proxy.lab.transcripts.places import find, load, usual_places
from kimi_proxy.lab.transcripts.transcript import AgentCall, CallOutput, ProviderUsage

AT = "2026-06-03T14:00:01.000Z"
USAGE = {"input": 3, "output": 40, "cacheRead": 9000, "cacheWrite": 200, "totalTokens": 9243}


def message(role: str, content: object, **fields: object) -> object:
    return {"type": "message", "id": "e", "timestamp": AT, "message": {"role": role, "content": content, **fields}}


def answer(*parts: object) -> object:
    return message("assistant", list(parts), model="claude-opus-4-6", usage=USAGE, stopReason="stop")


def test_a_session_is_read_with_its_counts_and_its_compaction(tmp_path: Path):
    call = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}}
    entries = [
        {"type": "session", "version": 3, "id": "s1", "timestamp": AT, "cwd": "/home/me"},
        {"type": "model_change", "id": "m", "provider": "anthropic", "modelId": "claude-opus-4-6"},
        message("user", [{"type": "text", "text": "read a"}]),
        answer({"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Yes."}, call),
        message("toolResult", [{"type": "text", "text": "text of a"}], toolCallId="c1", toolName="read", isError=True),
        answer({"type": "text", "text": "Done."}),
        answer({"type": "text", "text": "And more."}),
        {"type": "compaction", "id": "k", "timestamp": AT, "summary": "so far", "tokensBefore": 9},
        message("bashExecution", None, command="ls", output="a b"),
        answer({"type": "text", "text": "Two files."}),
    ]
    folder = tmp_path / ".pi/agent/sessions/--home-me--"
    folder.mkdir(parents=True)
    (folder / "2026_s1.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))

    (transcript,) = [one for place in find(usual_places({}, tmp_path)) for one in load(place)]

    first, second, third, fourth = transcript.requests
    assert (transcript.agent, transcript.id, first.model) == ("pi", "s1", "claude-opus-4-6")
    assert (first.user, first.said, first.thinking) == (["read a"], "Yes.", "hm")
    assert (first.calls, first.usage) == ([AgentCall("c1", "read", '{"path":"a"}')], ProviderUsage(3, 9000, 200, 0, 40))
    assert (second.outputs, second.said, third.said) == ([CallOutput("c1", "text of a", True)], "Done.", "And more.")
    assert (fourth.is_compacted, fourth.user) == (True, ["so far", "$ ls\na b"])
