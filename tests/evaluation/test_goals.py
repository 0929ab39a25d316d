import random

import pytest

from evaluation import cases


@pytest.mark.parametrize(
    ("message", "goal"),
    [
        ("Retry when the socket closes early", "Retry when the socket closes early"),
        ("fix(router): keep the trailing slash (#123)", "router: keep the trailing slash"),
        ("Handle empty bodies. Fixes #12, #13", "Handle empty bodies."),
        (
            "Handle empty bodies\n\nSigned-off-by: A <a@b.c>\n\nThe parser took them for the end.\n",
            "Handle empty bodies. The parser took them for the end.",
        ),
        ("Handle empty bodies\n\n- one\n- two", "Handle empty bodies"),
        ("Handle empty bodies of 3f2a91bc77 https://example.org/x", "Handle empty bodies of"),
    ],
)
def test_a_message_is_read_without_what_only_machines_read(message: str, goal: str):
    assert cases.of_commit(message) == goal


@pytest.mark.parametrize("message", ["", "wip", "Bump version to 3.2", "Merge branch 'x' into y", "1.2.3", "fix it"])
def test_a_message_that_says_nothing_is_no_goal(message: str):
    assert cases.of_commit(message) == ""


def test_a_long_message_ends_at_a_word():
    goal = cases.of_commit("Explain " + "words " * 300)

    assert len(goal) <= cases.MAX_CHARS
    assert goal.endswith("words")


@pytest.mark.parametrize(
    ("comment", "goal"),
    [
        ("// Opens the file and reads\n// its header.\n//\n// More of it.", "Opens the file and reads its header."),
        ("/**\n * Closes the {@link Session} now.\n * @param x what\n */", "Closes the Session now."),
        ("Return it.\n\n:param x: what", ""),
        ("Return the first header of a name.\n\n:param x: what", "Return the first header of a name."),
    ],
)
def test_a_comment_asks_with_its_first_sentences(comment: str, goal: str):
    assert cases.of_comment(comment) == goal


def test_a_heading_asks_in_one_of_several_ways():
    asked = {cases.of_heading("Setting `timeouts` of [sessions](a.md)", random.Random(seed)) for seed in range(20)}

    assert all("Setting timeouts of sessions" in goal for goal in asked)
    assert len(asked) > 1
    assert cases.of_heading("Usage", random.Random(1)) == ""
