"""The engine at its limits: where one token, line or row more decides otherwise."""

import json
from dataclasses import replace

import pytest

from kimi_proxy.core import tokens
from kimi_proxy.core.prune import Options, Pruned, Question, SourceType, no_op_result
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.engine import (
    MARKER_TOKENS,
    NAMED_LINES,
    SMALL_TOKENS,
    Analysis,
    choose,
    failure_rows,
)
from kimi_proxy.features.pruning.model import Scorers
from kimi_proxy.features.pruning.select import Costs
from kimi_proxy.features.pruning.structure.blocks import Block, Outline

PRUNE_ID = "prn_0123456789abcdef"
OPTIONS = Options(0.7, 1, 5000, annotate_lines=False, include_markers=True)
PAGE = "\n".join(f"Paragraph {i} speaks at length of gardens, rivers and the {i} hills behind them." for i in range(60))
SHORT_LINES = "\n".join(f"alpha beta gamma {i}" for i in range(100))
RECORDS = json.dumps([{"id": i, "name": f"user {i}", "note": "nothing of interest here"} for i in range(80)], indent=1)


def prune(text: str, source_type: SourceType = "docs", options: Options = OPTIONS, **more: object) -> Pruned:
    return engine.prune(Question(text, "rivers", source_type, options), PRUNE_ID, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [PAGE, RECORDS])
def test_a_text_is_cut_from_three_markers_on(text: str) -> None:
    lines = len(text.split("\n"))

    assert prune(text, tokens_before=SMALL_TOKENS - 1) == no_op_result(text, lines, SMALL_TOKENS - 1)
    assert prune(text).annotations
    # Its tokens are counted wrongly here: the pruned text has more of them than the whole one seems to have.
    assert prune(text, tokens_before=SMALL_TOKENS) == no_op_result(text, lines, SMALL_TOKENS)


@pytest.mark.parametrize("before", [SMALL_TOKENS - 1, SMALL_TOKENS])
def test_limits_that_let_no_line_go_are_worth_a_warning_from_three_markers_on(before: int) -> None:
    pruned = prune(PAGE, options=replace(OPTIONS, max_prune_ratio=0.0), tokens_before=before)

    assert pruned.warnings == (() if before < SMALL_TOKENS else ("constraints_unmet",))


def test_scores_from_outside_decide_over_lines_of_a_text_of_records_too() -> None:
    rows = RECORDS.split("\n")
    scores = [1.0 if 200 <= row < 240 else 0.0 for row in range(len(rows))]
    pruned = prune(RECORDS, scores=scores)

    assert "\n".join(rows[200:240]) in pruned.text
    assert pruned.pruned_lines > 0


def test_a_refused_model_is_reported_unless_the_scores_come_from_outside() -> None:
    refused, scores = Scorers(fault="the learned scorer was refused"), [0.5] * 60

    alone, ranked = prune(PAGE, scorers=refused), prune(PAGE, scorers=refused, scores=scores)
    assert (alone.warnings, alone.used_fallback) == (("scorer_refused",), True)
    assert (ranked.warnings, ranked.used_fallback) == ((), False)
    assert prune(PAGE, scorers=Scorers()).warnings == ()


@pytest.mark.parametrize(("annotate", "markers"), [(False, False), (True, True), (True, False)])
def test_how_an_answer_looks_does_not_change_which_lines_go(annotate: bool, markers: bool) -> None:
    looks = replace(OPTIONS, annotate_lines=annotate, include_markers=markers)

    assert prune(PAGE, options=looks).annotations == prune(PAGE).annotations


def scored(kept: int, options: Options) -> Pruned:
    """Prune 100 short lines of which the last few are worth nothing, with markers that cost as much as some of them."""
    ratio = (100 - kept) / 100
    return prune(
        SHORT_LINES, options=replace(options, max_prune_ratio=ratio), scores=[1.0] * kept + [0.0] * (100 - kept)
    )


@pytest.mark.parametrize("markers", [True, False])
def test_a_tenth_has_to_be_saved_with_markers_whether_they_are_shown_or_not(markers: bool) -> None:
    options = replace(OPTIONS, include_markers=markers)
    # A line has six tokens and the marker about forty: of 100 lines, 10 are too few and 25 are enough.
    assert scored(90, options).annotations == ()
    assert len(scored(75, options).annotations) == 1


def test_line_numbers_that_cost_what_a_cut_saves_leave_the_text_whole() -> None:
    numbered = replace(OPTIONS, annotate_lines=True)

    assert len(scored(80, OPTIONS).annotations) == 1
    assert scored(80, numbered) == no_op_result(SHORT_LINES, 100, tokens.count(SHORT_LINES))


def test_protected_stretches_nest_and_end_where_the_outer_one_ends() -> None:
    begin, end = "⟦NO_PRUNE_BEGIN⟧", "⟦NO_PRUNE_END⟧"
    lines = ["a", begin, "b", begin, "c", end, "d", end, "e", end, "f", begin, end, "g", begin, "h"]
    protected = engine.outline(lines, "docs").protected

    assert [row for row, why in enumerate(protected) if why == "no_prune"] == [1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 14, 15]


def log(*errors: str, reports: tuple[tuple[int, int], ...] = ()) -> tuple[list[str], Outline]:
    """Build a log of errors, and of reports at the rows named, as the outline of logs would mark them."""
    marks = ["error"] * len(errors)
    for start, end in reports:
        marks[start:end] = ["traceback"] * (end - start)
    blocks = tuple(Block(start, end, start + 1, "traceback", "", 0) for start, end in reports)
    rows = tuple(row for row, why in enumerate(marks) if why == "error")
    return list(errors), Outline(blocks, tuple(marks), "", rows)


def test_all_failures_stay_while_they_fill_half_the_room() -> None:
    lines, outline = log("Traceback", "  deep", "boom 1", "boom 1", "boom 2", reports=((0, 2),))

    assert failure_rows(lines, outline, room=10) == {0, 1, 2, 3, 4}
    # Then one of those that say the same, beside whole reports; then only the heads of reports.
    assert failure_rows(lines, outline, room=9) == {0, 1, 2, 4}
    assert failure_rows(lines, outline, room=8) == {0, 1, 2, 4}
    assert failure_rows(lines, outline, room=7) == {0, 2, 4}
    assert failure_rows(lines, outline, room=3) == {0, 2, 4}
    # Where even those do not fit: one of each template.
    assert failure_rows(lines, outline, room=2) == {0, 2}


def chosen(
    lines: list[str], scores: list[float], goal: str = "x", floor: int = 10, is_of_use: bool = False
) -> set[int]:
    """Return the rows of a log that stay at a ratio where its outline does not."""
    question = Question("\n".join(lines), goal, "logs", replace(OPTIONS, max_prune_ratio=0.9))
    costs = Costs(tokens.count_lines(lines), MARKER_TOKENS)
    found = engine.analyze(question, lines, scores, lambda: None, engine.load_scorers())
    keep = choose(Analysis(lines, found.outline, found.scores, is_of_use), costs, question, floor)
    return {row for row, stays in enumerate(keep) if stays}


def wide(row: int, words: str) -> str:
    return f"{words} {row} " + "and many more words that make the row dearer than a marker would be " * 4


def test_one_line_of_each_kind_stays_in_a_log_and_it_is_the_one_worth_most() -> None:
    lines = [wide(row, "worker took a job") for row in range(100)]
    lines[40:43] = [wide(row, "cache was emptied") for row in range(3)]
    scores = [1.0 if row < 10 else 0.1 for row in range(100)]
    scores[41] = 0.2

    assert 41 in chosen(lines, scores)
    assert not {40, 42} & chosen(lines, scores)


@pytest.mark.parametrize(("kinds", "all_stay"), [(2, True), (3, False)])
def test_kinds_of_lines_stay_while_they_are_a_fifth_of_what_has_to_stay(kinds: int, all_stay: bool) -> None:
    words = ("disk is full of apples", "cache was emptied", "queue has grown")
    lines = [wide(row, "worker took a job") for row in range(100)]
    rows = [30, 60, 90][: kinds - 1]
    for row, said in zip(rows, words, strict=False):
        lines[row] = wide(row, said)
    scores = [1.0 if row < 10 else 0.0 for row in range(100)]

    assert set(rows) <= chosen(lines, scores) if all_stay else not set(rows) & chosen(lines, scores)


@pytest.mark.parametrize(
    ("holding", "is_of_use", "stay"), [(NAMED_LINES, True, True), (NAMED_LINES + 1, True, False), (1, False, False)]
)
def test_named_lines_stay_in_an_agents_output_while_they_are_few(holding: int, is_of_use: bool, stay: bool) -> None:
    lines = [wide(row, "worker took a job") for row in range(100)]
    rows = {50 + 5 * at for at in range(holding)}
    for row in rows:
        lines[row] = wide(row, "worker took a job of load_orders_17")
    scores = [1.0 if row < 10 else 0.0 for row in range(100)]
    kept = chosen(lines, scores, "where is load_orders_17 called?", floor=4, is_of_use=is_of_use)

    assert rows <= kept if stay else not rows & kept


def test_a_final_newline_stays_and_a_last_line_without_one_may_go() -> None:
    lines = [wide(row, "Paragraph") for row in range(100)]
    scores = [1.0 if row < 10 else 0.0 for row in range(100)]

    assert max(chosen(lines, scores)) == 9
    assert 100 in chosen([*lines, ""], [*scores, 0.0])
