"""Structure is found in linear time, however a text is nested and however long its lines are."""

import time
from collections.abc import Callable

import pytest
from tests.support.deep import IS_DEEP, deep

from kimi_proxy.core.prune import SourceType
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.structure import syntax
from kimi_proxy.services.workers.pool import parsing_in_fork

resource = pytest.importorskip("resource")  # not on Windows

SECONDS_PER_KB = 0.02  # ten times what is usual
ENOUGH_S = 0.1  # less is measured too roughly to be compared
RATIO = 3.2  # of the time for twice the text
KB = 24 if IS_DEEP else 12

# What each is made of, again and again: nesting that is never closed, lines without end, what opens a block and
# nothing else, what looks like the end of everything.
NESTED = {
    "round brackets": "(",
    "square brackets": "[",
    "braces": "{",
    "braces on lines": "{\n",
    "closing braces": "}\n",
    "one line of letters": "x",
    "one line of words": "word ",
    "deeper and deeper": "if x:\n{indent}",
    "quotes": "'\"",
    "comments": "/* ",
    "blank lines": "\n",
    "spaces": " ",
    "fences": "```\n",
    "list items": "{indent}- x\n",
    "headings": "# x\n",
    "underlines": "x\n=\n",
    "tables": "|x|y|\n",
    "directives": ".. class:: x\n",
    "tags": "<h1>\n",
    "stamps": "2026-01-01 00:00:00 ERROR x: y\n",
    "frames": '  File "a.py", line 1, in f\n',
    "numbers": "1\n",
    "percents": "50%\r",
}
# How a text of each language begins, so that its grammar is chosen, and what then confuses it.
LANGUAGES = {
    "python": ("import os\n\n\ndef f(a):\n    return os.x(a)\n\n", "lambda: (yield [\n"),
    "javascript": ("const a = require('a');\nfunction f(a) {\n  return a;\n}\n", "`${a => {\n"),
    "typescript": ("import { A } from './a';\nexport interface B { c: string }\n", "a<b<c<"),
    "go": ('package main\n\nimport "fmt"\n\nfunc main() {\n\tfmt.Println(1)\n}\n', "case x:"),
    "rust": ("use std::io;\n\npub fn f(a: u32) -> u32 {\n    a + 1\n}\n", "%w[\n"),
    "java": ("package a;\n\nimport java.util.List;\n\npublic class A {\n  private int b;\n}\n", "new A<B<"),
    "c": ("#include <stdio.h>\n\nint main(void) {\n  return 0;\n}\n", "#if (\n"),
    "cpp": ("#include <vector>\n\nnamespace a {\nclass B { public: int c; };\n}\n", "a<b>::c<"),
    "csharp": ("using System;\n\nnamespace A {\n  public class B { public int C { get; set; } }\n}\n", "[a(\n"),
    "ruby": ("require 'a'\n\nclass B\n  def c\n    1\n  end\nend\n", "%w[ <<~A do\n"),
    "php": ("<?php\nnamespace A;\nuse B\\C;\nfunction d($e) { return $e; }\n", "<?php ?><?\n"),
    "bash": ('#!/bin/bash\nset -eu\nf() {\n  echo "$1"\n}\n', "$(( ${a:-$(\n"),
}
KINDS: tuple[SourceType, ...] = ("code", "docs", "logs")
Outlined = Callable[[list[str]], object]


def pathological(piece: str, kilobytes: int, head: str = "") -> list[str]:
    """Return lines: `piece` many times, each deeper than the one before where it says so."""
    made, size, times = [head], len(head), 0
    while size < kilobytes * 1024:
        text = piece.replace("{indent}", " " * min(times, 200))
        made.append(text)
        size, times = size + len(text), times + 1
    return "".join(made).split("\n")


def cpu() -> float:
    """Return the CPU time of this process and of those it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def check_linear(outline: Outlined, piece: str, head: str = "") -> None:
    half, whole = pathological(piece, KB // 2, head), pathological(piece, KB, head)
    for _ in range(5):  # work beside it takes the processor's caches: what is linear is so in one try of a few
        before = cpu()
        outline(half)
        between = cpu()
        outline(whole)
        took, took_half = cpu() - between, between - before
        if took <= ENOUGH_S or took <= RATIO * took_half:
            break
    assert took <= SECONDS_PER_KB * KB
    assert took <= ENOUGH_S or took <= RATIO * took_half


@pytest.mark.parametrize("piece", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("kind", KINDS)
def test_line_rules_take_linear_time(kind: SourceType, piece: str) -> None:
    with syntax.parsing_by(None):
        check_linear(lambda lines: engine.outline(lines, kind), piece)


@deep("it waits for parsers to be given up: 10 s and more")
@pytest.mark.parametrize("piece", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_parse_ends_in_time_whatever_the_grammar_makes_of_it(language: str, piece: str) -> None:
    head, confusing = LANGUAGES[language]
    with syntax.parsing_by(parsing_in_fork):
        for text in (piece, confusing):
            lines = pathological(text, KB, head * 3)
            before = cpu()
            engine.outline(lines, "code")
            assert cpu() - before <= 0.3 + SECONDS_PER_KB * KB
