"""What the descriptions of tools weigh, and how each is switched off."""

import json

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User, body, tool

from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.features.tool_weights import by_server, client_of, server_of, tool_weights


def with_tools(wire: Wire, *names: str) -> Request:
    items: list[Item] = [User("go"), Assistant("", (Call("c1", "Bash"),)), Result("c1", "done")]
    value = json.loads(body(wire, items, tools=()))
    value["tools"] = [tool(wire, name, {"text": {"type": "string", "description": "words " * 40}}) for name in names]
    return parse(json.dumps(value).encode(), wire)


@pytest.mark.parametrize("wire", list(Wire))
def test_tools_of_a_server_are_weighed_together_and_calls_are_counted(wire: Wire):
    request = with_tools(wire, "Bash", "Read", "mcp__issues__list", "mcp__issues__close")

    weights = tool_weights(request, len)
    server, *own = by_server(weights, client_of(one.name for one in weights))

    assert (server.name, server.is_server, server.tools, server.calls) == ("issues", True, 2, 0)
    assert server.tokens == sum(one.tokens for one in weights if one.server == "issues") > 400
    assert server.switch_off == "claude mcp remove issues"
    assert {one.name: one.calls for one in own} == {"Bash": 1, "Read": 0}
    assert own[0].switch_off.startswith('"permissions": {"deny": [')


@pytest.mark.parametrize(
    ("names", "client"),
    [
        (("Bash", "Read", "Edit"), "Claude Code"),
        (("exec_command", "apply_patch"), "Codex"),
        (("bash", "todowrite", "read"), "opencode"),
        (("Shell", "ReadFile"), "Kimi CLI"),
        (("anything",), ""),
    ],
)
def test_a_client_is_known_by_its_tools(names: tuple[str, ...], client: str):
    assert client_of(names) == client


def test_only_a_name_that_says_so_is_of_a_server():
    assert [server_of(name) for name in ("mcp__a__b", "mcp__a", "a__b", "Bash")] == ["a", "", "", ""]
