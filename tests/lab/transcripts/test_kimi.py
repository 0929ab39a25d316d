"""Sessions of Kimi CLI and of Kimi Code."""

import json

from kimi_proxy.lab.transcripts import kimi_cli, kimi_code
from kimi_proxy.lab.transcripts.transcript import AgentCall, CallOutput, ProviderUsage


def lines(*entries: object) -> list[bytes]:
    return [json.dumps(entry).encode() for entry in entries]


def test_a_conversation_of_kimi_cli_is_read_with_its_counts():
    calls = [{"id": "c1", "type": "function", "function": {"name": "ReadFile", "arguments": '{"path":"a"}'}}]
    (transcript,) = kimi_cli.read(
        lines(
            {"role": "_system_prompt", "content": "You are Kimi."},
            {"role": "_checkpoint", "id": 0},
            {"role": "user", "content": "read a"},
            {
                "role": "assistant",
                "content": [{"type": "think", "think": "hm"}, {"type": "text", "text": "Yes."}],
                "tool_calls": calls,
            },
            {"role": "_usage", "token_count": 500},
            {"role": "tool", "content": [{"type": "text", "text": "text of a"}], "tool_call_id": "c1"},
            {"role": "assistant", "content": "Done."},
        ),
        "ses",
    )

    first, second = transcript.requests
    assert (transcript.instructions, first.said, first.thinking) == ("You are Kimi.", "Yes.", "hm")
    assert (first.calls, first.usage) == ([AgentCall("c1", "ReadFile", '{"path":"a"}')], ProviderUsage(500))
    assert (second.outputs, second.said, second.usage) == ([CallOutput("c1", "text of a")], "Done.", None)


def event(kind: str, **fields: object) -> object:
    return {"type": "context.append_loop_event", "event": {"type": kind, **fields}, "time": 1779256800100}


def message(role: str, text: str, **fields: object) -> object:
    content = [{"type": "text", "text": text}]
    return {
        "type": "context.append_message",
        "message": {"role": role, "content": content, **fields},
        "time": 1779256800100,
    }


def test_the_steps_of_kimi_code_are_requests():
    usage = {"inputOther": 10, "output": 5, "inputCacheRead": 70, "inputCacheCreation": 20}
    (transcript,) = kimi_code.read(
        lines(
            {"type": "metadata", "protocol_version": "1.4"},
            {"type": "config.update", "systemPrompt": "You are Kimi.", "modelAlias": "kimi-code/k3"},
            message("user", "list files", origin={"kind": "user"}),
            event("step.begin", uuid="s1"),
            event("content.part", stepUuid="s1", part={"type": "think", "think": "hm"}),
            event("tool.call", stepUuid="s1", toolCallId="t1", name="Bash", args={"command": "ls"}),
            event("tool.result", toolCallId="t1", result={"output": "a.py", "isError": True}),
            event("step.end", uuid="s1", usage=usage),
            event("step.begin", uuid="s2"),
            event("content.part", stepUuid="s2", part={"type": "text", "text": "One file."}),
            message("assistant", "One file."),
            {"type": "context.apply_compaction", "summary": "there is a file"},
            message("user", "<system-reminder>x</system-reminder>"),
            event("content.part", stepUuid="s3", part={"type": "text", "text": "ok"}),
        ),
        "ses",
    )

    first, second, third = transcript.requests
    assert first.calls == [AgentCall("t1", "Bash", '{"command":"ls"}')]
    assert (first.usage, first.model, first.at) == (ProviderUsage(10, 70, 20, 0, 5), "kimi-code/k3", 1779256800.1)
    assert (second.outputs, second.said) == ([CallOutput("t1", "a.py", failed=True)], "One file.")
    assert (third.is_compacted, third.user[0], third.is_user_turn) == (True, "there is a file", False)
