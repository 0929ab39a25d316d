"""Arguments that are repeated in headers."""

import pytest

from kimi_proxy.core.json import JsonValue
from kimi_proxy.proxy.mcp.http import HeaderArguments, header_arguments


def marked(name: JsonValue, kind: str = "string") -> JsonValue:
    return {"type": kind, "x-mcp-header": name}


def test_marks_are_found_at_every_depth_of_properties():
    schema: JsonValue = {"properties": {"a": marked("A"), "b": {"properties": {"c": marked("C", "integer")}}, "d": {}}}

    assert header_arguments(schema) == {"mcp-param-A": ("a",), "mcp-param-C": ("b", "c")}


@pytest.mark.parametrize("schema", [None, 3, {}, {"properties": 3}, {"properties": {"a": True}}])
def test_a_schema_without_marks_repeats_nothing(schema: JsonValue):
    assert header_arguments(schema) == {}


def test_a_mark_in_an_example_is_no_mark():
    assert (
        header_arguments({"properties": {"a": {"type": "object", "default": marked("A"), "examples": [marked("B")]}}})
        == {}
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": marked("")}},
        {"properties": {"a": marked("two words")}},
        {"properties": {"a": marked("x:y")}},
        {"properties": {"a": marked("é")}},
        {"properties": {"a": marked("x\r\ny")}},
        {"properties": {"a": marked(3)}},
        {"properties": {"a": marked("A", "number")}},
        {"properties": {"a": marked("A"), "b": marked("a")}},
        {"properties": {"a": {"type": "array", "items": marked("A")}}},
        {"anyOf": [{"properties": {"a": marked("A")}}]},
    ],
)
def test_a_mark_that_no_header_can_follow_is_refused(schema: JsonValue):
    assert header_arguments(schema) is None


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ({"a": {"b": "x"}}, "x"),
        ({"a": {"b": 42}}, "42"),
        ({"a": {"b": True}}, "true"),
        ({"a": {"b": False}}, "false"),
        ({"a": {"b": None}}, None),
        ({"a": {"b": 1.5}}, None),
        ({"a": "x"}, None),
        (None, None),
    ],
)
def test_a_value_is_written_as_text_or_left_out(arguments: JsonValue, value: str | None):
    known = HeaderArguments()
    schema: JsonValue = {"properties": {"a": {"properties": {"b": marked("B")}}}}
    known.learn({"result": {"tools": [{"name": "t", "inputSchema": schema}]}})

    assert known.headers({"params": {"name": "t", "arguments": arguments}}).get("mcp-param-B") == value


def test_an_answer_that_is_no_list_teaches_nothing():
    known = HeaderArguments()
    for answer in ({}, {"result": 3}, {"result": {"tools": 3}}, {"error": {}}):
        assert known.learn(answer) is answer  # type: ignore[arg-type]
    assert known.headers({"params": {"name": "x"}}) == {}
