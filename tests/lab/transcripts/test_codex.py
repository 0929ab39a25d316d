"""Rollouts as Codex writes them."""

import json

from kimi_proxy.lab.transcripts.codex import read
from kimi_proxy.lab.transcripts.transcript import AgentCall, CallOutput, ProviderUsage


def line(kind: str, **payload: object) -> bytes:
    return json.dumps({"timestamp": "2026-06-18T07:41:33.518Z", "type": kind, "payload": payload}).encode()


def words(role: str, text: str) -> bytes:
    return line("response_item", type="message", role=role, content=[{"type": "input_text", "text": text}])


def counted(input_tokens: int, cached: int, output: int) -> bytes:
    usage = {"input_tokens": input_tokens, "cached_input_tokens": cached, "output_tokens": output}
    return line("event_msg", type="token_count", info={"last_token_usage": usage, "total_token_usage": {}})


def asked(name: str) -> bytes:
    return line("response_item", type="function_call", name="exec_command", arguments='{"cmd":"ls"}', call_id=name)


def shown(name: str, output: object) -> bytes:
    return line("response_item", type="function_call_output", call_id=name, output=output)


META = line("session_meta", id="019e", base_instructions={"text": "You are Codex"})
CONTEXT = line("turn_context", model="gpt-5.5")


def test_a_count_of_tokens_ends_an_answer():
    (transcript,) = read(
        [
            META,
            words("user", "# AGENTS.md instructions"),
            CONTEXT,
            words("user", "list them"),
            line("response_item", type="reasoning", summary=[{"type": "summary_text", "text": "thinking"}]),
            asked("a"),
            shown("a", "one.py"),
            asked("b"),
            shown("b", [{"type": "output_text", "text": "two.py"}]),
            counted(1000, 600, 50),
            words("assistant", "Two files."),
            counted(1200, 1000, 9),
        ],
        "file",
    )

    first, second = transcript.requests
    assert (transcript.id, transcript.instructions) == ("019e", "You are Codex")
    assert first.calls == [AgentCall(name, "exec_command", '{"cmd":"ls"}') for name in "ab"]
    assert (first.model, first.thinking, first.usage) == ("gpt-5.5", "thinking", ProviderUsage(400, 600, 0, 0, 50))
    assert (second.outputs, second.said) == ([CallOutput("a", "one.py"), CallOutput("b", "two.py")], "Two files.")


def test_without_counts_an_answer_ends_when_something_is_shown():
    (transcript,) = read([words("user", "go"), asked("a"), shown("a", "x"), asked("b"), shown("b", "y")], "file")

    assert [[call.id for call in request.calls] for request in transcript.requests] == [["a"], ["b"]]


def test_an_image_has_no_text_and_found_tools_are_as_long_as_their_descriptions():
    image = shown("a", [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}])
    tools = line("response_item", type="tool_search_output", call_id="b", tools=[{"name": "fetch"}])
    (transcript,) = read([words("user", "go"), asked("a"), image, tools, words("assistant", "ok")], "file")

    assert transcript.requests[1].outputs == [CallOutput("a", ""), CallOutput("b", '[{"name":"fetch"}]')]


def test_a_count_that_repeats_ends_nothing():
    (transcript,) = read([words("user", "go"), words("assistant", "ok"), counted(10, 0, 1), counted(99, 0, 1)], "file")

    assert [request.usage for request in transcript.requests] == [ProviderUsage(10, 0, 0, 0, 1)]


def test_a_compaction_puts_other_words_in_place_of_the_history():
    history = [{"role": "user", "content": [{"text": "in short"}]}]
    (transcript,) = read(
        [
            words("user", "go"),
            words("assistant", "ok"),
            counted(10, 0, 1),
            line("compacted", message="", replacement_history=history),
            words("assistant", "on"),
            counted(5, 0, 1),
        ],
        "file",
    )

    assert [(request.is_compacted, request.user) for request in transcript.requests] == [
        (False, ["go"]),
        (True, ["in short"]),
    ]


def test_damaged_lines_and_unknown_items_are_passed_over():
    (transcript,) = read(
        [
            b'{"type":"response_item","payl',
            line("response_item", type="hologram", data=3),
            line("event_msg", type="token_count", info=None),
            words("user", "go"),
            words("assistant", "ok"),
        ],
        "file",
    )

    assert [request.said for request in transcript.requests] == ["ok"]
