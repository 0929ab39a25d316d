"""Which lines an agent went on to use."""

import json

from kimi_proxy.lab.transcripts.transcript import AgentCall, AgentRequest, CallOutput, Transcript
from kimi_proxy.lab.used_lines import LineUse, argument_texts, uses

LINE = "def total(prices: list[float]) -> float:"
OTHER = "    return sum(prices, start=0.0)"


def session(*requests: AgentRequest, patch: str = "") -> Transcript:
    return Transcript("any", "s", list(requests), patch=patch)


def shown(*texts: str, **answer: object) -> AgentRequest:
    return AgentRequest(outputs=[CallOutput("c", text) for text in texts], **answer)


def edit(old: str) -> AgentCall:
    return AgentCall("e", "Edit", json.dumps({"old_string": old, "n": [1, {"x": None}]}))


def test_a_line_that_is_edited_later_is_used_though_its_reader_numbered_it():
    found = uses(session(shown(f"     1→{LINE}\n     2→{OTHER}"), shown(calls=[edit(f"{LINE}\n{OTHER}")])))

    assert found == [LineUse(0, 1, LINE, "Edit"), LineUse(0, 1, OTHER.strip(), "Edit")]


def test_a_line_that_is_quoted_in_words_or_thoughts_is_used():
    found = uses(session(shown(LINE, OTHER), AgentRequest(said=f"See `{LINE}`.", thinking=f"so {OTHER.strip()}!")))

    assert [(use.output, use.by) for use in found] == [(0, ""), (1, "")]


def test_a_line_that_another_output_showed_again_is_not_counted():
    assert uses(session(shown(LINE), shown(LINE), AgentRequest(said=LINE))) == []


def test_a_line_that_the_user_or_the_agent_had_written_before_is_not_counted():
    assert uses(session(AgentRequest(user=[LINE]), shown(LINE), AgentRequest(said=LINE))) == []
    assert uses(session(AgentRequest(said=LINE), shown(LINE), AgentRequest(said=LINE))) == []


def test_a_line_counts_once_and_short_ones_never():
    assert len(uses(session(shown(LINE), AgentRequest(said=LINE), AgentRequest(said=LINE)))) == 1
    assert uses(session(shown("return total"), AgentRequest(said="return total"))) == []


def test_lines_that_a_patch_removes_are_used_at_the_end():
    patch = f"--- a/x.py\n+++ b/x.py\n-{LINE}\n+{LINE}  # new\n"

    assert uses(session(shown(LINE), AgentRequest(said="done"), patch=patch)) == [LineUse(0, 1, LINE, "patch")]


def test_arguments_that_are_no_json_are_taken_as_they_are():
    assert list(argument_texts("*** Begin Patch")) == ["*** Begin Patch"]
    assert list(argument_texts('{"a": "x", "b": ["y", {"c": "z"}], "d": 3}')) == ["x", "y", "z"]
    assert list(argument_texts('{"cut": "off')) == ['{"cut": "off']
    assert list(argument_texts("")) == [""]
