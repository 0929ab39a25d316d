import pytest

from kimi_proxy.lab.judging import stitched, survives

PYTHON = ["import os", "def a():", "    x = 1", "    y = 2", "    return x", "def b():", "    return os"]
GO = ["package main", "func a() int {", "\tx := 1", "\treturn x", "}", "func b() {", "\ta()", "}"]


def without(lines: list[str], *rows: int) -> list[bool]:
    return [row not in rows for row in range(len(lines))]


def test_a_gap_reads_as_a_statement_with_the_indent_of_what_it_replaces():
    assert stitched(PYTHON, without(PYTHON, 2, 3, 4), "python").split("\n")[1:4] == ["def a():", "    ...", "def b():"]


@pytest.mark.parametrize("lines", [PYTHON, GO], ids=["python", "go"])
def test_code_survives_the_loss_of_whole_statements(lines: list[str]):
    assert survives(lines, without(lines, 2, 3)) is True
    assert survives(lines, without(lines)) is True


def test_code_does_not_survive_the_loss_of_half_a_definition():
    assert survives(GO, without(GO, 3, 4)) is False
    assert survives(PYTHON, without(PYTHON, 0, 1)) is False


def test_what_did_not_parse_before_is_not_judged():
    assert survives(["Just", "a few", "words."], [True, False, True]) is None


def test_python_too_deep_for_the_parser_is_not_judged():
    deep = [*PYTHON, "c = " + "not " * 20_000 + "x"]

    assert survives(deep, without(deep, 2)) is None
