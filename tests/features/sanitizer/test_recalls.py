"""A call that reads cut text back was answered, refused by the client, or failed with an error of ours."""

import json

import pytest
from tests.support.conversations import Assistant, Call, Result, User, request

from kimi_proxy.core.chat import Wire
from kimi_proxy.features.sanitizer.recalls import RecallOutcome, recall_outcome

BY_MCP = Call("c1", "mcp__pruner__recover_text", {"prune_id": "prn_0123456789abcdef"})
BY_COMMAND = Call("c1", "bash", {"command": "curl -s http://127.0.0.1:8000/api/mask/prn_0123456789abcdef"})
# The sentences of programs that ask before they call a tool.
REFUSALS = (
    "Claude requested permissions to use mcp__kimi-proxy__recover_text, but you haven't granted it yet.",
    "The user doesn't want to proceed with this tool use. The tool use was rejected.",
    "Permission for this action was denied by the Claude Code auto mode classifier. Reason: not sure",
    "MCP tool call requires approval, but approval policy is never",
    "user rejected MCP tool call",
    "Permission denied because no interactive user response was available",
    "The user rejected permission to use this specific tool call.",
    'Tool execution for "recover_text" requires user confirmation, which is not supported in non-interactive mode.',
    "Tool execution denied by policy.",
    "declined (non-interactive mode cannot prompt for confirmation)",
    "Permission denied by user",
    "Tool execution denied by user.",
    "This tool call was rejected by the user and not executed.",
)
RAW = json.dumps({"raw_text": "permission denied", "metadata": {"prune_id": "prn_0123456789abcdef"}})


def outcome(call: Call, text: str, failed: bool = False, wire: Wire = Wire.MESSAGES) -> RecallOutcome:
    asked = request(wire, [User("why?"), Assistant("", (call,)), Result("c1", text, failed)])
    parts = [part for message in asked.messages for part in message.parts]
    (made,) = [part for part in parts if part.kind == "tool_call"]
    (result,) = [part for part in parts if part.kind == "tool_result"]
    return recall_outcome(made, result)


@pytest.mark.parametrize("text", REFUSALS)
@pytest.mark.parametrize("wire", list(Wire))
def test_the_refusals_of_agents_are_known_by_their_words(text: str, wire: Wire):
    assert outcome(BY_MCP, text, wire=wire) == "refused"


def test_a_failed_call_of_the_tool_counts_as_refused_whatever_it_says():
    assert outcome(BY_MCP, "the server is gone", failed=True) == "refused"


@pytest.mark.parametrize("text", [RAW, f"Wall time: 0.1 s\nOutput:\n{RAW}", json.dumps([{"result": RAW}])])
def test_an_answer_of_our_tool_is_one_whatever_the_text_says(text: str):
    assert outcome(BY_MCP, text) == "answered"


def test_plain_text_is_an_answer():
    assert outcome(BY_MCP, "x = 1\n" * 3) == "answered"
    assert outcome(BY_MCP, "permission denied\n" * 100) == "answered"


@pytest.mark.parametrize(
    "text", ["prune_id_not_found: unknown id 'prn_x'", "MCP error -32005: invalid_range", "invalid_range: below 1"]
)
@pytest.mark.parametrize("failed", [True, False])
def test_an_error_of_ours_is_neither(text: str, failed: bool):
    assert outcome(BY_MCP, text, failed) == "failed"


def test_a_command_is_refused_by_words_alone():
    assert outcome(BY_COMMAND, "exit code 7", failed=True) == "answered"
    assert outcome(BY_COMMAND, "Claude requested permissions to use Bash, but you haven't granted it yet.") == "refused"
