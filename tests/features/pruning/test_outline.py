import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core.prune import SOURCE_TYPES, SourceType
from kimi_proxy.features.pruning.engine import outline
from kimi_proxy.features.pruning.structure.blocks import Outline, fading, nearness, scale_to_one, spread

FRAGMENTS = [
    "def f(", "def f(x):", "class A:", "class A {", "```", "~~~", "import x", "from a import (", "{", "}", ")", "  ",
    "\t",
    "=====", "-----", "~~~~", "| a | b |", "|---|---|", "+---+", "- item", "1. x", "# title",
    "Traceback (most recent call last):",
    '  File "x", line 1', "ValueError: x", "During handling of the above exception, another exception occurred:",
    "\tat a.b.c(D.java:1)", "Caused by: x", "panic: x", "goroutine 1 [running]:", "error[E0001]: x", " --> a", "<?php",
    "template <", "public class X {", "end", "#!/bin/bash", "\ud800", "\0", "\x0c", "\u2028", "\r", "⟦NO_PRUNE_BEGIN⟧",
    "⟦NO_PRUNE_END⟧", "", "'''", '"""', "/*", "*/", ".. code::", "x::", "___ x ___", "=== FAILURES ===", "--- FAIL: x",
    "func (a) b() {", "using A;", "fn f<", "package a", "const f = () => {", "● x", "npm ERR! x", "Failures:",
    "  1 failing", "<h1>", "</h1>", "= A", "[source]", "----", "#[a]", "@b", "error:", "exit code 1", "a.py:1: x",
]  # fmt: skip
LINES = st.lists(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=5), max_size=3).map("".join), max_size=60).map(
    lambda lines: "\n".join(lines).split("\n")
)
TYPES = st.sampled_from(SOURCE_TYPES)


def check_sound(found: Outline, count: int) -> None:
    assert len(found.protected) == count
    opened: list[int] = []
    previous = (0, 0)
    for block in found.blocks:
        assert 0 <= block.start <= block.body <= block.end <= count
        assert block.start < block.end
        assert (block.start, -block.end) > (previous[0], -previous[1]) or block is found.blocks[0]
        while opened and opened[-1] <= block.start:
            opened.pop()
        assert not opened or block.end <= opened[-1]
        assert block.depth == len(opened)
        opened.append(block.end)
        previous = (block.start, block.end)


@given(LINES, TYPES)
def test_blocks_nest_in_document_order_and_every_line_has_a_mark(lines: list[str], source_type: SourceType) -> None:
    check_sound(outline(lines, source_type), len(lines))


@given(st.text(st.characters(), max_size=200).map(lambda text: text.split("\n")), TYPES)
def test_any_text_has_an_outline(lines: list[str], source_type: SourceType) -> None:
    check_sound(outline(lines, source_type), len(lines))


@given(LINES, TYPES)
def test_the_same_text_has_the_same_outline(lines: list[str], source_type: SourceType) -> None:
    assert outline(lines, source_type) == outline(list(lines), source_type)


TRACEBACK = "Traceback (most recent call last):"
NASTY = {
    "nothing": [],
    "one empty line": [""],
    "one long line": ["x" * 200_000],
    "one line of brackets": ["(" * 200_000],
    "one line of errors": ["error: " * 30_000],
    "blank lines": [""] * 20_000,
    "lines of spaces": [" " * 60] * 20_000,
    "definitions": ["def f(x):"] * 20_000,
    "braces": ["{"] * 20_000,
    "fences": ["```"] * 20_000,
    "underlines": ["=" * 10] * 20_000,
    "table rules": ["=== ===", "a"] * 10_000,
    "directives": [".. x::", ""] * 10_000,
    "errors": ["error: x"] * 20_000,
    "tracebacks": [TRACEBACK] * 20_000,
    "chained tracebacks": [TRACEBACK, "  x", "E: x", "", "During handling of the above exception, x", ""] * 3_000,
    "frames": ["  at a.b(C.java:1)"] * 20_000,
    "failures": ["--- FAIL: x"] * 20_000,
    "reports": ["=== FAILURES ==="] * 20_000,
    "deep items": ["  " * (i % 300) + "- a" for i in range(20_000)],
    "deep definitions": ["  " * i + "def f():" for i in range(500)],
    "nested callbacks": ["f(function () {"] * 5_000,
}  # fmt: skip


@pytest.mark.parametrize("source_type", SOURCE_TYPES)
@pytest.mark.parametrize("name", NASTY)
@pytest.mark.timeout(300)
def test_nasty_texts_have_an_outline_soon(name: str, source_type: SourceType) -> None:
    lines = NASTY[name]
    check_sound(outline(lines, source_type), len(lines))


class Enough(Exception):
    pass


@pytest.mark.parametrize("source_type", SOURCE_TYPES)
def test_a_check_that_raises_ends_the_work(source_type: SourceType) -> None:
    def check() -> None:
        raise Enough

    with pytest.raises(Enough):
        outline(["def f(): pass", "error: x", "# t"] * 1_000, source_type, check)


@pytest.mark.parametrize("source_type", SOURCE_TYPES)
def test_a_long_text_is_checked_often(source_type: SourceType) -> None:
    calls: list[int] = []
    outline([f"value_{i} = {i}" for i in range(20_000)], source_type, lambda: calls.append(1))
    assert len(calls) > 10


def test_the_greatest_becomes_one_and_nothing_stays_nothing() -> None:
    assert scale_to_one(np.array([1.0, 4.0])).tolist() == [0.25, 1.0]
    assert scale_to_one(np.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    assert scale_to_one(np.zeros(0)).tolist() == []


def test_a_value_is_shared_with_its_neighbours_less_with_distance() -> None:
    assert spread(np.array([0.0, 0.0, 1.0, 0.0, 0.0]), 1).tolist() == [0.0, 0.5, 1.0, 0.5, 0.0]


def test_a_value_fades_differently_before_and_after() -> None:
    assert fading(np.array([0.0, 1.0, 0.0, 0.0]), before=0.5, after=0.25).tolist() == [0.5, 1.0, 0.25, 0.0625]


def test_nearness_falls_with_the_distance_to_the_nearest_mark() -> None:
    marked = np.array([True, False, False, False, True])

    assert nearness(marked).tolist() == [1.0, 0.5, 1 / 3, 0.5, 1.0]
    assert nearness(np.zeros(3, dtype=bool)).tolist() == [0.0, 0.0, 0.0]
