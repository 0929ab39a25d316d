import pytest

from kimi_proxy.features.pruning.structure import languages


@pytest.mark.parametrize(
    ("shebang", "expected"),
    [
        ("#!/usr/bin/env python3", "python"),
        ("#!/bin/sh", "bash"),
        ("#!/usr/bin/env -S node --harmony", "javascript"),
        ("#!/usr/bin/ruby -w", "ruby"),
    ],
)
def test_a_shebang_decides(shebang: str, expected: str) -> None:
    assert languages.guess([shebang, "import os"]) == expected


def test_the_first_line_of_go_and_java_decides_over_what_they_quote() -> None:
    shell = ["if [ -f x ]; then", "  echo $(cat x)", "fi"] * 20
    assert languages.guess(["// Completions.", "package cobra", "", "const script = `", *shell, "`"]) == "go"
    assert languages.guess(["/* c */", "package a.b;", "", *shell]) == "java"


def test_prose_and_nothing_have_no_language() -> None:
    assert languages.guess([]) == ""
    assert languages.guess([""]) == ""
    assert languages.guess(["It was a dark night.", "The class was over, and from there we went on."]) == ""


def test_typed_script_with_markup_is_its_own_dialect() -> None:
    lines = [
        "import React from 'react';",
        "interface Props { name: string }",
        "export const Hello = ({ name }: Props): JSX.Element => (",
        "  <div>",
        "    <b>{name}</b>",
        "  </div>",
        ");",
    ]
    assert languages.guess(lines) == "tsx"


def test_c_with_the_words_of_its_successor_is_read_as_such() -> None:
    c = ["#include <stdio.h>", "int main(void) {", '  printf("x");', "  return 0;", "}"]
    assert languages.guess(c) == "c"
    assert languages.guess(["#include <vector>", "template <typename T>", *c]) == "cpp"
