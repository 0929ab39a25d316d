import tracemalloc
from importlib import resources

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
    found = find(["orch = compose()", "orchestrated", "orchards"], "orchestration")

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


def test_a_log_without_a_word_of_the_goal_is_asked_in_words_that_mean_the_same() -> None:
    lines = ["INFO page walk", "WARN TLB shootdown took 40 ms", "INFO idle"]
    found = goals.find(lines, read_goal("how long does address translation take?"), lambda: None, is_terse=True)

    assert found.counts.sum(axis=1).tolist() == [0.0, 1.0, 0.0]


def test_a_phrase_of_small_words_means_something_too() -> None:
    lines = ["connecting", "Retrying in 5 s", "done"]

    assert find(lines, "why does it do so again and again?").counts.sum(axis=1).tolist() == [0.0, 1.0, 0.0]


def test_synonyms_do_not_count_in_a_page_that_has_the_goals_own_words() -> None:
    lines = ["delete a session", "erase the disk", "nothing"]

    assert find(lines, "delete sessions").counts.sum(axis=1).tolist() == [2.0, 0.0, 0.0]


def test_two_words_of_a_goal_are_found_where_they_are_written_as_one() -> None:
    found = find(["def cacheshow():", "    return cache", "nothing"], "cache show")

    assert found.counts.sum(axis=1).tolist() == [1.0, 1.0, 0.0]
    assert found.stems == ["cache", "cacheshow"]


def test_every_line_of_synonyms_has_at_least_two_words_and_none_twice() -> None:
    text = (resources.files("kimi_proxy.features.pruning") / "synonyms.txt").read_text("utf-8")
    groups = [line.split() for line in text.rstrip("\n").split("\n")]

    assert all(len(group) >= 2 and len(set(group)) == len(group) for group in groups)
    assert all(word == word.lower() and word.isascii() for group in groups for word in group)
