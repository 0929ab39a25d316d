import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.read_back import read_from

from kimi_proxy.core.errors import InvalidRange
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features import recovery
from kimi_proxy.features.recovery import MAX_RANGES, LineRange


def recover(text: str, ranges: Sequence[LineRange], with_numbers: bool) -> str:
    recovery.check(ranges)
    listed = [{"start_line": start, "end_line": end} for start, end in ranges]
    return read_from(text, {"prune_id": "prn_1", "ranges": listed, "include_line_numbers": with_numbers})


# Everything that other notions of a line would cut at, and what UTF-8 alone cannot carry.
nasty_texts = st.text(st.sampled_from("ab \n\r\x0b\x0c\x1c\x85\u2028\x00\ud800é😀│⟦⟧"), min_size=1)


@given(nasty_texts)
def test_all_lines_of_a_text_are_the_text(text: str) -> None:
    assert recover(text, [(1, text.count("\n") + 1)], False) == text


@given(nasty_texts, st.data())
def test_ranges_come_in_the_order_asked_joined_by_newlines(text: str, data: st.DataObject) -> None:
    lines = text.split("\n")
    starts = data.draw(st.lists(st.integers(1, len(lines)), min_size=1, max_size=5))
    ranges = [(start, start + data.draw(st.integers(0, 10))) for start in starts]
    assert recover(text, ranges, False) == "\n".join("\n".join(lines[s - 1 : e]) for s, e in ranges)


def test_numbers_are_those_of_the_original() -> None:
    assert recover("a\nb\nc\nd", [(3, 4), (1, 1)], True) == "3│ c\n4│ d\n1│ a"


def test_an_end_beyond_the_last_line_means_the_last_line() -> None:
    assert recover("a\nb", [(2, 10**30)], False) == "b"


def test_the_empty_line_after_a_final_newline_is_a_line() -> None:
    assert recover("a\n", [(2, 2)], True) == "2│ "


@pytest.mark.parametrize("ranges", [[(0, 1)], [(-3, 2)], [(2, 1)], [], [(1, 1), (5, 4)]])
def test_ranges_that_mean_nothing_are_refused(ranges: Sequence[LineRange]) -> None:
    with pytest.raises(InvalidRange) as refused:
        recover("a\nb\nc\nd\ne", ranges, False)
    assert refused.value.max_line is None


@pytest.mark.parametrize(("text", "start", "max_line"), [("a\nb", 3, 2), ("", 1, 0)])
def test_a_start_beyond_the_last_line_is_told_the_last_line(text: str, start: int, max_line: int) -> None:
    with pytest.raises(InvalidRange) as refused:
        recover(text, [(start, start)], False)
    assert refused.value.data() == {"code": "invalid_range", "max_line": max_line}


def test_too_many_ranges_are_refused() -> None:
    assert recover("a", [(1, 1)] * MAX_RANGES, False) == "\n".join("a" * MAX_RANGES)
    with pytest.raises(InvalidRange, match="too many"):
        recovery.check([(1, 1)] * (MAX_RANGES + 1))


def test_ranges_that_overlap_cannot_be_used_to_fill_the_memory() -> None:
    with pytest.raises(InvalidRange, match="fewer lines"):
        recover("x" * 1_000_000, [(1, 1)] * 100, False)


def test_ranges_that_overlap_are_weighed_without_walking_each_of_them() -> None:
    text = "\n" * 400_000
    began = time.process_time()
    with pytest.raises(InvalidRange, match="fewer lines"):
        recover(text, [(1, 10**9)] * MAX_RANGES, False)
    assert time.process_time() - began < 5  # line by line it would be minutes


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"prune_id": "prn_1", "ranges": [{"start_line": 2, "end_line": 3}]}, "b\nc"),
        ({"prune_id": "prn_1", "ranges": [{"start_line": 3, "end_line": 3}, {"start_line": 1, "end_line": 1}]}, "c\na"),
        ({"id": "prn_1", "start_line": 2, "end_line": 3}, "b\nc"),
        ({"id": "prn_1", "start_line": 2, "end_line": 3, "include_line_numbers": True}, "2│ b\n3│ c"),
        ({"id": "prn_1", "include_line_numbers": True}, "1│ a\n2│ b\n3│ c"),
        ({"mask_id": "msk_1", "start": 0, "end": 1}, "a"),
        ({"id": "prn_1"}, "a\nb\nc"),
        ({"id": "prn_1", "ranges": []}, "a\nb\nc"),
    ],
)
def test_one_shape_and_what_a_model_would_write_in_its_place(given: JsonObject, found: str):
    assert read_from("a\nb\nc", given) == found


def test_lines_and_characters_together_mean_nothing():
    lines: JsonObject = {"ranges": [{"start_line": 1, "end_line": 1}], "start_char": 0}
    with pytest.raises(InvalidRange, match="not both"):
        read_from("a", {"prune_id": "prn_1", **lines})
