"""Chat completions in front of a provider that speaks Anthropic's messages: requests, answers and streams."""

import json
import re

import pytest
from tests.support.model import Call, Says, body, events

from kimi_proxy.addons.translation.chat_to_anthropic import ChatTranslation
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.chat.reply import ReplyReader
from kimi_proxy.core.errors import InvalidParams, UpstreamDisconnected
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.completions import ChatDialect

MARK = {"cache_control": {"type": "ephemeral"}}
USER: JsonObject = {"role": "user", "content": "hi"}
SAYS = Says("Now.", (Call("c1", "bash", {"command": "ls"}), Call("c2", "read", {"path": "é"})), "Hm.", (20, 7))


def translated(*messages: JsonObject, **more: JsonValue) -> ChatTranslation:
    return ChatTranslation({"model": "claude-x", "messages": [*messages], **more}, ChatDialect())


def test_ids_of_calls_that_anthropic_would_refuse_get_the_same_valid_id_in_call_and_result():
    odd = "functions.bash:0 \ud800"
    call: JsonObject = {"id": odd, "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    result: JsonObject = {"role": "tool", "tool_call_id": odd, "content": "one"}
    turns = [translated(USER, {"role": "assistant", "tool_calls": [call]}, result).request["messages"] for _ in "ab"]
    used, answered = turns[0][1]["content"][0]["id"], turns[0][2]["content"][0]["tool_use_id"]  # type: ignore[index,call-overload]

    assert turns[0] == turns[1]
    assert used == answered
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", str(used))


def test_a_conversation_with_calls_is_carried_in_turns():
    call: JsonObject = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
    made = translated(
        {"role": "system", "content": "Be brief."},
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "c2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "user", "content": [{"type": "text", "text": "go on"}]},
        max_completion_tokens=99,
        stop="END",
        temperature=1.5,
        stream=True,
    ).request

    use = {"type": "tool_use", "name": "bash", "input": {"command": "ls"}}
    assert made == {
        "model": "claude-x",
        "max_tokens": 99,
        "system": [{"type": "text", "text": "Be brief.", **MARK}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": [{"id": "c1", **use}, {"id": "c2", **use}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "one"}]},
                    {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "two"}]},
                    {"type": "text", "text": "go on", **MARK},
                ],
            },
        ],
        "temperature": 1,
        "stop_sequences": ["END"],
        "stream": True,
    }


def test_a_conversation_that_goes_on_begins_as_before_but_for_the_cache_s_mark():
    first = [USER, {"role": "assistant", "content": "So."}, {"role": "user", "content": "and?"}]
    later = [*first, {"role": "assistant", "content": "Well."}, {"role": "user", "content": "then?"}]

    def messages(said: list[JsonObject]) -> JsonValue:
        return json.loads(json.dumps(translated(*said).request["messages"]).replace(f", {json.dumps(MARK)[1:-1]}", ""))

    assert messages(later)[:3] == messages(first)  # type: ignore[index]


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("auto", {"type": "auto"}),
        ("required", {"type": "any"}),
        ({"type": "function", "function": {"name": "bash"}}, {"type": "tool", "name": "bash"}),
    ],
)
def test_tools_and_their_choice_are_carried(choice: JsonValue, said: JsonObject):
    schema: JsonObject = {"type": "object", "properties": {"command": {"type": "string"}}}
    tool: JsonObject = {"type": "function", "function": {"name": "bash", "description": "Run", "parameters": schema}}
    made = translated(USER, tools=[tool], tool_choice=choice, parallel_tool_calls=False).request

    assert made["tools"] == [{"name": "bash", "description": "Run", "input_schema": schema}]
    assert made["tool_choice"] == {**said, "disable_parallel_tool_use": True}


def test_images_and_files_are_carried():
    parts: list[JsonValue] = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,BBBB"}},
    ]
    (message,) = translated({"role": "user", "content": parts}).request["messages"]  # type: ignore[misc]

    assert [block["source"] for block in message["content"]] == [  # type: ignore[index, call-overload]
        {"type": "base64", "media_type": "image/png", "data": "AAAA"},
        {"type": "url", "url": "https://example.org/a.png"},
        {"type": "base64", "media_type": "application/pdf", "data": "BBBB"},
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"n": 2},
        {"tools": [{"type": "web_search"}]},
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        {"messages": [{"role": "function", "content": "x"}]},
    ],
)
def test_what_cannot_be_carried_is_refused_by_name(more: JsonObject):
    with pytest.raises(InvalidParams):
        ChatTranslation({"model": "m", "messages": [USER], **more}, ChatDialect())


def test_what_is_left_out_is_named():
    assert translated(USER, logprobs=True, reasoning_effort="low").dropped == ("logprobs", "reasoning_effort")


def test_an_answer_comes_back_as_chat_completions():
    answer = translated(USER).answer(json.loads(body(Wire.MESSAGES, SAYS)))

    (choice,) = answer["choices"]  # type: ignore[misc]
    message = choice["message"]  # type: ignore[index, call-overload]
    assert (message["content"], message["reasoning_content"]) == ("Now.", "Hm.")  # type: ignore[index, call-overload]
    calls = [(call["id"], call["function"]["name"]) for call in message["tool_calls"]]  # type: ignore[index, call-overload, union-attr]
    assert calls == [("c1", "bash"), ("c2", "read")]
    assert choice["finish_reason"] == "tool_calls"  # type: ignore[index, call-overload]
    assert answer["usage"]["prompt_tokens"] == 20  # type: ignore[index, call-overload]


@pytest.mark.parametrize("size", [1, 7, 10**6])
def test_a_stream_comes_back_as_chat_completions_wherever_it_is_cut(size: int):
    raw = b"".join(events(Wire.MESSAGES, SAYS))
    stream = translated(USER, stream=True, stream_options={"include_usage": True}).events()
    came = b"".join(stream.feed(raw[at : at + size]) for at in range(0, len(raw), size)) + stream.end()

    reader = ReplyReader(Wire.CHAT, True, "")
    reader.feed(came)
    chunks = [json.loads(line[6:]) for line in came.split(b"\n") if line.startswith(b"data: {")]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    pieces = [piece for delta in deltas for piece in delta.get("tool_calls", ())]
    written = ["".join(p["function"].get("arguments", "") for p in pieces if p["index"] == at) for at in (0, 1)]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Now."
    assert [json.loads(each) for each in written] == [{"command": "ls"}, {"path": "é"}]
    assert reader.facts.is_complete and reader.facts.finish == "tool_calls" and came.endswith(b"data: [DONE]\n\n")
    usage = reader.facts.usage
    assert usage is not None and (usage.input_tokens, usage.output_tokens) == (20, 7)


def test_a_stream_that_breaks_off_is_not_complete():
    stream = translated(USER, stream=True).events()
    stream.feed(b"".join(events(Wire.MESSAGES, SAYS)[:-1]))

    with pytest.raises(UpstreamDisconnected):
        stream.end()


def test_an_error_in_a_stream_and_a_refusal_keep_their_words():
    translation = translated(USER, stream=True)
    error: JsonObject = {"type": "error", "error": {"type": "overloaded_error", "message": "too busy"}}
    came = translation.events().feed(b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n")

    assert json.loads(came.removeprefix(b"data: "))["error"]["message"] == "too busy"
    assert translation.error(529, json.dumps(error).encode())["error"]["message"] == "too busy"  # type: ignore[index, call-overload]


def test_the_request_can_be_read_as_one_of_anthropic_s():
    request = parse(json.dumps(translated({"role": "system", "content": "s"}, USER).request).encode(), Wire.MESSAGES)

    assert [part.text for part in request.system] == ["s"] and [m.role for m in request.messages] == ["user"]
