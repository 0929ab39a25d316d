import tracemalloc

import numpy as np

from kimi_proxy.features.pruning import goal as goals
from kimi_proxy.features.pruning.goal import Matches, read_goal


def find(lines: list[str], goal: str) -> Matches:
    return goals.find(lines, read_goal(goal), lambda: None)


def test_words_are_counted_in_every_form_of_an_identifier() -> None:
    found = find(["openSession(x)", "session.open()", "nothing here"], "open a session")

    assert found.counts.sum(axis=1).tolist() == [2.0, 2.0, 0.0]


def test_a_word_that_the_text_does_not_know_has_no_column() -> None:
    found = find(["alpha", "beta"], "alpha gamma")

    assert found.counts.shape == (2, 1)
    assert found.known == 0.5


def test_a_span_counts_what_its_lines_count() -> None:
    found = find(["alpha", "beta alpha", "gamma"], "alpha")
    spans = found.over(np.array([0, 1]), np.array([2, 3]))

    assert spans.counts[:, 0].tolist() == [2.0, 1.0]
    assert spans.coverage().tolist() == [1.0, 1.0]


def test_an_exact_string_counts_more_the_rarer_it_is() -> None:
    lines = ["say `no such user` here", "x", "get_user()", "get_user()", "get_user()", "get_user()"]
    found = find(lines, 'why does get_user say "no such user"?')

    assert found.exact[0] == 1.0
    assert found.exact[2] == 0.5
    assert found.exact[1] == 0.0


def test_no_lines_and_no_goal_are_fine() -> None:
    assert find([], "alpha").counts.shape == (0, 0)
    assert find(["alpha"], "").over(np.array([0]), np.array([1])).bm25().tolist() == [0.0]


def test_what_is_given_as_one_line_is_one_though_it_has_several() -> None:
    found = find(["a session\nwas opened", "another\n\nsession session"], "session")

    assert found.counts.tolist() == [[1.0], [2.0]]


def test_words_that_share_a_root_with_the_goals_are_akin_to_them() -> None:
    found = find(["auth = login()", "authenticated", "authority"], "authentication")

    assert found.counts.size == 0
    assert found.by_roots().counts.tolist() == [[1.0], [1.0], [0.0]]


def test_a_long_goal_before_a_large_vocabulary_takes_little_room() -> None:
    lines = [f"word{row}a other{row}b third{row}c" for row in range(8000)]
    goal = " ".join(f"{first}{second}xyz" for first in "abcdefghijklmnopqrst" for second in "abcdefghijklmnopqrst")
    tracemalloc.start()
    try:
        find(lines, goal)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < 50_000_000
