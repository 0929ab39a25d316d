from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.features.pruning.score import choose, merge

unit = st.floats(0, 1)
finite = st.floats(allow_nan=False, allow_infinity=False)


def test_every_line_that_says_something_is_asked_about_when_there_is_room() -> None:
    assert choose(["a", "", "b", " \t", "c"], [0.1, 0.9, 0.2, 0.9, 0.3], 3) == [0, 2, 4]


def test_the_best_by_local_score_are_asked_about_when_there_are_too_many() -> None:
    assert choose(["a", "b", "c", "d"], [0.1, 0.9, 0.2, 0.8], 2) == [1, 3]


def test_equals_are_taken_from_the_top() -> None:
    assert choose(["a", "b", "c"], [0.5, 0.5, 0.5], 2) == [0, 1]


def test_a_text_of_blank_lines_asks_nothing() -> None:
    assert choose(["", " "], [0.0, 0.0], 64) == []
    assert merge([0.0, 0.0], [], []) == [0.0, 0.0]


def test_the_reranker_replaces_the_local_score() -> None:
    assert merge([0.5, 0.5], [0, 1], [0.9, 0.1]) == [0.9, 0.1]


def test_lines_that_were_not_sent_keep_their_local_score_on_the_same_scale() -> None:
    # The reranker was half as generous as we were, so the third line is worth half of what we said.
    assert merge([0.8, 0.8, 0.4], [0, 1], [0.6, 0.2]) == [0.6, 0.2, 0.2]


def test_the_reranker_is_heard_where_we_know_nothing() -> None:
    assert merge([0.0, 0.0, 0.0], [0, 1], [0.1, 0.7]) == [0.1, 0.7, 0.0]


def test_scores_outside_0_to_1_are_stretched_into_it() -> None:
    assert merge([0.5, 0.5, 0.5], [0, 1, 2], [-4.0, 0.0, 4.0]) == [0.0, 0.5, 1.0]
    assert merge([0.5, 0.5], [0, 1], [7.0, 7.0]) == [0.5, 0.5]


def test_a_local_score_next_to_nothing_does_not_blow_up_the_scale() -> None:
    assert merge([5e-324, 0.0], [0], [0.5]) == [0.5, 0.0]


@given(st.data())
def test_merged_scores_are_one_per_line_between_0_and_1_in_the_rerankers_order(data: st.DataObject) -> None:
    local = data.draw(st.lists(unit, min_size=1, max_size=20))
    asked = choose(["x"] * len(local), local, data.draw(st.integers(1, 20)))
    remote = data.draw(st.lists(finite, min_size=len(asked), max_size=len(asked)))
    merged = merge(local, asked, remote)
    assert len(merged) == len(local)
    assert all(0 <= score <= 1 for score in merged)
    order = sorted(range(len(asked)), key=remote.__getitem__)
    assert all(merged[asked[a]] <= merged[asked[b]] for a, b in pairwise(order))
