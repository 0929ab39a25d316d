"""The tool that reads what was left out joins where it can be used."""

import json

import pytest
from tests.support.conversations import User, body, request, tool

from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features import recovery
from kimi_proxy.features.chat.context import MESSAGE_TOKENS, tokens_of
from kimi_proxy.features.sanitizer import stage
from kimi_proxy.features.sanitizer.recalls import ClientRecalls

WIRES = pytest.mark.parametrize("wire", list(Wire))


def with_tool(wire: Wire, name: str, *properties: str) -> Request:
    value = json.loads(body(wire, [User("go")]))
    value["tools"].append(tool(wire, name, {p: {"type": "string"} for p in properties}))
    return parse(json.dumps(value).encode(), wire)


@WIRES
def test_it_joins_at_the_end_of_the_clients_tools(wire: Wire):
    before = request(wire, [User("go")])
    after = stage.with_recall_tool(before)

    assert stage.may_offer_tool(before)
    assert after.tool_names == (*before.tool_names, recovery.NAME)
    declared, were = ([*wire.format.tools(read.json)] for read in (after, before))
    assert [bytes(raw) for _, raw in declared[:-1]] == [bytes(raw) for _, raw in were]
    *_, last = wire.format.tool_lists(before.json)
    assert after.body.startswith(before.body[: before.json.span(last)[1] - 1]), "nothing before it has changed"


def test_a_request_pays_fewer_than_sixty_tokens_for_it():
    assert 0 < stage.tool_tokens() < 60


@WIRES
def test_a_client_without_tools_gets_none(wire: Wire):
    assert not stage.may_offer_tool(request(wire, [User("go")], tools=()))


def test_where_several_answers_are_asked_for_it_does_not_join():
    assert not stage.may_offer_tool(request(Wire.CHAT, [User("go")], n=2))
    assert stage.may_offer_tool(request(Wire.CHAT, [User("go")], n=1))


def test_where_the_provider_notes_all_that_is_asked_it_does_not_join():
    """To ask again would be noted as a second question."""
    assert not stage.may_offer_tool(request(Wire.RESPONSES, [User("go")], conversation="conv_1"))
    assert stage.may_offer_tool(request(Wire.RESPONSES, [User("go")], conversation=None))


FORCED: list[tuple[Wire, dict[str, JsonValue]]] = [
    (Wire.CHAT, {"tool_choice": "required"}),
    (Wire.CHAT, {"tool_choice": "any"}),
    (Wire.CHAT, {"tool_choice": {"type": "function", "function": {"name": "bash"}}}),
    (Wire.CHAT, {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}}),
    (Wire.MESSAGES, {"tool_choice": {"type": "any"}}),
    (Wire.MESSAGES, {"tool_choice": {"type": "tool", "name": "bash"}}),
    (Wire.RESPONSES, {"tool_choice": "required"}),
    (Wire.RESPONSES, {"tool_choice": {"type": "function", "name": "bash"}}),
    (Wire.RESPONSES, {"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": []}}),
    (Wire.GEMINI, {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}),
    (Wire.GEMINI, {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["bash"]}}}),
]
FREE: list[tuple[Wire, dict[str, JsonValue]]] = [
    (Wire.CHAT, {"tool_choice": "auto"}),
    (Wire.CHAT, {"tool_choice": None}),
    (Wire.CHAT, {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}}),
    (Wire.MESSAGES, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    (Wire.MESSAGES, {"tool_choice": {"type": "none"}}),
    (Wire.RESPONSES, {"tool_choice": "none"}),
    (Wire.GEMINI, {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}}),
]


@pytest.mark.parametrize(("wire", "choice"), FORCED)
def test_a_request_that_forces_a_tool_gets_none(wire: Wire, choice: dict[str, JsonValue]):
    """Some agents have a model judge their calls by such a request, and read nothing but the call."""
    assert not stage.may_offer_tool(request(wire, [User("go")], **choice))


@pytest.mark.parametrize(("wire", "choice"), FREE)
def test_any_other_choice_of_tools_leaves_it_there(wire: Wire, choice: dict[str, JsonValue]):
    assert stage.may_offer_tool(request(wire, [User("go")], **choice))


@WIRES
@pytest.mark.parametrize(
    ("name", "properties"),
    [("mcp__pruner__recover_text", ("prune_id", "ranges")), ("recover_text", ("id", "start_char"))],
)
def test_a_tool_by_mcp_reads_back_once_a_call_of_it_was_answered(wire: Wire, name: str, properties: tuple[str, ...]):
    offered = with_tool(wire, name, *properties)

    assert not stage.reads_back(offered, ClientRecalls())
    assert stage.reads_back(offered, ClientRecalls(answered=True))
    assert not stage.reads_back(request(wire, [User("go")]), ClientRecalls(answered=True)), "it is gone"


@WIRES
def test_where_the_name_is_taken_ours_takes_another(wire: Wire):
    taken = with_tool(wire, "recover_text", "bucket")

    assert stage.may_offer_tool(taken)
    assert stage.with_recall_tool(taken).tool_names[-1] == recovery.SPARE_NAME


def in_a_namespace(**more: JsonValue) -> Request:
    """As Codex offers the tools of an MCP server."""
    value = json.loads(body(Wire.RESPONSES, [User("go")]))
    ours: JsonValue = {
        "type": "function",
        "name": "recover_text",
        "parameters": {"properties": {"prune_id": {}}},
        **more,
    }
    value["tools"].append({"type": "namespace", "name": "mcp__pruner", "tools": [ours]})
    return parse(json.dumps(value).encode(), Wire.RESPONSES)


def test_a_client_that_offers_it_in_a_namespace_calls_it_without_asking():
    assert stage.calls_without_asking(in_a_namespace()) and stage.reads_back(in_a_namespace(), ClientRecalls())
    assert in_a_namespace().tool_names[-1] == "mcp__pruner__recover_text"


def test_a_tool_that_the_model_has_to_look_for_first_is_not_offered_yet():
    assert not stage.calls_without_asking(in_a_namespace(defer_loading=True))
    assert stage.reads_back(in_a_namespace(defer_loading=True), ClientRecalls(answered=True)), "it was found"


def in_an_item(*namespaces: str) -> Request:
    """As Codex offers its tools to the models that it was made for: in an item, and in namespaces."""
    value = json.loads(body(Wire.RESPONSES, [User("go")]))
    exec_tool: JsonValue = {
        "type": "custom",
        "name": "exec",
        "description": "Run JavaScript",
        "format": {"type": "text"},
    }
    tools: list[JsonValue] = [{"type": "namespace", "name": name, "tools": [exec_tool]} for name in namespaces]
    item: JsonValue = {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": tools or [exec_tool]}
    del value["tools"]
    value["input"].insert(0, item)
    return parse(json.dumps(value).encode(), Wire.RESPONSES)


@pytest.mark.parametrize(
    ("namespaces", "names"),
    [
        ((), ["exec", "recover_text"]),
        (("functions", "clock"), ["exec", "recover_text", "clock__exec"]),
        (("clock",), ["clock__exec", "recover_text"]),
    ],
)
def test_it_joins_the_tools_of_an_item_where_the_client_s_are_there(namespaces: tuple[str, ...], names: list[str]):
    asked = in_an_item(*namespaces)

    offered = stage.with_recall_tool(asked)

    assert stage.may_offer_tool(asked) and list(offered.tool_names) == names
    assert "tools" not in offered.members and offered.messages[1:] and asked.messages[0].parts == ()
    ours = offered.body.index(b',{"type":"function","name":"recover_text"')
    length = len(offered.body) - len(asked.body)
    assert offered.body[:ours] + offered.body[ours + length :] == asked.body


def test_the_tools_of_an_item_weigh_as_those_of_a_member():
    asked = in_an_item()
    value = json.loads(asked.body)
    tools = value["input"].pop(0)["tools"]
    in_member = parse(json.dumps(value | {"tools": tools}).encode(), Wire.RESPONSES)

    assert tokens_of(asked, len) == tokens_of(in_member, len) + MESSAGE_TOKENS
