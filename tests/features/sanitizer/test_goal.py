"""What a conversation is about."""

import time

import pytest
from tests.support.conversations import Assistant, Item, Result, User, request

from kimi_proxy.core.chat import Wire
from kimi_proxy.features.sanitizer.plan import MAX_CHARS, goal, own_words

FIRST = User("Find out why the nightly import loses rows.")


@pytest.mark.parametrize("wire", list(Wire))
def test_it_is_the_first_and_the_newest_words_of_the_user(wire: Wire):
    items: list[Item] = [FIRST, Assistant("Looking."), Result("c1", "rows"), User("Only look at\n  the CSV reader.")]

    assert goal(request(wire, items)) == "Find out why the nightly import loses rows.\nOnly look at the CSV reader."


def test_words_said_once_are_not_told_twice():
    assert goal(request(Wire.CHAT, [FIRST])) == FIRST.text


@pytest.mark.parametrize(
    "text",
    [
        "Some talk.\nPlan:\n1. read the reader\n2. fix it",
        "Some talk.\n## TODO\n1. read the reader\n2. fix it",
        "Some talk.\n**Objective:** 1. read the reader\n2. fix it",
        "Some talk.\n- Mission : 1. read the reader 2. fix it",
        "Du texte.\nObjectif:\n1. read the reader\n2. fix it",
        "<objective>1. read the reader 2. fix it",
    ],
)
def test_lines_after_a_marker_are_all_of_it(text: str):
    assert goal(request(Wire.CHAT, [FIRST, User(text)])) == "1. read the reader 2. fix it"


def test_the_word_plan_in_a_sentence_is_no_marker():
    assert (
        goal(request(Wire.CHAT, [User("Plan the refactoring of the reader.")])) == "Plan the refactoring of the reader."
    )


def test_it_is_short_and_both_ends_of_the_conversation_have_their_say():
    told = goal(request(Wire.CHAT, [User("first " * 200), User("newest " * 200)]))

    assert len(told) <= MAX_CHARS
    assert told.startswith("first first") and "newest newest" in told


def test_what_clients_and_tools_put_among_the_words_is_left_out():
    text = (
        "<system-reminder>Today is Monday.</system-reminder>Fix the reader.\n"
        + f"<file path='a.py'>{'x = 1; ' * 200}</file>\n@console\n```\n{'noise ' * 200}\n```\n"
        + "<environment_details>cwd: /srv</environment_details>"
    )

    told = goal(request(Wire.CHAT, [User(text)]))

    assert "Fix the reader." in told
    assert not any(word in told for word in ("Monday", "x = 1", "noise", "/srv"))


def test_without_a_user_there_is_none():
    assert goal(request(Wire.CHAT, [Assistant("Hello.")])) == ""


@pytest.mark.parametrize(
    "text",
    [
        "```" + "a" * 900_000,
        "~" * 900_000,
        "```\n" * 225_000,
        "<system-reminder>" * 50_000,
        "<file>" * 150_000,
        "".join(f"```src/a{n}.py\n{'x' * 300}\n```\n" for n in range(2_700)),
        "@file a.py\n" * 80_000,
    ],
    ids=["letters", "tildes", "fences", "asides", "elements", "files", "headers"],
)
def test_a_long_text_of_the_user_is_read_in_linear_time(text: str) -> None:
    """One of them took 3.3 s."""
    began = time.process_time()
    own_words(text)
    assert time.process_time() - began < 1.5
