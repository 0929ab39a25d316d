"""Anthropic's messages become chat completions, and chat answers become Anthropic's."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.core.chat.streams import CHATS, DONE, STOP, TOOL_STOP, USAGE_ALONE, Stream, call, delta, line, said
from tests.support.deep import places

from kimi_proxy.addons.translation.anthropic_to_chat import MessagesTranslation
from kimi_proxy.core import json as exact
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.reply import ReplyReader
from kimi_proxy.core.errors import InvalidParams, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseParser
from kimi_proxy.features.completions import ChatDialect

READ: JsonObject = {"name": "Read", "description": "Reads.", "input_schema": {"type": "object"}}
PNG: JsonObject = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
LINK: JsonObject = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}


def translated(*messages: JsonObject, **more: JsonValue) -> MessagesTranslation:
    body: JsonObject = {"model": "m", "max_tokens": 9, "messages": list(messages), **more}
    return MessagesTranslation(body, ChatDialect())


def user(*blocks: JsonValue) -> JsonObject:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: JsonValue) -> JsonObject:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str, **more: JsonValue) -> JsonObject:
    return {"type": "text", "text": words, **more}


def tool_use(id: str, **arguments: JsonValue) -> JsonObject:
    return {"type": "tool_use", "id": id, "name": "Read", "input": arguments}


def result(id: str, content: JsonValue, **more: JsonValue) -> JsonObject:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def shown_upon(*pieces: bytes) -> bytes:
    stream = translated().events()
    return b"".join(stream.feed(piece) for piece in pieces) + stream.end()


def events(raw: bytes) -> list[JsonObject]:
    """The client's events for a chat stream."""
    return [json.loads(event.data) for event in SseParser().feed(shown_upon(raw))]


# Requests


def test_a_conversation_with_tools_and_images_is_carried():
    translation = translated(
        user(text("look"), PNG, LINK),
        assistant(text("I read."), tool_use("a", path="é"), tool_use("b")),
        user(result("a", "one"), result("b", [text("two"), PNG]), text("go on")),
        system=[text("You are."), text("Be brief.")],
        tools=[READ],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        stop_sequences=["END"],
        temperature=0.5,
        top_p=0.9,
        stream=True,
    )

    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}
    link = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    assert translation.request == {
        "model": "m",
        "tools": [
            {
                "type": "function",
                "function": {"name": "Read", "description": "Reads.", "parameters": {"type": "object"}},
            }
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "messages": [
            {"role": "system", "content": "You are.\n\nBe brief."},
            {"role": "user", "content": [text("look"), image, link]},
            {
                "role": "assistant",
                "content": "I read.",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "Read", "arguments": '{"path":"é"}'}},
                    {"id": "b", "type": "function", "function": {"name": "Read", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "one"},
            {"role": "tool", "tool_call_id": "b", "content": "two"},
            {"role": "user", "content": [image, text("go on")]},
        ],
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["END"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert translation.dropped == ()


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "Read"}, {"type": "function", "function": {"name": "Read"}}),
    ],
)
def test_a_choice_of_tools_is_carried(choice: JsonObject, expected: JsonValue):
    assert translated(tools=[READ], tool_choice=choice).request["tool_choice"] == expected


def test_a_provider_may_call_the_limit_differently_and_count_unasked():
    dialect = ChatDialect(asks_usage=False, max_tokens="max_completion_tokens")
    request = MessagesTranslation({"model": "m", "max_tokens": 5, "messages": [], "stream": True}, dialect).request

    assert request == {"model": "m", "messages": [], "max_completion_tokens": 5, "stream": True}


def test_an_answer_with_a_schema_is_asked_for():
    wanted = {"type": "json_schema", "schema": {"type": "object"}}
    schema = {"name": "answer", "schema": {"type": "object"}, "strict": True}
    translation = translated(output_config={"effort": "high", "format": wanted})

    assert translation.request["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert translation.dropped == ("output_config.effort",)


def test_a_document_is_carried_as_text_or_as_a_file():
    plain = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}}
    file = {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBE"}}

    assert translated(user(plain, pdf)).request["messages"] == [{"role": "user", "content": [text("words"), file]}]


def test_what_is_left_out_is_named():
    marked = {"cache_control": {"type": "ephemeral"}}
    translation = translated(
        user(result("a", "failed", is_error=True), text("hi", **marked)),
        assistant({"type": "thinking", "thinking": "hm", "signature": "EqQB"}, text("so")),
        metadata={"user_id": "u"},
        top_k=3,
        thinking={"type": "enabled", "budget_tokens": 1024},
        context_management=None,
        tools=[{**READ, **marked}],
    )

    assert set(translation.dropped) == {
        *("metadata", "top_k", "thinking", "tools.cache_control"),
        *("messages.tool_result.is_error", "messages.text.cache_control", "messages.thinking"),
    }


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("mcp_servers", {"mcp_servers": [{"url": "https://example.com"}]}),
        ("container", {"container": "c_1"}),
        ("tools", {"tools": [READ, {"type": "web_search_20250305", "name": "web_search"}]}),
        ("tool_choice", {"tools": [READ], "tool_choice": {"type": "some"}}),
        ("output_config.format", {"output_config": {"format": {"type": "grammar"}}}),
        ("system", {"system": [{"type": "search_result"}]}),
        ("messages.0.content", {"messages": [user({"type": "image", "source": {"type": "file", "file_id": "f"}})]}),
        ("messages.0.content", {"messages": [assistant({"type": "server_tool_use", "id": "s"})]}),
        ("messages.0.role", {"messages": [{"role": "tool", "content": "x"}]}),
    ],
)
def test_what_cannot_be_left_out_is_refused_by_name(field: str, more: JsonObject):
    with pytest.raises(InvalidParams) as caught:
        translated(**more)  # type: ignore[arg-type]

    assert caught.value.field == field


# Thoughts


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_what_a_model_thought_goes_back_under_the_name_that_it_came_by(name: str):
    message = {"role": "assistant", name: "hm", "content": "so"}
    answer = translated().answer({"id": "1", "choices": [{"message": message, "finish_reason": "stop"}]})

    assert answer["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": f"kimi-proxy:{name}"},
        {"type": "text", "text": "so"},
    ]
    again = translated({"role": "assistant", "content": answer["content"]})
    assert again.request["messages"] == [{"role": "assistant", "content": "so", name: "hm"}]
    assert again.dropped == ()


# A conversation that goes on


ids = st.integers(0, 99).map("toolu_{}".format)
words = st.text(max_size=12)
asked = st.one_of(
    words,
    st.lists(
        st.one_of(
            words.map(text),
            st.just(PNG),
            st.builds(result, ids, st.one_of(words, st.lists(st.one_of(words.map(text), st.just(PNG)), max_size=2))),
        ),
        max_size=4,
    ),
)
answered = st.one_of(
    words,
    st.lists(
        st.one_of(
            words.map(text),
            st.builds(lambda id, path: tool_use(id, path=path), ids, words),
            words.map(lambda thought: {"type": "thinking", "thinking": thought, "signature": "kimi-proxy:reasoning"}),
        ),
        max_size=4,
    ),
)
turns = st.lists(st.tuples(asked, answered), min_size=1, max_size=6)


@given(turns)
def test_a_request_that_goes_on_begins_with_the_bytes_of_the_one_before(turns: list[tuple[JsonValue, JsonValue]]):
    messages: list[JsonObject] = []
    before = b""
    for question, answer in turns:
        messages.append({"role": "user", "content": question})
        body: JsonObject = {"model": "m", "system": "s", "tools": [READ], "messages": messages, "max_tokens": 9}
        now = exact.encode(MessagesTranslation(body, ChatDialect()).request)
        assert now == exact.encode(MessagesTranslation(json.loads(json.dumps(body)), ChatDialect()).request)
        assert now.startswith(before)
        before = now[: now.rindex(b"]")]
        messages.append({"role": "assistant", "content": answer})


def test_a_text_is_the_same_bytes_as_a_string_and_as_a_block_with_a_mark():
    marked = translated(user(text("hi", cache_control={"type": "ephemeral"}))).request
    assert marked == translated({"role": "user", "content": "hi"}).request


# Answers


def test_an_answer_in_one_piece_is_carried():
    calls = [{"id": "a", "type": "function", "function": {"name": "Read", "arguments": '{"path":"é"}'}}]
    usage = {"prompt_tokens": 120, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": 100}}
    choice = {"index": 0, "message": {"content": "I read.", "tool_calls": calls}, "finish_reason": "tool_calls"}
    answer = translated().answer({"id": "c1", "model": "kimi", "choices": [choice], "usage": usage})

    assert answer == {
        "id": "c1",
        "type": "message",
        "role": "assistant",
        "model": "kimi",
        "content": [text("I read."), tool_use("a", path="é")],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 20,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 100,
            "output_tokens": 30,
        },
    }


@pytest.mark.parametrize(
    ("choice", "reason", "sequence"),
    [
        ({"finish_reason": "stop"}, "end_turn", None),
        ({"finish_reason": "length"}, "max_tokens", None),
        ({"finish_reason": "content_filter"}, "refusal", None),
        ({"finish_reason": "stop", "stop_reason": "END"}, "stop_sequence", "END"),
        ({"finish_reason": "stop", "message": {"tool_calls": [call(None, "a", "Read", "{}")]}}, "tool_use", None),
    ],
)
def test_why_an_answer_ended_is_carried(choice: JsonObject, reason: str, sequence: str | None):
    answer = translated().answer({"choices": [choice]})

    assert (answer["stop_reason"], answer["stop_sequence"]) == (reason, sequence)


def test_an_answer_that_cannot_be_read_is_an_error():
    with pytest.raises(UpstreamUnreadable, match="no choices"):
        translated().answer({})
    with pytest.raises(UpstreamUnreadable, match="Read"):
        translated().answer({"choices": [{"message": {"tool_calls": [call(None, "a", "Read", '{"pa')]}}]})


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b'{"error":{"message":"no","type":"t","code":"context_length_exceeded"}}', "context_length_exceeded", "no"),
        (b'{"error":"no"}', "upstream_error", "no"),
        (b"<h1>Bad Gateway</h1>", "upstream_error", "<h1>Bad Gateway</h1>"),
        (b"", "upstream_error", "no reason given"),
    ],
)
def test_a_refusal_has_the_client_s_form(body: bytes, code: str, message: str):
    error = {"type": "rate_limit_error", "message": message, "code": code}
    assert translated().error(429, body) == {"type": "error", "error": error}


# Streams


def blocks_of(events: list[JsonObject]) -> list[JsonObject]:
    """What a client puts together, which checks that one block follows the other."""
    blocks: list[JsonObject] = []
    open_at: int | None = None
    for event in events:
        match event:
            case {"type": "content_block_start", "index": index, "content_block": block}:
                assert (open_at, index) == (None, len(blocks))
                blocks.append({**block, "parts": ""})
                open_at = index
            case {"type": "content_block_delta", "index": index, "delta": {"type": _, **added}}:
                assert index == open_at
                blocks[index]["parts"] += "".join(added.values())
            case {"type": "content_block_stop", "index": index}:
                assert index == open_at
                open_at = None
    assert open_at is None
    return blocks


def test_a_stream_of_thoughts_words_and_calls_is_carried():
    calls = (
        call(0, "a", "Read", ""),
        call(0, None, None, '{"pa'),
        call(1, "b", "Bash", "{}"),
        call(0, None, None, "}"),
    )
    raw = (
        line(delta({"reasoning_content": "hm"}))
        + said("I ", "read.")
        + "".join(line(delta({"tool_calls": [one]})) for one in calls)
        + TOOL_STOP
        + line(USAGE_ALONE)
        + DONE
    )
    shown = events(raw.encode())

    thought = {"type": "thinking", "thinking": "", "signature": ""}
    assert [event["type"] for event in (shown[0], *shown[-2:])] == ["message_start", "message_delta", "message_stop"]
    assert blocks_of(shown) == [
        {**thought, "parts": "hmkimi-proxy:reasoning_content"},
        {"type": "text", "text": "", "parts": "I read."},
        {"type": "tool_use", "id": "a", "name": "Read", "input": {}, "parts": '{"pa}'},
        {"type": "tool_use", "id": "b", "name": "Bash", "input": {}, "parts": "{}"},
    ]
    assert shown[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert shown[-2]["usage"]["cache_read_input_tokens"] == 100


def test_what_can_be_shown_is_shown_at_once():
    stream = translated().events()

    assert b"message_start" in stream.feed(line(delta({"role": "assistant", "content": ""})).encode())
    assert b"Hello" in stream.feed(said("Hello").encode())
    assert stream.feed(line(delta({"tool_calls": [call(0, "a", "Read", "")]})).encode()).count(b"event:") == 1
    assert b'{\\"pa' in stream.feed(line(delta({"tool_calls": [call(0, None, None, '{"pa')]})).encode())


def test_words_after_a_call_are_a_block_after_it():
    raw = line(delta({"tool_calls": [call(0, "a", "Read", "{")]})) + said("so") + TOOL_STOP + DONE

    assert [block["parts"] for block in blocks_of(events(raw.encode()))] == ["{", "so"]


COMPLETE = [stream for stream in CHATS if stream.facts.finish]


@pytest.mark.parametrize("stream", COMPLETE, ids=lambda stream: stream.name)
def test_a_stream_cut_at_any_byte_gives_the_same_events(stream: Stream):
    raw, whole = stream.raw, shown_upon(stream.raw)

    assert all(shown_upon(raw[:cut], raw[cut:]) == whole for cut in places(len(raw)))
    blocks_of(events(raw))


@pytest.mark.parametrize("stream", COMPLETE, ids=lambda stream: stream.name)
def test_the_accounts_of_a_translated_stream_are_those_of_the_provider(stream: Stream):
    reader, translator = ReplyReader(Wire.MESSAGES, is_stream=True), translated().events()
    reader.feed(translator.feed(stream.raw) + translator.end())

    counted = stream.facts.usage
    assert reader.facts.is_complete
    assert reader.facts.model == stream.facts.model
    assert reader.facts.usage is not None
    if counted is not None:
        assert (
            reader.facts.usage.input_tokens,
            reader.facts.usage.output_tokens,
            reader.facts.usage.cached_tokens,
        ) == (
            max(counted.input_tokens, counted.cached_tokens),
            counted.output_tokens,
            counted.cached_tokens,
        )


def test_an_error_in_the_middle_is_the_last_event():
    raw = said("hi") + line({"error": {"message": "overloaded", "code": 529}}) + said("more") + STOP + DONE
    shown = events(raw.encode())

    assert shown[-1] == {"type": "error", "error": {"type": "api_error", "message": "overloaded", "code": "529"}}
    assert not any("more" in str(event) for event in shown)
