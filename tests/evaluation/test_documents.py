"""Cases made of documentation: docstrings, comments above definitions, sections of pages."""

import random

from evaluation import cases as docstrings
from evaluation import cases as sections

PYTHON = "\n".join(
    [
        "import os",
        *(f"constant_{i} = {i}" for i in range(80)),
        "def retry(times):",
        '    """Call the server again when it closes early."""',
        "    for _ in range(times):",
        "        if call():",
        "            return True",
        "    return False",
        "",
    ]
)
GO = "\n".join(
    [
        "package main",
        *(f"var constant{i} = {i}" for i in range(80)),
        "// Retry calls the server again when it closes early.",
        "func Retry(times int) bool {",
        "\tfor i := 0; i < times; i++ {",
        "\t\tcall()",
        "\t}",
        "\treturn false",
        "}",
        "",
    ]
)
PAGE = "\n".join(
    row
    for i in range(12)
    for row in (f"## Setting number {i} of all", "", *(f"It says {i} and {k} here." for k in range(6)), "")
)


def test_a_docstring_asks_for_its_function_and_is_blanked():
    (case,) = docstrings.docstring_cases("a.py", PYTHON)

    lines = case.text.split("\n")
    assert case.goal == "Call the server again when it closes early."
    assert lines[82] == ""
    assert [lines[row].strip() for row in case.gold] == [
        "def retry(times):",
        "for _ in range(times):",
        "if call():",
        "return True",
        "return False",
    ]


def test_a_comment_above_a_definition_asks_in_other_languages():
    (case,) = docstrings.docstring_cases("a.go", GO)

    lines = case.text.split("\n")
    assert case.goal == "Retry calls the server again when it closes early."
    assert "closes early" not in case.text
    assert lines[case.gold[0]] == "func Retry(times int) bool {"


def test_code_that_does_not_parse_makes_no_case():
    assert list(docstrings.docstring_cases("a.py", "def (:\n" * 90)) == []


def test_a_heading_asks_for_the_text_under_it_and_is_blanked():
    cases = list(sections.section_cases("a.md", PAGE, random.Random(1)))

    assert len(cases) == 11
    third = cases[2]
    assert "Setting number 3 of all" in third.goal
    assert "Setting number 3" not in third.text
    assert {third.text.split("\n")[row] for row in third.gold} == {f"It says 3 and {k} here." for k in range(6)}


def test_a_page_of_few_sections_makes_no_case():
    assert list(sections.section_cases("a.md", "\n".join(PAGE.split("\n")[:20]), random.Random(1))) == []


def test_python_too_deep_for_the_parser_has_no_cases() -> None:
    assert list(docstrings.docstring_cases("deep.py", PYTHON + "c = " + "not " * 20_000 + "x\n")) == []
