"""Which members of a request may name an object that a provider keeps, and which are known to be harmless."""

import json

import pytest

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.team.provider_objects import suspect_field, suspect_id

TOOL_USE: JsonObject = {"type": "tool_use", "id": "abc", "name": "read", "input": {"file_id": "mine", "container": "x"}}
SCHEMA: JsonObject = {"type": "object", "properties": {"x": {"default": {"file_id": "mine"}}}}


def in_input(*items: JsonValue) -> JsonObject:
    return {"input": list(items)}


def in_content(*blocks: JsonValue, role: str = "user") -> JsonObject:
    return {"messages": [{"role": role, "content": list(blocks)}]}


def in_parts(*parts: JsonValue) -> JsonObject:
    return {"contents": [{"role": "user", "parts": list(parts)}]}


REFUSED: list[tuple[Wire, JsonObject, str]] = [
    (Wire.RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id"),
    (Wire.RESPONSES, {"conversation": "conv_1"}, "conversation"),
    (Wire.RESPONSES, {"conversation": {"id": "conv_1"}}, "conversation.id"),
    (Wire.RESPONSES, {"conversation": {"type": "tool_use", "id": "conv_1"}}, "conversation.id"),
    (Wire.RESPONSES, in_input({"type": "item_reference", "id": "msg_1"}), "input.id"),
    (Wire.RESPONSES, in_input({"type": "item_reference", "id": "fc_1"}), "input.id"),
    (Wire.RESPONSES, in_input({"id": "msg_1"}), "input.id"),
    (Wire.RESPONSES, in_input({"type": "message", "id": "msg_1"}), "input.id"),
    (Wire.RESPONSES, in_input({"type": "reasoning", "id": "rs_1", "summary": []}), "input.id"),
    (Wire.RESPONSES, in_input({"type": "image_generation_call", "id": "ig_1", "result": "aGk="}), "input.id"),
    (Wire.RESPONSES, in_input({"type": "file_search_call", "id": "fs_1", "queries": []}), "input.id"),
    (Wire.RESPONSES, in_input({"type": "code_interpreter_call", "container_id": "cntr_1"}), "input.container_id"),
    (Wire.RESPONSES, in_input({"type": "an_item_of_tomorrow", "id": "x_1", "content": "y"}), "input.id"),
    (
        Wire.RESPONSES,
        in_input({"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}),
        "input.content.file_id",
    ),
    (Wire.RESPONSES, in_input({"type": "tool_use", "file_id": "file_1"}), "input.file_id"),
    (Wire.RESPONSES, {"type": "tool_use", **in_input({"type": "item_reference", "id": "msg_1"})}, "input.id"),
    (Wire.RESPONSES, in_input({"type": "tool_use", **in_input({"id": "msg_1"})}), "input.input.id"),
    (Wire.RESPONSES, {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]}, "tools.vector_store_ids"),
    (
        Wire.RESPONSES,
        {"tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file_1"]}}]},
        "tools.container.file_ids",
    ),
    (Wire.RESPONSES, {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]}, "tools.container"),
    (Wire.RESPONSES, {"prompt": {"id": "p", "variables": {"x": {"file_id": "file_1"}}}}, "prompt.variables.x.file_id"),
    (Wire.CHAT, in_content({"type": "file", "file": {"file_id": "file_1"}}), "messages.content.file.file_id"),
    (Wire.CHAT, {"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]}, "messages.audio.id"),
    (
        Wire.CHAT,
        in_content({"type": "image_url", "image_url": {"url": "ms://file_1"}}),
        "messages.content.image_url.url",
    ),
    (Wire.RESPONSES, in_input({"role": "user", "content": [{"image_url": "ms://file_1"}]}), "input.content.image_url"),
    (Wire.CHAT, {"extra_body": {"google": {"cached_content": "cachedContents/1"}}}, "extra_body.google.cached_content"),
    (Wire.CHAT, {"a_field_of_tomorrow": {"vaultId": "v_1"}}, "a_field_of_tomorrow.vaultId"),
    (Wire.CHAT, {"a_field_of_tomorrow": {"id": "v_1"}}, "a_field_of_tomorrow.id"),
    (Wire.MESSAGES, {"container": "container_1"}, "container"),
    (Wire.MESSAGES, {"container": {"id": "container_1", "skills": []}}, "container.id"),
    (
        Wire.MESSAGES,
        in_content({"type": "document", "source": {"type": "file", "file_id": "file_1"}}),
        "messages.content.source.file_id",
    ),
    (Wire.MESSAGES, in_content({"type": "tool_use", "file_id": "file_1"}), "messages.content.file_id"),
    (Wire.MESSAGES, {"type": "tool_use", "input": {"file_id": "file_1"}}, "input.file_id"),
    (Wire.MESSAGES, {"system": [{"type": "tool_use", "input": {"file_id": "file_1"}}]}, "system.input.file_id"),
    (Wire.GEMINI, {"cachedContent": "cachedContents/1"}, "cachedContent"),
    (Wire.GEMINI, in_parts({"fileData": {"fileUri": "https://x/v1beta/files/1"}}), "contents.parts.fileData.fileUri"),
    (Wire.GEMINI, in_parts({"file_data": {"file_uri": "https://x/files/1"}}), "contents.parts.file_data.file_uri"),
    (
        Wire.GEMINI,
        {"tools": [{"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/1"]}}]},
        "tools.fileSearch.fileSearchStoreNames",
    ),
    (
        Wire.GEMINI,
        in_parts({"functionResponse": {"id": "1", "parts": [{"fileData": {"fileUri": "x"}}]}}),
        "contents.parts.functionResponse.parts.fileData.fileUri",
    ),
]


@pytest.mark.parametrize(("wire", "body", "named"), REFUSED, ids=lambda value: json.dumps(value, default=str)[:80])
def test_what_may_name_a_kept_object_is_found(wire: Wire, body: JsonObject, named: str):
    assert suspect_id(wire, json.dumps(body).encode()) == named
    assert suspect_id(wire, json.dumps(body, indent=1).encode()) == named


HARMLESS: list[tuple[Wire, JsonObject]] = [
    (Wire.RESPONSES, in_input({"type": "message", "role": "assistant", "id": "msg_1", "content": [{"text": "x"}]})),
    (Wire.RESPONSES, in_input({"role": "user", "content": "x", "id": "msg_1"})),
    (Wire.RESPONSES, in_input({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAA"})),
    (Wire.RESPONSES, in_input({"type": "compaction", "id": "cmp_1", "encrypted_content": "gAA"})),
    (Wire.RESPONSES, in_input({"type": "function_call", "id": "fc_1", "call_id": "1", "arguments": "{}"})),
    (Wire.RESPONSES, in_input({"type": "function_call_output", "id": "fco_1", "call_id": "1", "output": "x"})),
    (Wire.RESPONSES, in_input({"type": "web_search_call", "id": "ws_1", "action": {"query": "x"}})),
    (Wire.RESPONSES, in_input({"type": "additional_tools", "id": "at_1", "tools": [{"parameters": SCHEMA}]})),
    (
        Wire.RESPONSES,
        in_input({"role": "user", "content": "x", "internal_chat_message_metadata_passthrough": {"turn_id": "t"}}),
    ),
    (Wire.RESPONSES, {"client_metadata": {"x-codex-installation-id": "i"}, "metadata": {"file_id": "mine"}}),
    (Wire.RESPONSES, {"prompt": {"id": "pmpt_1"}, "tools": [{"type": "mcp", "headers": {"X-Account-Id": "a"}}]}),
    (Wire.CHAT, {"messages": [{"role": "assistant", "tool_calls": [{"id": "functions.read:0", "type": "function"}]}]}),
    (Wire.CHAT, {"messages": [{"role": "tool", "tool_call_id": "1", "content": "x"}], "stop_token_ids": [1, 2]}),
    (Wire.CHAT, {"messages": [{"role": "assistant", "id": "m", "reasoning_details": [{"id": "rs_1", "data": "x"}]}]}),
    (Wire.CHAT, in_content({"image_url": {"url": "https://example.org/a.png"}}, {"image_url": {"url": "data:,x"}})),
    (Wire.CHAT, {"plugins": [{"id": "web"}], "external_session_id": "s", "user_id": "u", "session_id": "s"}),
    (Wire.CHAT, {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]}),
    (Wire.CHAT, {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}),
    (Wire.MESSAGES, in_content(TOOL_USE, role="assistant")),
    (Wire.MESSAGES, in_content({"type": "tool_result", "tool_use_id": "abc", "content": '{"file_id": "mine"}'})),
    (Wire.MESSAGES, {"tools": [{"name": "f", "input_schema": SCHEMA}], "metadata": {"user_id": "u"}}),
    (Wire.MESSAGES, {"diagnostics": {"previous_message_id": "msg_1"}}),
    (Wire.MESSAGES, {"container": {"skills": [{"type": "anthropic", "skill_id": "pptx"}]}}),
    (Wire.GEMINI, in_parts({"functionCall": {"id": "1", "name": "f", "args": {"file_id": "mine"}}})),
    (Wire.GEMINI, in_parts({"functionResponse": {"id": "1", "name": "f", "response": {"fileUri": "mine"}}})),
    (Wire.GEMINI, {"tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}]}),
    (Wire.GEMINI, in_parts({"inlineData": {"mimeType": "image/png", "data": "aGk="}})),
]


@pytest.mark.parametrize(("wire", "body"), HARMLESS, ids=lambda value: json.dumps(value, default=str)[:80])
def test_what_belongs_to_the_request_itself_is_harmless(wire: Wire, body: JsonObject):
    assert suspect_id(wire, json.dumps(body).encode()) == ""


@pytest.mark.parametrize(
    "hidden",
    [
        '{"previous_\\u0072esponse_id": "resp_1"}',
        '{"previous_response_\\u0069d": "resp_1"}',
        '{"PREVIOUS-RESPONSE-ID": "resp_1"}',
        '{"previousResponseId": "resp_1"}',
        '{"previous_response_id"\n:\t["resp_1"]}',
    ],
)
def test_no_spelling_hides_a_name(hidden: str):
    assert suspect_id(Wire.RESPONSES, hidden.encode())


@pytest.mark.parametrize(
    "raw",
    [
        b'{"file_id": "a", "file_id": "b"}',
        b'{"input": [{"type": "message", "type": "item_reference", "id": "msg_1", "content": "x"}]}',
        b'{"file_id": "a"',
        b'{"a": ' * 5000 + b'{"id": "x"}' + b"}" * 5000,
        '{"file_id": "a"}'.encode("utf-16"),
    ],
)
def test_a_body_that_can_be_read_in_two_ways_or_in_none_is_refused(raw: bytes):
    with pytest.raises(ParseError):
        suspect_id(Wire.RESPONSES, raw)


def test_a_form_names_its_objects_in_its_fields():
    head = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\nx\r\n'

    assert suspect_field(head % b"model" + head % b"images[0][file_id]") == "images[0][file_id]"
    assert suspect_field(head % b"model" + head % b"image" + b'<input name="file_id">') == ""
