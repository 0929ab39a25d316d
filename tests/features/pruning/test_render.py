from kimi_proxy.core.prune import Cut, Options
from kimi_proxy.features.pruning.engine import annotate, render

LINES = ["a", "b", "c", "d", ""]
ANNOTATIONS = annotate([Cut(2, 3, "hors focus")], "prn_0123456789abcdef")
MARKER = "⟦PRUNÉ: prune_id=prn_0123456789abcdef lignes 2-3 (2) raison=hors focus⟧"


def options(annotate_lines: bool, include_markers: bool) -> Options:
    return Options(1.0, 0, 1000, annotate_lines, include_markers)


def test_a_marker_stands_where_the_lines_were() -> None:
    assert render(LINES, ANNOTATIONS, options(False, True)) == f"a\n{MARKER}\nd\n"


def test_kept_lines_are_numbered_and_markers_are_not() -> None:
    assert render(LINES, ANNOTATIONS, options(True, True)) == f"1│ a\n{MARKER}\n4│ d\n5│ "


def test_without_markers_the_lines_close_up() -> None:
    assert render(LINES, ANNOTATIONS, options(False, False)) == "a\nd\n"


def test_nothing_cut_nothing_changed_not_even_numbers() -> None:
    assert render(LINES, (), options(True, True)) == "a\nb\nc\nd\n"
