"""All seven ways to write memory, wherever they stand."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.features.chat.memory import KINDS, segments

SEVEN = {
    "<mcp-memory>le port est 8000</mcp-memory>": "mcp-memory",
    "@memory[project.style]": "@memory",
    "[MEMORY]Nous préférons les tabulations.[/MEMORY]": "[MEMORY]",
    "<mcp-result>3 rows</mcp-result>": "mcp-result",
    '<mcp-tool>search("café")</mcp-tool>': "mcp-tool",
    "@recall(le contexte d'hier)": "@recall",
    "@remember(the build takes f(x) minutes)": "@remember",
}


def found(text: str) -> list[tuple[str, str]]:
    return [(text[one.start : one.end], one.kind) for one in segments(text)]


@pytest.mark.parametrize("before", ["", "Voilà 🦊 : ", "```python\nx = 1\n", '{"out": "', "\n\n> "])
@pytest.mark.parametrize(("memory", "kind"), SEVEN.items())
def test_each_of_the_seven_is_found_whatever_stands_around_it(before: str, memory: str, kind: str):
    assert found(f"{before}{memory} et la suite (1) [2]") == [(memory, kind)]


def test_every_kind_has_a_name():
    assert set(SEVEN.values()) == set(KINDS)


def test_several_in_one_text_are_found_in_order():
    assert found(" and ".join(SEVEN)) == list(SEVEN.items())


@pytest.mark.parametrize(
    "text",
    [
        "<mcp-memory>a <mcp-memory>b</mcp-memory> c</mcp-memory>",
        "<mcp-memory>a @recall(b) [MEMORY]c[/MEMORY]</mcp-memory>",
        "@remember(a @memory[b[0]] (c) d)",
        "[MEMORY]a\n\n[MEMORY]b[/MEMORY]\n[/MEMORY]",
        '<mcp-tool name="a"><mcp-result>1</mcp-result></mcp-tool>',
    ],
)
def test_what_lies_in_another_is_counted_once(text: str):
    assert [piece for piece, _ in found(f"x {text} y")] == [text]


def test_what_overlaps_is_one_stretch_that_covers_both():
    text = "<mcp-memory>a <mcp-result>b</mcp-memory> c</mcp-result>"

    assert found(f"x {text} y") == [(text, "mcp-memory")]


def test_neighbours_stay_apart():
    assert found("@memory[a]@memory[b]") == [("@memory[a]", "@memory"), ("@memory[b]", "@memory")]


@pytest.mark.parametrize(
    "text",
    [
        "<mcp-memory>never closed",
        "closed before</mcp-memory><mcp-memory>",
        "@recall(never closed",
        "@memory[ (closed by another)",
        "[MEMORY] in a file of settings",
        "<mcp-memoryless>a</mcp-memoryless>",
        "somebody@recall(a)",
        "@recaller(a) @memory(a) @recall[a]",
        "",
    ],
)
def test_what_is_not_closed_or_not_meant_is_no_memory(text: str):
    assert found(text) == []


def test_a_closing_belongs_to_the_nearest_opening():
    assert found("<mcp-memory>a <mcp-memory>b</mcp-memory>") == [("<mcp-memory>b</mcp-memory>", "mcp-memory")]


def test_tags_may_have_attributes_stand_alone_and_be_written_large():
    text = '<mcp-tool name="a" /> <MCP-Memory\n id="7">x</MCP-Memory > [memory]y[/Memory]'

    assert [kind for _, kind in found(text)] == ["mcp-tool", "mcp-memory", "[MEMORY]"]


def test_a_segment_may_be_of_any_length():
    block = "<mcp-memory>" + "été\n" * 500_000 + "</mcp-memory>"

    assert found(f"a{block}b") == [(block, "mcp-memory")]


@pytest.mark.parametrize(
    "piece",
    [
        "<mcp-memory>",
        "<mcp-memory ",
        "</mcp-memory ",
        "@recall(",
        "@memory[",
        "[MEMORY]",
        "<mcp-memory></mcp-result>",
        "@remember(()",
        "@" * 12,
    ],
)
def test_a_megabyte_of_openings_takes_no_longer_than_it_is_long(piece: str):
    text = "@recall(" + piece * (1_000_000 // len(piece))
    began = time.process_time()

    segments(text)

    assert time.process_time() - began < 5.0


PIECES = (
    *SEVEN,
    "<mcp-memory>",
    "</mcp-memory>",
    "[MEMORY]",
    "[/MEMORY]",
    "@recall(",
    ")",
    "@memory[",
    "]",
    "mot ",
    "é\n",
)


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_segments_are_apart_in_order_and_inside_of_the_text(text: str):
    spans = [(one.start, one.end) for one in segments(text)]

    flat = [place for span in spans for place in span]
    assert flat == sorted(flat)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(text[start] in "<[@" and text[end - 1] in ">])" for start, end in spans)
