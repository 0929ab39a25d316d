"""What the memory server answers is memory, whatever a client calls its tools."""

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User, request

from kimi_proxy.core.chat import Wire
from kimi_proxy.features.chat.context import composition
from kimi_proxy.features.chat.memory import TextWeight, is_memory_tool

GRAPH = '{"entities":[{"name":"importer","observations":["reads orders"]}]}'


def memory_of(wire: Wire, *items: Item) -> tuple[int, list[str]]:
    weighed = composition(request(wire, items), lambda text: TextWeight(len(text)))
    return weighed.memory, [found.kind for found in weighed.found]


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize("tool", ["read_graph", "mcp__memory__search_nodes", "memory__open_nodes"])
def test_the_result_of_a_read_from_the_memory_server_weighs_as_memory(wire: Wire, tool: str):
    asked = (User("What do you know?"), Assistant("", (Call("c1", tool),)), Result("c1", GRAPH))

    assert memory_of(wire, *asked) == (len(GRAPH), ["mcp-result"])


@pytest.mark.parametrize("wire", list(Wire))
def test_an_error_and_the_result_of_another_tool_are_no_memory(wire: Wire):
    failed = (Assistant("", (Call("c1", "read_graph"),)), Result("c1", "no such server", failed=True))
    # A client that numbers its calls anew in every turn.
    other = (Assistant("", (Call("c1", "bash"),)), Result("c1", GRAPH))

    expected = (0, []) if wire in (Wire.MESSAGES, Wire.GEMINI) else (len("no such server"), ["mcp-result"])
    assert memory_of(wire, User("Go."), *failed, *other) == expected


def test_tools_with_similar_names_are_not_taken_for_it():
    assert not any(map(is_memory_tool, ("research_nodes", "read_graphs", "bash", "mcp__memoryless__x", "nodes")))
    assert is_memory_tool("mcp__memory__create_entities")
