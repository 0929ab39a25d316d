"""OpenAI's responses become chat completions, and chat answers become responses."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.core.chat.streams import CHATS, DONE, STOP, TOOL_STOP, USAGE_ALONE, Stream, call, delta, line, said
from tests.support.deep import places

from kimi_proxy.addons.translation.responses_to_chat import ResponsesTranslation
from kimi_proxy.core import json as exact
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.reply import ReplyReader, Usage
from kimi_proxy.core.errors import InvalidParams, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseParser
from kimi_proxy.features.completions import ChatDialect

SCHEMA: JsonObject = {"type": "object"}
EXEC: JsonObject = {"type": "function", "name": "exec", "description": "Runs.", "strict": False, "parameters": SCHEMA}
MCP: JsonObject = {"type": "namespace", "name": "mcp__pruner", "tools": [{**EXEC, "name": "read"}]}
PATCH: JsonObject = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: patch"},
}
SEARCH: JsonObject = {"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": SCHEMA}
PNG = "data:image/png;base64,iVBO"
IMAGE: JsonObject = {"type": "input_image", "image_url": PNG}


def translated(*items: JsonObject, **more: JsonValue) -> ResponsesTranslation:
    return ResponsesTranslation({"model": "m", "input": list(items), **more}, ChatDialect())


def messages(*items: JsonObject, **more: JsonValue) -> JsonValue:
    return translated(*items, **more).request["messages"]


def message(role: str, *parts: JsonValue) -> JsonObject:
    return {"type": "message", "id": "msg_1", "role": role, "content": list(parts)}


def text(words: str) -> JsonObject:
    return {"type": "input_text", "text": words}


def wrote(words: str) -> JsonObject:
    return message("assistant", {"type": "output_text", "text": words, "annotations": []})


def called(id: str, name: str = "exec", arguments: str = "{}", **more: JsonValue) -> JsonObject:
    return {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": arguments, **more}


def result(id: str, output: JsonValue) -> JsonObject:
    return {"type": "function_call_output", "call_id": id, "output": output}


def thought(words: str, name: str = "reasoning_content") -> JsonObject:
    return {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": f"kimi-proxy:{name}:{words}"}


def asks(id: str, name: str = "exec", arguments: str = "{}") -> JsonObject:
    """A call in a chat message."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(id: str, content: str) -> JsonObject:
    return {"role": "tool", "tool_call_id": id, "content": content}


def shown_upon(*pieces: bytes, tools: list[JsonValue] | None = None) -> bytes:
    stream = translated(tools=tools or []).events()
    return b"".join(stream.feed(piece) for piece in pieces) + stream.end()


def events(raw: str | bytes, *tools: JsonValue) -> list[JsonObject]:
    """The client's events for a chat stream."""
    data = raw.encode() if isinstance(raw, str) else raw
    return [json.loads(event.data) for event in SseParser().feed(shown_upon(data, tools=list(tools)))]


# Requests


def test_a_conversation_with_tools_and_images_is_carried():
    translation = translated(
        message("developer", text("Be brief.")),
        message("user", text("look"), {**IMAGE, "detail": "high"}),
        thought("hm"),
        wrote("I run."),
        called("a", arguments='{"cmd":"é"}'),
        called("b", "read", namespace="mcp__pruner"),
        result("a", "one"),
        result("b", [text("two"), IMAGE]),
        message("user", text("go on")),
        instructions="You are.",
        tools=[EXEC, MCP],
        tool_choice="required",
        parallel_tool_calls=False,
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.9,
        store=False,
        stream=True,
        include=["reasoning.encrypted_content"],
        truncation="disabled",
    )

    function = {"description": "Runs.", "parameters": SCHEMA}
    image = {"type": "image_url", "image_url": {"url": PNG}}
    detailed = {"type": "image_url", "image_url": {"url": PNG, "detail": "high"}}
    assert translation.request == {
        "model": "m",
        "tools": [
            {"type": "function", "function": {"name": "exec", **function}},
            {"type": "function", "function": {"name": "mcp__pruner__read", **function}},
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "messages": [
            {"role": "system", "content": "You are."},
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "look"}, detailed]},
            {
                "role": "assistant",
                "content": "I run.",
                "reasoning_content": "hm",
                "tool_calls": [asks("a", arguments='{"cmd":"é"}'), asks("b", "mcp__pruner__read")],
            },
            tool("a", "one"),
            tool("b", "two"),
            {"role": "user", "content": [image]},
            {"role": "user", "content": "go on"},
        ],
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert translation.dropped == ()


def test_an_input_that_is_a_text_is_what_the_user_says():
    assert ResponsesTranslation({"model": "m", "input": "hi"}, ChatDialect()).request == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
    }


def test_results_follow_their_calls_whatever_stands_between_them():
    """Codex says that a command was approved while another one runs."""
    said_late = message("developer", text("approved"))

    assert messages(called("a"), called("b"), result("b", [IMAGE]), said_late, result("a", "1"), wrote("so")) == [
        {"role": "assistant", "content": None, "tool_calls": [asks("a"), asks("b")]},
        tool("b", ""),
        tool("a", "1"),
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG}}]},
        {"role": "system", "content": "approved"},
        {"role": "assistant", "content": "so"},
    ]


def test_a_call_that_was_answered_before_the_next_is_a_message_of_its_own():
    roles = [each["role"] for each in messages(called("a"), result("a", "1"), called("b"), result("b", "2"))]

    assert roles == ["assistant", "tool", "assistant", "tool"]


def test_a_call_without_a_result_holds_nothing_back():
    assert messages(called("a"), message("user", text("stop"))) == [
        {"role": "assistant", "content": None, "tool_calls": [asks("a")]},
        {"role": "user", "content": "stop"},
    ]


def test_a_tool_for_free_text_is_a_function_of_one_argument():
    custom: JsonObject = {"type": "custom_tool_call", "call_id": "a", "name": "apply_patch", "input": "*** é"}
    done: JsonObject = {"type": "custom_tool_call_output", "call_id": "a", "output": "ok"}
    translation = translated(custom, done, tools=[PATCH], tool_choice={"type": "custom", "name": "apply_patch"})

    (offered,) = translation.request["tools"]
    assert offered["function"]["parameters"]["required"] == ["input"]
    assert "Edits." in offered["function"]["description"]
    assert "lark:\nstart: patch" in offered["function"]["description"]
    assert translation.request["tool_choice"] == {"type": "function", "function": {"name": "apply_patch"}}
    assert translation.request["messages"] == [
        {"role": "assistant", "content": None, "tool_calls": [asks("a", "apply_patch", '{"input":"*** é"}')]},
        tool("a", "ok"),
    ]


@pytest.mark.parametrize(
    ("offered", "item", "arguments", "answered", "read"),
    [
        (
            {"type": "local_shell"},
            {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {}}},
            {"command": ["ls"]},
            {"type": "local_shell_call_output", "output": "a.txt"},
            "a.txt",
        ),
        (
            {"type": "shell", "environment": {"type": "local"}},
            {"type": "shell_call", "action": {"commands": ["ls"]}},
            {"commands": ["ls"]},
            {
                "type": "shell_call_output",
                "output": [{"stdout": "a\n", "stderr": "b", "outcome": {"type": "exit", "exit_code": 1}}],
            },
            "a\nb\n[exit code 1]",
        ),
        (
            {"type": "apply_patch"},
            {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
            {"type": "delete_file", "path": "a"},
            {"type": "apply_patch_call_output", "status": "failed", "output": "no"},
            "[failed]\n\nno",
        ),
        (
            SEARCH,
            {"type": "tool_search_call", "execution": "client", "arguments": {"query": "x"}},
            {"query": "x"},
            {"type": "tool_search_output", "execution": "client", "tools": [MCP]},
            "You can call these tools now: mcp__pruner__read",
        ),
    ],
)
def test_the_api_s_own_tools_are_functions_and_come_back_as_their_items(
    offered: JsonObject, item: JsonObject, arguments: JsonObject, answered: JsonObject, read: str
):
    kind = str(offered["type"])
    translation = translated({**item, "call_id": "a"}, {**answered, "call_id": "a"}, tools=[offered])

    asked, result = translation.request["messages"]
    function = asked["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == (kind, arguments)
    assert result == tool("a", read)
    whole = {"choices": [{"message": {"tool_calls": [asks("b", kind, json.dumps(arguments))]}}]}
    (back,) = translation.answer(whole)["output"]
    member = next(iter({"action", "operation", "arguments"} & back.keys()))
    assert (back["type"], back["call_id"]) == (f"{kind}_call", "b")
    assert back[member] == item[member]


def test_tools_that_a_search_found_are_offered_from_then_on():
    found: JsonObject = {"type": "tool_search_output", "call_id": "a", "execution": "client", "tools": [MCP, EXEC]}
    asked: JsonObject = {"type": "tool_search_call", "call_id": "a", "execution": "client", "arguments": {}}
    translation = translated(asked, found, tools=[EXEC, SEARCH])

    names = [each["function"]["name"] for each in translation.request["tools"]]
    assert names == ["exec", "tool_search", "mcp__pruner__read"]


def test_a_name_that_chat_completions_do_not_allow_is_shortened_and_comes_back_whole():
    long: JsonObject = {"type": "namespace", "name": "mcp__" + "x" * 60, "tools": [{**EXEC, "name": "do.it"}]}
    translation = translated(tools=[long])
    name = translation.request["tools"][0]["function"]["name"]
    (item,) = translation.answer({"choices": [{"message": {"tool_calls": [asks("a", name)]}}]})["output"]

    assert len(name) == 64
    assert (item["namespace"], item["name"]) == ("mcp__" + "x" * 60, "do.it")
    again = messages(called("a", "do.it", namespace="mcp__" + "x" * 60))
    assert again[0]["tool_calls"][0]["function"]["name"] == name


def test_two_tools_that_would_have_one_name_keep_apart():
    other: JsonObject = {**EXEC, "name": "mcp__pruner__read"}
    translation = translated(called("a", "read", namespace="mcp__pruner"), tools=[other, MCP])
    first, second = (each["function"]["name"] for each in translation.request["tools"])

    assert first == "mcp__pruner__read" != second
    assert translation.request["messages"][0]["tool_calls"][0]["function"]["name"] == second


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True},
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
        ),
    ],
)
def test_the_form_of_an_answer_is_asked_for(wanted: JsonObject, expected: JsonObject):
    assert translated(text={"format": wanted}).request["response_format"] == expected
    assert "response_format" not in translated(text={"format": {"type": "text"}}).request


def test_a_provider_may_call_the_limit_differently_and_know_the_key_of_a_cache():
    dialect = ChatDialect(asks_usage=False, max_tokens="max_completion_tokens", takes_cache_key=True)
    body: JsonObject = {"model": "m", "max_output_tokens": 5, "input": [], "stream": True, "prompt_cache_key": "k"}

    assert ResponsesTranslation(body, dialect).request == {
        "model": "m",
        "messages": [],
        "max_completion_tokens": 5,
        "prompt_cache_key": "k",
        "stream": True,
    }


def test_files_and_sounds_are_carried():
    sound: JsonObject = {"data": "UklG", "format": "wav"}
    parts: list[JsonValue] = [
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"},
        {"type": "input_audio", "input_audio": sound},
    ]

    file = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}
    content = [{"type": "file", "file": file}, {"type": "input_audio", "input_audio": sound}]
    assert messages(message("user", *parts)) == [{"role": "user", "content": content}]


def test_what_is_left_out_is_named():
    translation = translated(
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gAAA"},
        {**wrote("so"), "phase": "final"},
        {"type": "web_search_call", "id": "ws", "action": {"type": "search", "query": "x"}},
        message("user", {**IMAGE, "detail": "original"}),
        tools=[{**EXEC, "defer_loading": True}, {"type": "web_search", "external_web_access": False}],
        reasoning={"effort": "high", "summary": None},
        text={"verbosity": "low"},
        include=["reasoning.encrypted_content", "message.output_text.logprobs"],
        prompt_cache_key="k",
        client_metadata={"x": "y"},
        truncation="auto",
        store=True,
        metadata=None,
    )

    assert set(translation.dropped) == {
        *("input.reasoning", "input.message.phase", "input.web_search_call", "input.input_image.detail"),
        *("tools.defer_loading", "tools.web_search", "reasoning.effort", "text.verbosity", "prompt_cache_key"),
        *("include.message.output_text.logprobs", "client_metadata", "truncation", "store"),
    }


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("previous_response_id", {"previous_response_id": "resp_1"}),
        ("conversation", {"conversation": "conv_1"}),
        ("prompt", {"prompt": {"id": "p"}}),
        ("background", {"background": True}),
        ("tools", {"tools": [{"type": "file_search"}]}),
        ("tools", {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}),
        ("tool_choice", {"tools": [EXEC], "tool_choice": {"type": "web_search"}}),
        ("tool_choice", {"tools": [EXEC], "tool_choice": {"type": "allowed_tools", "tools": []}}),
        ("text.format", {"text": {"format": {"type": "grammar"}}}),
        ("input.0", {"input": [{"type": "item_reference", "id": "x"}]}),
        ("input.0", {"input": [{"type": "compaction", "encrypted_content": "x"}]}),
        ("input", {"input": [message("user"), "hi"]}),
        ("input", {"input": {"role": "user"}}),
        ("input.0.content", {"input": [{"role": "user", "content": [["hi"]]}]}),
        ("input.0.role", {"input": [message("critic")]}),
        ("input.0.content", {"input": [message("user", {"type": "input_image", "file_id": "f"})]}),
        ("input.0.output", {"input": [result("a", [{"type": "input_file", "file_id": "f"}])]}),
    ],
)
def test_what_cannot_be_left_out_is_refused_by_name(field: str, more: JsonObject):
    with pytest.raises(InvalidParams) as caught:
        ResponsesTranslation({"model": "m", "input": [], **more}, ChatDialect())

    assert caught.value.field == field


names = st.sampled_from(
    [
        *("type", "role", "content", "text", "name", "namespace", "tools", "call_id", "id", "output", "arguments"),
        *("input", "action", "operation", "encrypted_content", "summary", "status", "image_url", "format", "schema"),
        *("function", "custom", "message", "reasoning", "function_call", "shell_call_output", "input_text", "user"),
        *("assistant", "compaction", "compaction_trigger", "tool_search_output", "apply_patch_call", "input_image"),
    ]
)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), names, st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=4)),
    max_leaves=12,
)
members = st.sampled_from(
    [
        *("input", "instructions", "tools", "tool_choice", "text", "reasoning", "include", "prompt_cache_key"),
        *("max_output_tokens", "parallel_tool_calls", "store", "context_management", "metadata"),
    ]
)


@given(st.dictionaries(members, st.one_of(anything, st.lists(anything, max_size=4)), max_size=5))
def test_whatever_a_client_sends_is_carried_or_refused_by_name(body: JsonObject):
    try:
        translation = ResponsesTranslation({"model": "m", **body}, ChatDialect())
    except InvalidParams as e:
        assert e.field
    else:
        exact.encode(translation.request)
        assert all(each["role"] for each in translation.request["messages"])


# Thoughts


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_what_a_model_thought_goes_back_under_the_name_that_it_came_by(name: str):
    said: JsonObject = {"role": "assistant", name: "hm: so", "content": "so"}
    answer = translated().answer({"id": "1", "choices": [{"message": said, "finish_reason": "stop"}]})

    first, second = answer["output"]
    assert first["content"] == [{"type": "reasoning_text", "text": "hm: so"}]
    # Codex sends back no `content` of a thought.
    again = translated({**first, "content": None}, second)
    assert again.request["messages"] == [{"role": "assistant", "content": "so", name: "hm: so"}]
    assert again.dropped == ()


# Compactions


def test_a_compaction_is_a_summary_that_the_model_is_asked_for():
    trigger: JsonObject = {"type": "compaction_trigger"}
    translation = translated(message("user", text("go")), wrote("ok"), trigger, tools=[EXEC], tool_choice="auto")
    raw = line(delta({"reasoning_content": "hm"})) + said("We ", "went.") + STOP + line(USAGE_ALONE) + DONE
    stream = translation.events()
    shown = [json.loads(event.data) for event in SseParser().feed(stream.feed(raw.encode()) + stream.end())]

    assert translation.request["tool_choice"] == "none"
    assert [each["role"] for each in translation.request["messages"]] == ["user", "assistant", "user"]
    assert [event["type"] for event in shown] == [
        *("response.created", "response.in_progress"),
        *("response.output_item.added", "response.output_item.done", "response.completed"),
    ]
    (item,) = shown[-1]["response"]["output"]
    assert (item["type"], item["encrypted_content"]) == ("compaction", "kimi-proxy:summary:We went.")
    whole = {"id": "chatcmpl-1", "choices": [{"message": {"content": "We went."}, "finish_reason": "stop"}]}
    assert translation.answer(whole)["output"] == [item]
    (first, second) = messages(item, message("user", text("on")))
    assert first["content"].endswith("\n\nWe went.") and second == {"role": "user", "content": "on"}


@pytest.mark.parametrize(
    "choice", [{"message": {"content": " "}}, {"message": {"content": "x"}, "finish_reason": "length"}]
)
def test_a_conversation_is_not_replaced_by_half_a_summary(choice: JsonObject):
    with pytest.raises(UpstreamUnreadable, match="summary"):
        translated({"type": "compaction_trigger"}).answer({"choices": [choice]})


# A conversation that goes on


ids = st.integers(0, 99).map("call_{}".format)
words = st.text(max_size=12)
asked = st.lists(
    st.one_of(
        words.map(lambda each: message("user", text(each))),
        words.map(lambda each: message("developer", text(each))),
        st.just(message("user", IMAGE)),
    ),
    min_size=1,
    max_size=3,
)


def calls_with_results(given: list[tuple[str, str]]) -> list[JsonObject]:
    once = dict(given)
    results = [result(id, [text(each), IMAGE]) for id, each in once.items()]
    return [*(called(id) for id in once), *results]


answered = st.builds(
    lambda before, calls, after: [*before, *calls_with_results(calls), *after],
    st.lists(st.one_of(words.map(wrote), words.map(thought)), max_size=3),
    st.lists(st.tuples(ids, words), max_size=3),
    words.map(lambda each: [wrote(each)]),
)
turns = st.lists(st.tuples(asked, answered), min_size=1, max_size=6)


@given(turns)
def test_a_request_that_goes_on_begins_with_the_bytes_of_the_one_before(
    turns: list[tuple[list[JsonObject], list[JsonObject]]],
):
    items: list[JsonObject] = []
    before = b""
    for question, answer in turns:
        items += question
        body: JsonObject = {"model": "m", "instructions": "s", "tools": [EXEC], "input": items, "temperature": 1}
        now = exact.encode(ResponsesTranslation(body, ChatDialect()).request)
        assert now == exact.encode(ResponsesTranslation(json.loads(json.dumps(body)), ChatDialect()).request)
        assert now.startswith(before)
        before = now[: now.rindex(b'],"temperature"')]
        items += answer


# Answers


def test_an_answer_in_one_piece_is_carried():
    usage = {
        "prompt_tokens": 120,
        "completion_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 100},
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    choice = {"index": 0, "message": {"content": "I run.", "tool_calls": [asks("a")]}, "finish_reason": "tool_calls"}
    answer = translated(tools=[EXEC], parallel_tool_calls=False).answer(
        {"id": "c1", "created": 5, "model": "kimi", "choices": [choice], "usage": usage}
    )

    part = {"type": "output_text", "text": "I run.", "annotations": [], "logprobs": []}
    assert answer == {
        "id": "resp_c1",
        "object": "response",
        "created_at": 5,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "kimi",
        "output": [
            {"type": "message", "id": "msg_c1_0", "status": "completed", "role": "assistant", "content": [part]},
            {
                "type": "function_call",
                "id": "fc_c1_1",
                "call_id": "a",
                "status": "completed",
                "name": "exec",
                "arguments": "{}",
            },
        ],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "store": False,
        "usage": {
            "input_tokens": 120,
            "input_tokens_details": {"cached_tokens": 100},
            "output_tokens": 30,
            "output_tokens_details": {"reasoning_tokens": 7},
            "total_tokens": 150,
        },
    }


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
    ],
)
def test_why_an_answer_ended_is_carried(finish: str, status: str, reason: str | None):
    answer = translated().answer({"choices": [{"finish_reason": finish}]})

    assert answer["status"] == status
    assert answer["incomplete_details"] == ({"reason": reason} if reason else None)


@pytest.mark.parametrize("arguments", ['{"input":"*** é"}', '"*** é"', "*** é"])
def test_free_text_is_taken_as_a_model_writes_it(arguments: str):
    whole = {"choices": [{"message": {"tool_calls": [asks("a", "apply_patch", arguments)]}}]}
    (item,) = translated(tools=[PATCH]).answer(whole)["output"]

    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", "*** é")


def test_an_answer_that_cannot_be_read_is_an_error():
    with pytest.raises(UpstreamUnreadable, match="no choices"):
        translated().answer({})
    with pytest.raises(UpstreamUnreadable, match="shell"):
        whole = {"choices": [{"message": {"tool_calls": [asks("a", "shell", '{"pa')]}}]}
        translated(tools=[{"type": "shell"}]).answer(whole)


def test_a_refusal_has_the_client_s_form():
    body = b'{"error":{"message":"no","type":"t","code":"context_length_exceeded"}}'
    error = {"message": "no", "type": "invalid_request_error", "param": None, "code": "context_length_exceeded"}

    assert translated().error(400, body) == {"error": error}


# Streams


def items_of(events: list[JsonObject]) -> list[JsonObject]:
    """What a client puts together, which checks the order of the events."""
    items: list[JsonObject] = []
    said, is_open = "", False
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    for event in events[2:-1]:
        assert event["output_index"] == len(items)
        match event:
            case {"type": "response.output_item.added"}:
                assert not is_open
                said, is_open = "", True
            case {"type": str(kind), "delta": str(piece)} if kind.endswith(".delta"):
                assert is_open
                said += piece
            case {"type": "response.output_item.done", "item": item}:
                items.append({"said": said, **item})
                is_open = False
            case {"type": str(kind), "text": str(whole)} if kind.endswith(".done"):
                assert whole == said
            case {"type": "response.function_call_arguments.done", "arguments": whole}:
                assert whole == said
    assert not is_open
    response = events[-1]["response"]
    assert [{key: each[key] for key in each if key != "said"} for each in items] == response["output"]
    return items


def test_a_stream_of_thoughts_words_and_calls_is_carried():
    calls = (
        call(0, "a", "exec", ""),
        call(0, None, None, '{"pa'),
        call(1, "b", "apply_patch", '{"input":"*** é"}'),
        call(0, None, None, "}"),
        call(2, "c", "mcp__pruner__read", "{}"),
    )
    raw = (
        line(delta({"reasoning_content": "hm"}))
        + said("I ", "run.")
        + "".join(line(delta({"tool_calls": [one]})) for one in calls)
        + TOOL_STOP
        + line(USAGE_ALONE)
        + DONE
    )
    shown = events(raw, EXEC, MCP, PATCH)

    thought, words, first, second, third = items_of(shown)
    assert (thought["type"], thought["said"]) == ("reasoning", "hm")
    assert thought["encrypted_content"] == "kimi-proxy:reasoning_content:hm"
    assert (words["type"], words["said"]) == ("message", "I run.")
    assert (first["type"], first["call_id"], first["arguments"]) == ("function_call", "a", '{"pa}')
    assert (second["type"], second["said"], second["input"]) == ("custom_tool_call", "*** é", "*** é")
    assert (third["namespace"], third["name"]) == ("mcp__pruner", "read")
    assert shown[-1]["type"] == "response.completed"
    assert shown[-1]["response"]["usage"]["input_tokens_details"] == {"cached_tokens": 100}


def test_the_events_of_a_word_are_those_of_openai_in_their_order():
    assert [event["type"] for event in events(said("hi") + STOP + DONE)] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


def test_what_can_be_shown_is_shown_at_once():
    stream = translated(tools=[EXEC]).events()

    assert b"response.created" in stream.feed(line(delta({"role": "assistant", "content": ""})).encode())
    assert b"Hello" in stream.feed(said("Hello").encode())
    stream.feed(line(delta({"tool_calls": [call(0, "a", "exec", "")]})).encode())
    assert b'{\\"pa' in stream.feed(line(delta({"tool_calls": [call(0, None, None, '{"pa')]})).encode())


def test_an_answer_that_was_cut_off_says_so():
    shown = events(said("hi") + line(delta({}, "length")) + DONE)

    assert shown[-1]["type"] == "response.incomplete"
    assert shown[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


COMPLETE = [stream for stream in CHATS if stream.facts.finish]


@pytest.mark.parametrize("stream", COMPLETE, ids=lambda stream: stream.name)
def test_a_stream_cut_at_any_byte_gives_the_same_events(stream: Stream):
    raw, whole = stream.raw, shown_upon(stream.raw)

    assert all(shown_upon(raw[:cut], raw[cut:]) == whole for cut in places(len(raw)))
    items_of(events(raw))


@pytest.mark.parametrize("stream", COMPLETE, ids=lambda stream: stream.name)
def test_the_accounts_of_a_translated_stream_are_those_of_the_provider(stream: Stream):
    reader, translator = ReplyReader(Wire.RESPONSES, is_stream=True), translated().events()
    reader.feed(translator.feed(stream.raw) + translator.end())

    assert reader.facts.is_complete
    assert reader.facts.model == stream.facts.model
    assert reader.facts.usage == (None if stream.facts.usage == Usage() else stream.facts.usage)


def test_an_error_in_the_middle_is_the_last_event():
    raw = said("hi") + line({"error": {"message": "overloaded", "code": 529}}) + said("more") + STOP + DONE
    shown = events(raw)

    assert shown[-1]["type"] == "response.failed"
    assert shown[-1]["response"]["error"] == {"code": "529", "message": "overloaded"}
    assert not any("more" in str(event) for event in shown)
