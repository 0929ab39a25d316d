"""Which tools a request leaves out, and what the model reads in their place."""

import json

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User, request

from kimi_proxy.addons.tools_on_demand import deferral
from kimi_proxy.addons.tools_on_demand.deferral import Choice
from kimi_proxy.core.chat import Wire

WIRES = pytest.mark.parametrize("wire", list(Wire))
OPENED: list[Item] = [
    User("go"),
    Assistant("", (Call("c1", "mcp__a__open", {"x": 1}), Call("c2", "bash"))),
    Result("c1", "opened"),
    Result("c2", "ok"),
    Assistant("", (Call("c3", "mcp__a__open", {}),)),
    Result("c3", "again"),
]


def count(text: str) -> int:
    return len(text) // 4


@pytest.mark.parametrize(
    ("name", "is_core"),
    [
        ("Bash", True),
        ("read_file", True),
        ("TodoWrite", True),
        ("mcp__filesystem__read_file", False),
        ("mcp__pruner__read", True),
        ("mcp__gateway__call_read_tool", True),
        ("deploy", False),
    ],
)
def test_tools_that_agents_always_need_stay(name: str, is_core: bool):
    assert deferral.is_core(name) == is_core


@pytest.mark.parametrize(
    ("clients", "agent", "names", "is_opted_in"),
    [
        ((), b"opencode/1.2", (), False),
        (("*",), b"", (), True),
        (("claude",), b"claude-cli/2.1.325 (external, cli)", (), True),
        (("codex",), b"codex_cli_rs/0.166.0", (), True),
        (("claude",), b"", ("Bash", "Read"), True),  # by its tools
        (("pi",), b"copilot/1.0", (), False),
    ],
)
def test_clients_are_known_by_their_name_or_their_tools(
    clients: tuple[str, ...], agent: bytes, names: tuple[str, ...], is_opted_in: bool
):
    assert deferral.is_opted_in(clients, agent.decode(), names) == is_opted_in


def test_nothing_is_left_out_where_it_would_not_pay():
    few = deferral.client_tools(request(Wire.CHAT, [User("go")], ("bash", "mcp__a__open")), count)

    assert deferral.choose(few, Choice(is_automatic=True), count) == frozenset()
    assert deferral.choose(few, Choice(is_automatic=False, chosen=("mcp__a__*",)), count) == frozenset()


@WIRES
def test_only_the_first_result_of_a_tool_has_its_definition_and_later_requests_repeat_it(wire: Wire):
    tools = ("bash", "mcp__a__open", "mcp__a__close")
    names = {"mcp__a__open", "mcp__a__close"}
    bodies = []
    for end in (4, 6):
        left, deferred = deferral.leave_out(request(wire, OPENED[:end], tools), names)
        assert deferred is not None
        bodies.append(left)
        defined = [part.text for m in left.messages for part in m.parts if "[use_tool, {" in part.text]
        assert len(defined) == 1 and defined[0].startswith("opened\n\n")

    early, late = bodies
    assert late.body.startswith(early.body[: early.messages[-1].end])
    calls = [part for message in late.messages for part in message.parts if part.kind == "tool_call"]
    assert [part.name for part in calls] == ["use_tool", "bash", "use_tool"]
    assert json.loads(calls[0].text) == {"name": "mcp__a__open", "arguments": {"x": 1}}
    assert "mcp__a__close" not in late.tool_names


@WIRES
def test_a_request_that_has_none_of_them_stays_the_same_object(wire: Wire):
    came = request(wire, [User("go")], ("bash",))

    assert deferral.leave_out(came, {"mcp__a__open"}) == (came, None)
    assert deferral.leave_out(came, {"mcp__a__open"})[0] is came


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        ('{"name":"mcp__a__open","arguments":{"x":1}}', ("mcp__a__open", '{"x":1}')),
        ('{"name":"mcp__a__open","arguments":"{\\"x\\": 1}"}', ("mcp__a__open", '{"x": 1}')),
        ('{"name":"mcp__a__open"}', ("mcp__a__open", "{}")),
        ('{"name":"mcp__a__open","arguments":[1]}', None),
        ('{"name":"mcp__a__open","x":1}', None),
        ('{"name":"bash","arguments":{}}', None),
        ("{", None),
        ("", None),
        ("[]", None),
    ],
)
def test_what_the_model_writes_becomes_a_call_or_is_refused(arguments: str, call: tuple[str, str] | None):
    _, deferred = deferral.leave_out(request(Wire.CHAT, OPENED[:1], ("bash", "mcp__a__open")), {"mcp__a__open"})
    assert deferred is not None
    found = deferred.unwrap(arguments)

    assert (found and (found.name, found.arguments)) == call
    assert isinstance(deferred.answer("use_tool", arguments), str)
    assert isinstance(deferred.answer("find_tools", arguments), str)


def test_many_names_are_counted_by_server_instead_of_listed():
    tools = [f"mcp__{server}__a_rather_long_name_of_a_tool_{at}" for server in "ab" for at in range(120)]
    left, _ = deferral.leave_out(request(Wire.CHAT, [User("go")], ("bash", *tools)), tools)
    search = json.loads(left.body)["tools"][-2]["function"]

    assert "mcp__a__: 120 tools\nmcp__b__: 120 tools" in search["description"]
