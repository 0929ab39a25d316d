"""swe-pruner's marker, written for its clients and read from its servers."""

from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core.prune import Cut
from kimi_proxy.features import recovery

LINES = ["a", "b", "", "c", "b", "d", ""]


def spans(cuts: list[Cut] | None) -> list[tuple[int, int]] | None:
    return None if cuts is None else [(cut.start, cut.end) for cut in cuts]


def test_each_gap_becomes_one_line():
    cuts = [Cut(2, 3, ""), Cut(5, 5, "")]

    assert recovery.write(LINES, cuts) == "a\n(filtered 2 lines)\nc\n(filtered 1 lines)\nd\n"


def test_gaps_are_found_again_by_their_markers():
    assert spans(recovery.read(LINES, "a\n(filtered 3 lines)\nb\nd\n")) == [(2, 4)]


def test_gaps_without_a_marker_are_found_too():
    assert spans(recovery.read(LINES, "a\nc\nd\n")) == [(2, 3), (5, 5)]


def test_a_marker_with_a_wrong_count_is_corrected():
    assert spans(recovery.read(LINES, "a\n(filtered 9 lines)\nd\n")) == [(2, 5)]


def test_spaces_at_the_end_of_a_line_do_not_matter():
    assert spans(recovery.read(["x  ", "y", "z"], "x\nz")) == [(2, 2)]


def test_a_missing_newline_at_the_end_is_no_gap():
    assert spans(recovery.read(LINES, "\n".join(LINES[:-1]))) == []


def test_a_gap_at_either_end_is_found():
    assert spans(recovery.read(LINES, "(filtered 3 lines)\nc\n(filtered 3 lines)")) == [(1, 3), (5, 7)]


def test_a_line_that_looks_like_a_marker_but_is_in_the_text_stays():
    assert spans(recovery.read(["(filtered 2 lines)", "x"], "(filtered 2 lines)\nx")) == []


def test_text_that_is_not_made_of_the_lines_is_refused():
    for other in ("a summary", "a\nx\nd", "d\na", "a\nB"):
        assert recovery.read(LINES, other) is None


@given(st.data())
def test_what_is_written_is_read_again(data: st.DataObject):
    lines = data.draw(st.lists(st.sampled_from(["x", "y", "", "  z"]), min_size=1, max_size=12))
    keep = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    cuts = recovery._gaps([i for i, stays in enumerate(keep) if stays], len(lines))

    found = recovery.read(lines, recovery.write(lines, cuts))

    assert found is not None
    assert recovery.write(lines, found) == recovery.write(lines, cuts)
