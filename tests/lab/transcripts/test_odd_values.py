"""Whatever stands in the place of whatever value: a session is read, with less in it."""

import json
from collections.abc import Iterator

import pytest

from kimi_proxy.lab.audit import price_parts
from kimi_proxy.lab.measured import measure
from kimi_proxy.lab.savings import COMPARED, simulate
from kimi_proxy.lab.transcripts import claude_code, codex, gemini_cli, kimi_cli, kimi_code, opencode, pi, swe_agents
from kimi_proxy.lab.transcripts.transcript import Transcript

ODD: list[object] = [None, 0, -7, 1e308, True, "", "\ud83d", [], {}, [None], [["x"]], {"text": 3}]

CLAUDE: list[object] = [
    {"type": "user", "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z", "message": {"content": "go"}},
    {
        "type": "assistant",
        "isSidechain": False,
        "message": {
            "id": "m",
            "model": "claude",
            "content": [{"type": "tool_use", "id": "c", "name": "Read", "input": {"file_path": "a"}}],
            "usage": {"input_tokens": 3, "cache_creation": {"ephemeral_1h_input_tokens": 2}},
        },
    },
    {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"text": "t"}]}]}},
    {"type": "assistant", "message": {"id": "n", "content": [{"type": "text", "text": "ok"}]}},
]
CODEX: list[object] = [
    {"type": "session_meta", "payload": {"id": "s", "base_instructions": {"text": "x"}}},
    {"type": "response_item", "payload": {"type": "function_call", "name": "sh", "arguments": "{}", "call_id": "c"}},
    {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c", "output": "t"}},
    {"type": "event_msg", "payload": {"type": "token_count", "info": {"last_token_usage": {"input_tokens": 5}}}},
    {"type": "compacted", "payload": {"replacement_history": [{"content": [{"text": "short"}]}]}},
    {"type": "response_item", "payload": {"type": "message", "role": "assistant", "content": [{"text": "ok"}]}},
]
KIMI_CLI: list[object] = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": "ok", "tool_calls": [{"id": "c", "function": {"name": "n", "arguments": "{}"}}]},
    {"role": "_usage", "token_count": 9},
    {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "t"}]},
    {"role": "assistant", "content": [{"type": "think", "think": "hm"}]},
]
KIMI_CODE: list[object] = [
    {"type": "context.append_message", "time": 1, "message": {"role": "user", "content": [{"text": "go"}]}},
    {"type": "context.append_loop_event", "event": {"type": "tool.call", "stepUuid": "s", "name": "n", "args": {}}},
    {"type": "context.append_loop_event", "event": {"type": "tool.result", "result": {"output": "t"}}},
    {"type": "context.append_loop_event", "event": {"type": "step.end", "uuid": "s", "usage": {"inputOther": 4}}},
]
EXPORT: object = {
    "info": {"id": "ses_1"},
    "messages": [
        {"info": {"role": "user", "time": {"created": 1}}, "parts": [{"type": "text", "text": "go"}]},
        {
            "info": {"role": "assistant", "tokens": {"input": 1, "cache": {"read": 2}}},
            "parts": [{"type": "tool", "callID": "c", "tool": "t", "state": {"input": {}, "output": "o"}}],
        },
    ],
}
PI: list[object] = [
    {"type": "session", "id": "s", "cwd": "/"},
    {"type": "message", "timestamp": 1, "message": {"role": "user", "content": [{"type": "text", "text": "go"}]}},
    {
        "type": "message",
        "message": {
            "role": "assistant",
            "model": "m",
            "content": [{"type": "toolCall", "id": "c", "name": "n", "arguments": {}}],
            "usage": {"input": 1, "cacheRead": 2},
        },
    },
    {"type": "message", "message": {"role": "toolResult", "toolCallId": "c", "content": [{"text": "o"}]}},
    {"type": "compaction", "summary": "x"},
    {"type": "message", "message": {"role": "assistant", "content": []}},
]
CHAT: dict[str, object] = {
    "sessionId": "s",
    "projectHash": "h",
    "messages": [
        {"id": "u", "type": "user", "content": [{"text": "go"}]},
        {
            "id": "g",
            "type": "gemini",
            "content": "x",
            "thoughts": [{"subject": "a", "description": "b"}],
            "tokens": {"input": 3, "cached": 1},
            "toolCalls": [{"id": "c", "name": "n", "args": {}, "result": [{"functionResponse": {"response": {}}}]}],
        },
    ],
}
GEMINI: list[object] = [CHAT | {"messages": None}, *CHAT["messages"], {"$set": {"messages": [{"id": "n"}]}}]  # type: ignore[misc]
MINI: object = {
    "info": {"submission": "-x"},
    "messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "```sh\nls\n```", "extra": {"response": {"usage": {"prompt_tokens": 3}}}},
        {"role": "user", "content": "out"},
    ],
}
SWE: object = {"history": [{"role": "user", "content": "go"}], "trajectory": [{"action": "ls", "observation": "out"}]}


def variants(value: object) -> Iterator[object]:
    """Yield `value` with each of its parts replaced by each odd value, and left out."""
    yield from ODD
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {other: kept for other, kept in value.items() if other != key}
            yield from (value | {key: odd} for odd in variants(inner))
    if isinstance(value, list):
        for at, inner in enumerate(value):
            yield value[:at] + value[at + 1 :]
            yield from ([*value[:at], odd, *value[at + 1 :]] for odd in variants(inner))


def check(transcripts: Iterator[Transcript]) -> None:
    for transcript in transcripts:
        session = measure(transcript, count=len)
        price_parts(session)
        for policy in COMPARED:
            simulate(session, policy)


@pytest.mark.parametrize(
    ("reader", "entries"),
    [
        (claude_code, CLAUDE),
        (codex, CODEX),
        (kimi_cli, KIMI_CLI),
        (kimi_code, KIMI_CODE),
        (pi, PI),
        (gemini_cli, GEMINI),
    ],
    ids=["Claude Code", "Codex", "Kimi CLI", "Kimi Code", "pi", "Gemini CLI"],
)
def test_odd_values_in_lines_stop_nothing(reader: object, entries: list[object]):
    read = reader.read  # type: ignore[attr-defined]
    for changed in variants(entries):
        if isinstance(changed, list):
            check(read([json.dumps(entry).encode() for entry in changed], "name"))


@pytest.mark.parametrize(
    ("read", "whole"),
    [
        (opencode.read_export, EXPORT),
        (gemini_cli.read_chat, CHAT),
        (swe_agents.read_mini, MINI),
        (swe_agents.read_swe_agent, SWE),
    ],
    ids=["opencode", "Gemini CLI", "mini-swe-agent", "SWE-agent"],
)
def test_odd_values_in_documents_stop_nothing(read: object, whole: object):
    assert callable(read)
    for changed in variants(whole):
        if isinstance(changed, dict):
            check(read(json.loads(json.dumps(changed)), "name"))
