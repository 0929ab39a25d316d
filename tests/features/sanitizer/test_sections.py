"""What tools put into the text of a user."""

import pytest

from kimi_proxy.features.sanitizer.plan import sections

BODY = "line of output\n" * 20


def found(text: str, min_chars: int = 100) -> list[tuple[str, str, str]]:
    return [(s.tool, s.name, text[s.start : s.end]) for s in sections(text, min_chars)]


@pytest.mark.parametrize("tag", ["file", "codebase", "tool", "console", "output", "tool_output", "bash-stdout"])
def test_an_element_is_one(tag: str):
    assert found(f"Look:\n<{tag}>{BODY}</{tag}>\nWhy?") == [(tag, "", BODY)]


def test_an_element_may_name_its_file():
    assert found(f'<file path="src/a.py">{BODY}</file>') == [("file", "src/a.py", BODY)]


@pytest.mark.parametrize("tag", ["file", "codebase", "tool", "console", "output"])
def test_a_header_opens_one_that_the_next_header_ends(tag: str):
    text = f"Fix this.\n@{tag} src/a.py\n{BODY}@console\n{BODY}\n\nWhy does it fail?"

    assert found(text) == [(tag, "src/a.py", BODY), ("console", "", f"{BODY}\n")]


def test_a_header_before_a_block_of_code_means_that_block():
    assert found(f"@file a.py\n```python\n{BODY}```\nand then\n{BODY}") == [("file", "a.py", BODY)]


def test_a_block_named_after_a_file_is_one_and_others_are_the_users_own():
    assert found(f"```src/app.py (1-20)\n{BODY}```\nmine:\n```python\n{BODY}```\n") == [("file", "src/app.py", BODY)]


def test_what_aider_ran_is_one():
    text = f"I ran this command:\n\npytest -x tests\n\nAnd got this output:\n\n{BODY}\n"
    (section,) = sections(text, 100)

    assert (section.tool, section.command, text[section.start : section.end]) == ("run", "pytest -x tests", f"{BODY}\n")


def test_an_observation_of_smolagents_is_one():
    assert found(f"Observation:\nExecution logs:\n{BODY}") == [("observation", "", f"Execution logs:\n{BODY}")]


@pytest.mark.parametrize(
    "text",
    [
        f"My Observation:\n{BODY}",
        f"<system-reminder>{BODY}</system-reminder>",
        f"mail me @file or so {BODY}",
        f"<output>{BODY}",
        "<output>short</output>",
        BODY,
        "",
    ],
)
def test_nothing_else_is(text: str):
    assert found(text) == []


@pytest.mark.parametrize(
    ("sentence", "tool", "name"),
    [
        ("What is wrong in @file src/app.py?\n", "file", "src/app.py"),
        ("Look at `@file app.py`, please:\n\n", "file", "app.py"),
        ("The test printed @output as below.\n", "output", "as"),
        ("Compare @file a.py with @file b.py:\n", "file", "b.py"),
        ("Dans @codebase src, trouve l'erreur :\n", "codebase", "src"),
    ],
)
def test_a_block_without_a_name_is_what_the_sentence_above_it_mentions(sentence: str, tool: str, name: str):
    assert found(f"{sentence}```\n{BODY}```\nWhy?") == [(tool, name, BODY)]


def test_a_block_under_other_words_is_the_users_own():
    assert found(f"Write it as me@file.org does:\n```\n{BODY}```\n") == []
    assert found(f"@file a.py was fine.\n\nBut this is not:\n```\n{BODY}```\n")[-1:] != [("file", "a.py", BODY)]


def test_sections_do_not_overlap():
    text = f"<output>@console\n```a.py\n{BODY}```\n</output>"

    assert len(found(text)) == 1


def test_many_openings_without_an_end_take_no_time():
    assert found("<output>" * 20_000 + "`" * 20_000 + "@file x\n" * 20_000, 10**9) == []
