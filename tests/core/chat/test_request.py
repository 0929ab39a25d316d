"""What is read in a request of each API, and what is left alone when something in it changes."""

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.core.chat.bodies import BODIES

from kimi_proxy.core.chat import Request, Role, Wire, edit, parse
from kimi_proxy.core.chat.read import JsonBody, splice
from kimi_proxy.core.errors import InvalidParams, ParseError
from kimi_proxy.core.json import JsonObject, JsonValue

SCHEMA: JsonObject = {"type": "object", "properties": {}}
CHAT: JsonObject = {
    "model": "m",
    "messages": [
        {"role": "developer", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}],
        },
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"p":1}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "é\n1"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}]},
        {"role": "narrator", "content": 5},
    ],
    "tools": [{"type": "function", "function": {"name": "read"}}, {"type": "custom", "name": "odd"}],
}
MESSAGES: JsonObject = {
    "model": "m",
    "stream": True,
    "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "so"},
                {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "é"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "one", "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "content": [{"type": "text", "text": "two"}, {"type": "image", "source": {}}],
                },
                {"type": "tool_result", "tool_use_id": "t3"},
                {"type": "document", "source": {}},
                {"type": "image", "source": {}},
            ],
        },
    ],
    "tools": [{"name": "Read", "input_schema": {}}],
}
RESPONSES: JsonObject = {
    "model": "m",
    "instructions": "be brief",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be kind"}]},
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": "x"}],
        },
        {"type": "reasoning", "summary": [], "encrypted_content": "zz"},
        {"type": "function_call", "call_id": "f1", "name": "shell", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "f1", "output": "one"},
        {"type": "custom_tool_call", "call_id": "f2", "name": "patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "f2", "output": [{"type": "input_text", "text": "two"}]},
        {"type": "local_shell_call", "call_id": "f3", "action": {"command": ["ls"]}},
        {"type": "item_reference", "id": "x"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ],
    "tools": [{"type": "function", "name": "shell"}, {"type": "web_search"}],
}


def with_message(request: Request, role: Role, text: str) -> Request:
    return edit.with_items(request, [request.format.new_message(role, text)])


def request(value: JsonValue, wire: Wire) -> Request:
    return parse(json.dumps(value).encode(), wire)


def parts_of(request: Request) -> list[tuple[str, list[tuple[str, str, str, str]]]]:
    return [(m.role, [(p.kind, p.text, p.call_id, p.name) for p in m.parts]) for m in request.messages]


def test_chat_completions_are_read():
    read = request(CHAT, Wire.CHAT)

    assert parts_of(read) == [
        ("system", [("text", "be brief", "", "")]),
        ("user", [("text", "look", "", ""), ("image", "", "", "")]),
        ("assistant", [("thinking", "hm", "", ""), ("tool_call", '{"p":1}', "c1", "read")]),
        ("tool", [("tool_result", "é\n1", "c1", "")]),
        ("tool", [("tool_result", "two", "c2", "")]),
        ("other", []),
    ]
    assert [part.text for part in read.system] == ["be brief"]
    assert (read.tool_names, read.is_stream, read.model) == (("read", "odd"), False, "m")


def test_messages_are_read():
    read = request(MESSAGES, Wire.MESSAGES)

    assert parts_of(read) == [
        ("user", [("text", "look", "", "")]),
        (
            "assistant",
            [("thinking", "hm", "", ""), ("text", "so", "", ""), ("tool_call", '{"path": "\\u00e9"}', "t1", "Read")],
        ),
        (
            "user",
            [
                ("tool_result", "one", "t1", ""),
                ("tool_result", "two", "t2", ""),
                ("image", "", "t2", ""),
                ("other", "", "t3", ""),
                ("other", "", "", ""),
                ("image", "", "", ""),
            ],
        ),
    ]
    assert [part.failed for part in read.messages[2].parts] == [True, False, False, False, False, False]
    assert [part.text for part in read.system] == ["be brief"]
    assert (read.tool_names, read.is_stream) == (("Read",), True)


def test_responses_are_read():
    read = request(RESPONSES, Wire.RESPONSES)

    assert parts_of(read) == [
        ("system", [("text", "be kind", "", "")]),
        ("user", [("text", "look", "", ""), ("image", "", "", "")]),
        ("assistant", [("thinking", '{"type": "reasoning", "summary": [], "encrypted_content": "zz"}', "", "")]),
        ("assistant", [("tool_call", "{}", "f1", "shell")]),
        ("tool", [("tool_result", "one", "f1", "")]),
        ("assistant", [("tool_call", "*** Begin", "f2", "patch")]),
        ("tool", [("tool_result", "two", "f2", "")]),
        ("assistant", [("tool_call", '{"command": ["ls"]}', "f3", "local_shell_call")]),
        ("other", [("other", "", "", "")]),
        ("assistant", [("text", "done", "", "")]),
    ]
    assert [part.text for part in read.system] == ["be brief", "be kind"]
    assert read.tool_names == ("shell", "")


GEMINI: JsonObject = {
    "model": "m",
    "system_instruction": {"parts": [{"text": "be brief"}]},
    "contents": [
        {"parts": [{"text": "look"}, {"inlineData": {"data": "x"}}]},
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True},
                {"functionCall": {"name": "read", "args": {"p": 1}}, "thoughtSignature": "s"},
                {"function_call": {"name": "read", "args": {"p": 2}, "id": "c2"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "read", "id": "c2", "response": {"result": {"out": ["two", "more"]}}}},
                {"functionResponse": {"name": "read", "response": {"error": "é\n1"}}},
                {"functionResponse": {"name": "other", "response": {"code": 1}}},
            ],
        },
    ],
    "tools": [{"functionDeclarations": [{"name": "read"}]}, {"googleSearch": {}}],
}


def test_contents_of_gemini_are_read():
    read = request(GEMINI, Wire.GEMINI)

    assert ([part.text for part in read.system], read.tool_names) == (["be brief"], ("read",))
    assert [message.role for message in read.messages] == ["user", "assistant", "user"]
    said = [[(p.kind, p.text, p.call_id, p.failed) for p in m.parts] for m in read.messages]
    first = read.messages[1].parts[1].call_id
    assert first.startswith("read:")
    assert said == [
        [("text", "look", "", False), ("image", "", "", False)],
        [
            ("thinking", "hm", "", False),
            ("tool_call", '{"p": 1}', first, False),
            ("tool_call", '{"p": 2}', "c2", False),
        ],
        [
            ("tool_result", "two", "c2", False),
            ("tool_result", "more", "c2", False),
            ("tool_result", "é\n1", first, True),
            ("other", "", "other", False),
        ],
    ]


def test_what_the_commands_of_a_shell_call_printed_can_be_replaced():
    """`shell_call_output` has two streams for each command."""
    output: JsonValue = [
        {"stdout": "one", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
        {"stdout": "two", "stderr": "oh", "outcome": {"type": "exit", "exit_code": 1}},
    ]
    item: JsonValue = {"type": "shell_call_output", "call_id": "s1", "output": output}
    asked = request({"model": "m", "input": [item]}, Wire.RESPONSES)
    parts = asked.messages[0].parts

    assert [(part.kind, part.text, part.failed) for part in parts] == [
        *(("tool_result", "one", False), ("tool_result", "", False)),
        *(("tool_result", "two", True), ("tool_result", "oh", True)),
    ]
    changed = json.loads(edit.with_texts(asked, {(0, 2): "2"}).body)["input"][0]["output"]
    assert [block["stdout"] for block in changed] == ["one", "2"]


def test_an_input_that_is_one_text_is_what_the_user_says():
    read = request({"model": "m", "input": "hi"}, Wire.RESPONSES)

    assert parts_of(read) == [("user", [("text", "hi", "", "")])]


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'{"model":"m"}{}', b'{"model":NaN}', b"[" * 9999])
def test_what_is_no_object_is_refused(body: bytes):
    with pytest.raises(ParseError):
        parse(body, Wire.CHAT)


@pytest.mark.parametrize("body", [b"{}", b'{"model":""}', b'{"model":5}', b'{"model":null}'])
def test_a_request_has_to_name_its_model(body: bytes):
    with pytest.raises(InvalidParams):
        parse(body, Wire.CHAT)


@pytest.mark.parametrize("wire", Wire)
def test_a_request_that_no_stage_changed_is_the_bytes_that_came(wire: Wire):
    for body in BODIES:
        read = parse(body, wire)
        read.messages, read.system, read.tool_names, read.is_stream  # noqa: B018 - reading leaves no trace
        assert read.body is body


def test_one_text_is_replaced_and_every_other_byte_stays():
    body = (
        b'{ "z":1e400, "messages":[ {"role":"tool" , "content":"old\\u0041","x":-0},'
        b'{"role":"user","content":"old\\ud800"}],"model":"m"}\n'
    )
    read = parse(body, Wire.CHAT)

    changed = edit.with_texts(read, {(0, 0): 'new "é"\n\ud800'})

    assert changed.body == body.replace(b'"old\\u0041"', b'"new \\"\\u00e9\\"\\n\\ud800"')
    assert changed.part(0, 0).text == 'new "é"\n\ud800'
    assert changed.part(1, 0).text == "old\ud800"
    assert edit.with_texts(read, {(0, 0): "oldA"}) is read


@pytest.mark.parametrize(("wire", "value"), [(Wire.CHAT, CHAT), (Wire.MESSAGES, MESSAGES), (Wire.RESPONSES, RESPONSES)])
def test_every_text_can_be_replaced_wherever_it_stands(wire: Wire, value: JsonObject):
    read = request(value, wire)
    places = [
        (i, j) for i, message in enumerate(read.messages) for j, part in enumerate(message.parts) if part.is_string
    ]

    changed = edit.with_texts(read, {place: f"new {place}" for place in places})

    assert [changed.part(*place).text for place in places] == [f"new {place}" for place in places]
    assert len(changed.messages) == len(read.messages)
    back = edit.with_texts(changed, {place: read.part(*place).text for place in places})
    assert json.loads(back.body) == value


def test_what_has_no_text_cannot_be_replaced():
    with pytest.raises(ValueError, match="image"):
        edit.with_texts(request(CHAT, Wire.CHAT), {(1, 1): "x"})


@pytest.mark.parametrize(("wire", "value"), [(Wire.CHAT, CHAT), (Wire.MESSAGES, MESSAGES), (Wire.RESPONSES, RESPONSES)])
def test_a_message_and_a_tool_are_added_at_the_end(wire: Wire, value: JsonObject):
    read = request(value, wire)

    changed = edit.with_tool(with_message(read, "user", "one more"), "recover_text", "Gives back.", SCHEMA)

    assert changed.messages[:-1] == read.messages
    assert parts_of(changed)[-1] == ("user", [("text", "one more", "", "")])
    assert changed.tool_names == (*read.tool_names, "recover_text")
    assert edit.with_model(changed, "other").model == "other"
    assert edit.with_model(changed, "m") is changed


def test_each_api_has_its_own_words_for_a_new_message_and_a_new_tool():
    def added(value: JsonObject, wire: Wire) -> JsonValue:
        changed = edit.with_tool(with_message(request(value, wire), "system", "hush"), "t", "d", SCHEMA)
        return json.loads(changed.body)

    function = {"name": "t", "description": "d", "parameters": SCHEMA}
    assert added({"model": "m"}, Wire.CHAT) == {
        "model": "m",
        "messages": [{"role": "system", "content": "hush"}],
        "tools": [{"type": "function", "function": function}],
    }
    assert added({"model": "m", "messages": [], "tools": []}, Wire.MESSAGES) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hush"}],
        "tools": [{"name": "t", "description": "d", "input_schema": SCHEMA}],
    }
    assert added({"model": "m", "input": "hi", "tools": None}, Wire.RESPONSES) == {
        "model": "m",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "hush"}]},
        ],
        "tools": [{"type": "function", **function, "strict": False}],
    }


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        (b'{"model":"m","stream":true}', b'{"model":"m","stream":true,"stream_options":{"include_usage":true}}'),
        (
            b'{"model":"m","stream":true,"stream_options": { } }',
            b'{"model":"m","stream":true,"stream_options": { "include_usage":true} }',
        ),
        (
            b'{"stream_options":{"x":1},"model":"m","stream":true}',
            b'{"stream_options":{"x":1,"include_usage":true},"model":"m","stream":true}',
        ),
        (b'{"model":"m","stream":true,"stream_options":{"include_usage":true}}', None),
        (b'{"model":"m","stream":true,"stream_options":{"include_usage":false}}', None),
        (b'{"model":"m","stream":true,"stream_options":null}', None),
        (b'{"model":"m","stream":false}', None),
        (b'{"model":"m"}', None),
        (b'{"model":"m","stream":"true"}', None),
    ],
)
def test_usage_is_asked_for_only_where_the_client_says_nothing(body: bytes, asked: bytes | None):
    read = parse(body, Wire.CHAT)

    assert edit.with_usage(read).body == (asked or body)
    assert asked is not None or edit.with_usage(read) is read


def test_only_chat_completions_have_to_be_asked_for_usage():
    for wire in (Wire.MESSAGES, Wire.RESPONSES):
        read = parse(b'{"model":"m","stream":true}', wire)
        assert edit.with_usage(read) is read


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_ROLES = st.sampled_from(["system", "user", "assistant", "tool", "x"])
_WORDS = st.text(st.characters(exclude_categories=[]), max_size=40)
_BLOCKS = st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "input_text", "x"]), "text": _WORDS}) | _JSON, max_size=3
)
_PARTS = st.lists(
    st.dictionaries(st.sampled_from(["text", "functionCall", "functionResponse", "inlineData"]), _WORDS | _JSON)
    | st.fixed_dictionaries({"functionResponse": st.fixed_dictionaries({"name": _WORDS, "response": _JSON})}),
    max_size=3,
)
_CONTENT = {"role": _ROLES, "content": _WORDS | _BLOCKS | _JSON, "parts": _PARTS | _JSON}
_MESSAGES = st.lists(st.fixed_dictionaries(_CONTENT) | _JSON, max_size=5)


@given(_MESSAGES, _JSON, _WORDS, st.booleans(), st.sampled_from([None, 1]))
def test_any_conversation_can_be_read_and_any_of_its_texts_replaced(
    messages: JsonValue, other: JsonValue, text: str, is_ascii: bool, indent: int | None
):
    value = {"a": other, "model": "m", "messages": messages, "input": messages, "contents": messages, "z": other}
    body = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode("utf-8", "replace")

    for wire in Wire:
        read = parse(body, wire)
        places = [(i, j) for i, m in enumerate(read.messages) for j, p in enumerate(m.parts) if p.is_string]
        changed = edit.with_texts(read, dict.fromkeys(places, text))
        assert [changed.part(*place).text for place in places] == [text] * len(places)
        kept = [read.body[m.start : m.end] for m in read.messages if not any(p.is_string for p in m.parts)]
        assert kept == [
            changed.body[m.start : m.end] for m in changed.messages if not any(p.is_string for p in m.parts)
        ]


@pytest.mark.parametrize(("wire", "size"), list(product(Wire, [0, 1, 3])))
def test_messages_are_added_whatever_was_there(wire: Wire, size: int):
    said = [{"role": "user", "content": str(i), "parts": [{"text": str(i)}]} for i in range(size)]
    read = request({"model": "m", wire.format.conversation: said}, wire)

    changed = with_message(read, "assistant", "done")

    assert [m.parts[0].text for m in changed.messages] == [*map(str, range(size)), "done"]


def test_a_text_that_is_not_utf_8_is_no_json():
    read = parse(b'{"model":"m","messages":[{"role":"user","content":"\xff\xfehello"}]}', Wire.CHAT)

    with pytest.raises(ParseError, match="UTF-8"):
        read.messages[0].parts[0].text  # noqa: B018 - reading it raises


@pytest.mark.parametrize("wire", Wire)
def test_a_body_with_too_many_values_is_read_by_its_small_members_alone(wire: Wire):
    crowd = b",".join([b"[]"] * 210_000)
    metadata = b'{"session_id":"s"}'
    body = b'{"messages":[%b],"input":[%b],"stream":true,"model":"m","metadata":%b}' % (crowd, crowd, metadata)

    request = parse(body, wire)

    assert (request.is_crowded, request.model, request.is_stream) == (True, "m", True)
    assert (request.messages, request.system, request.tool_names) == ((), (), ())
    assert {name: bytes(raw) for name, raw in request.members.items()} == {
        "model": b'"m"',
        "stream": b"true",
        "metadata": metadata,
    }


def test_a_name_that_is_not_utf_8_is_refused():
    with pytest.raises(ParseError, match="not a JSON object"):
        parse(b'{"model":"m","inpu\x98":[]}', Wire.CHAT)


def test_too_many_values_in_what_is_no_object_are_refused():
    with pytest.raises(ParseError, match="not a JSON object"):
        parse(b"[" + b"1," * 210_000 + b"1]", Wire.CHAT)


@pytest.mark.parametrize(
    ("body", "rest"),
    [
        (b'{"a":1,"x":{"x":2}}', b'{"a":1}'),
        (b'{ "x" : "\\"," , "a":1}', b'{ "a":1}'),
        (b'{"x":[1, 2]}', b"{}"),
        (b'{"a":1 ,\n "x" : null\n, "b":2 }', b'{"a":1 \n, "b":2 }'),
        (b'{"a":"x"}', None),
    ],
)
def test_a_member_is_taken_out_and_every_other_byte_stays(body: bytes, rest: bytes | None):
    edit = JsonBody(body).remove("x")

    assert (None if edit is None else splice(body, [edit])) == rest
