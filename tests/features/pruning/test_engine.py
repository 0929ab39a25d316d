import random
from dataclasses import replace

import pytest

from kimi_proxy.core import tokens
from kimi_proxy.core.prune import Cut, Options, Pruned, Question, SourceType
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.engine import FITTED, FITTED_TO_USE, MARKER_TOKENS, Fitted, annotate, choose, render
from kimi_proxy.features.pruning.select import Costs

PRUNE_ID = "prn_0123456789abcdef"


def prune(text: str, goal: str, source_type: SourceType, ratio: float = 0.7, keep: int = 1) -> Pruned:
    options = Options(ratio, keep, 5000, annotate_lines=False, include_markers=True)
    return engine.prune(Question(text, goal, source_type, options), PRUNE_ID)


def module(functions: int = 30) -> str:
    """A module with many functions; `open_session` alone speaks of sessions."""
    parts = ["import os", "import socket", ""]
    for i in range(functions):
        name = "open_session" if i == 17 else f"convert_{i}"
        subject = "session" if i == 17 else "value"
        parts += [f"def {name}(argument):", f'    """Work on the {subject}."""']
        parts += [f"    {subject}_{k} = transform(argument, {k}, {i})" for k in range(12)]
        parts += [f"    return {subject}_3", "", ""]
    return "\n".join(parts)


def build_log() -> str:
    lines = [f"[{i:04}] compiling unit {i} of 900 into target/debug/unit-{i}.o" for i in range(900)]
    lines[700:700] = [
        "error[E0308]: mismatched types",
        "  --> src/orders/total.rs:41:9",
        "   |",
        "41 |     total",
        "   |     ^^^^^ expected `u64`, found `i64`",
    ]
    return "\n".join(lines) + "\n"


def test_the_function_that_the_goal_asks_for_stays_whole() -> None:
    text = module()
    pruned = prune(text, "how is a session opened?", "code")

    wanted = text[text.index("def open_session") : text.index("    return session_3")]
    assert wanted in pruned.text
    assert pruned.tokens_after < 0.45 * pruned.tokens_before


def test_a_reason_names_what_was_cut_and_not_what_was_asked() -> None:
    pruned = prune(module(), "how is a session opened?", "code", ratio=0.9)

    reasons = [a.cut.reason for a in pruned.annotations]
    assert any("convert_" in reason for reason in reasons)
    assert not any("session" in reason for reason in reasons)


def test_up_to_sixty_percent_every_import_and_signature_stays() -> None:
    pruned = prune(module(), "how is a session opened?", "code", ratio=0.6)

    assert "import socket" in pruned.text
    assert all(f"def convert_{i}(argument):" in pruned.text for i in range(30) if i != 17)
    assert pruned.annotations


def test_a_failure_in_a_log_stays_whole_whatever_the_goal_says() -> None:
    pruned = prune(build_log(), "how many units are there?", "logs", ratio=0.95)

    assert "error[E0308]: mismatched types" in pruned.text
    assert "expected `u64`, found `i64`" in pruned.text


def test_lines_said_again_and_again_are_told_as_such() -> None:
    pruned = prune(build_log(), "why did the build fail?", "logs", ratio=0.95)

    assert any(a.cut.reason.startswith("lignes répétées: ") for a in pruned.annotations)


def test_lines_of_equal_worth_do_not_all_stay_because_they_cannot_all_go() -> None:
    lines = [f"line {i} ok" for i in range(400)]
    lines[200:200] = ["ERROR could not open the session"]
    pruned = prune("\n".join(lines) + "\n", "why does it fail?", "logs", ratio=0.75)

    assert "ERROR could not open the session" in pruned.text
    assert pruned.original_lines - pruned.pruned_lines <= 0.35 * pruned.original_lines


@pytest.mark.parametrize("ratio", [0.7, 0.8, 0.95])
def test_lines_that_hold_what_the_goal_quotes_stay(ratio: float) -> None:
    lines = [f"line {i} of the notes speaks of nothing that anyone would want to keep" for i in range(150)]
    for at in (3, 60, 99, 140):
        lines[at] = f"please keep this at {at}"
    for goal in ('"keep this"', "where does it say `keep this`?", "garder « keep this »"):
        assert prune("\n".join(lines), goal, "docs", ratio=ratio).text.count("keep this") == 4


def test_a_quoted_word_that_the_whole_text_holds_forces_nothing() -> None:
    lines = [f"line {i} says and says again what the lines before it said" for i in range(150)]

    assert prune("\n".join(lines), 'where is "says"?', "docs", ratio=0.8).pruned_lines > 90


@pytest.mark.parametrize(("holding", "all_stay"), [(20, True), (21, False)])
def test_what_the_goal_quotes_stays_if_no_more_than_twenty_lines_hold_it(holding: int, all_stay: bool) -> None:
    lines = [f"line {i} of the notes speaks of nothing that anyone would want to keep" for i in range(200)]
    lines[::9] = [f"keep this, says line {i}" if i < 9 * holding else "" for i in range(0, 200, 9)]

    pruned = prune("\n".join(lines), '"keep this"', "docs", ratio=0.93)

    assert (pruned.text.count("keep this") == holding) is all_stay


def test_a_limit_that_lets_nothing_go_says_so() -> None:
    for pruned in (prune(module(), "session", "code", ratio=0.0), prune(module(), "session", "code", ratio=0.001)):
        assert (pruned.text, pruned.used_fallback, pruned.warnings) == (module(), True, ("constraints_unmet",))


def test_a_small_text_is_left_alone() -> None:
    assert prune("L1\nL2\nL3\nL4", "garder L1", "docs", ratio=0.75).text == "L1\nL2\nL3\nL4"


def test_limits_that_cannot_be_met_leave_the_text_whole_and_say_so() -> None:
    pruned = prune(module(), "session", "code", keep=100_000)

    assert (pruned.annotations, pruned.used_fallback, pruned.warnings) == ((), True, ("constraints_unmet",))


def test_a_text_that_ends_with_a_newline_goes_out_with_one() -> None:
    assert prune(build_log(), "why did the build fail?", "logs", ratio=0.95).text.endswith("\n")


def test_scores_from_outside_replace_our_own() -> None:
    text = module()
    lines = text.split("\n")
    scores = [1.0 if "convert_5(" in line or ", 5)" in line else 0.0 for line in lines]
    options = Options(0.9, 1, 5000, annotate_lines=False, include_markers=True)
    pruned = engine.prune(Question(text, "session", "code", options), PRUNE_ID, scores=scores)

    assert "def convert_5(argument):" in pruned.text


def test_a_check_that_raises_stops_the_work() -> None:
    def late() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        engine.prune(Question(module(), "x", "code", Options(0.7, 1, 1, False, True)), PRUNE_ID, check=late)


def test_local_scores_are_one_per_line_between_nothing_and_one() -> None:
    text = module()
    scores = engine.local_scores(Question(text, "session", "code", Options(0.7, 1, 1, False, True)))

    assert len(scores) == len(text.split("\n"))
    assert 0.0 <= min(scores) < max(scores) <= 1.0


def test_every_line_is_explained_and_the_explanation_agrees_with_the_cuts() -> None:
    text = module()
    question = Question(text, "how is a session opened?", "code", Options(0.7, 1, 1, False, True))
    cuts = [a.cut for a in engine.prune(question, PRUNE_ID).annotations]
    rows = engine.explain(question, cuts)

    gone = {n for cut in cuts for n in range(cut.start, cut.end + 1)}
    assert [row.line for row in rows] == list(range(1, len(text.split("\n")) + 1))
    assert {row.line for row in rows if not row.kept} == gone
    assert all(row.why for row in rows)


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


def test_as_many_lines_stay_as_were_asked_for_and_the_ratio_gives_way() -> None:
    pruned = prune(build_log(), "why did the build fail?", "logs", ratio=0.95, keep=600)

    gone = sum(annotation.cut.end - annotation.cut.start + 1 for annotation in pruned.annotations)
    assert 0 < gone <= pruned.original_lines - 600


def test_a_text_too_small_to_be_cut_needs_no_warning_though_nothing_may_go() -> None:
    assert prune("one\ntwo", "three", "docs", ratio=0).warnings == ()
    assert prune("one\ntwo", "three", "docs", keep=3).warnings == ("constraints_unmet",)
    assert prune(build_log(), "three", "logs", ratio=0).warnings == ("constraints_unmet",)


REPORT = [
    "Traceback (most recent call last):",
    '  File "a.py", line 3, in main',
    "    total(orders)",
    "ValueError: no orders",
]


def test_a_traceback_stays_whole_however_little_it_is_worth() -> None:
    lines = build_log().split("\n")
    lines[300:300] = REPORT
    scores = [0.0 if line in REPORT else 1.0 for line in lines]
    options = Options(0.95, 1, 5000, annotate_lines=False, include_markers=True)
    pruned = engine.prune(Question("\n".join(lines), "units", "logs", options), PRUNE_ID, scores)

    assert "\n".join(REPORT) in pruned.text
    assert pruned.annotations


@pytest.fixture
def code() -> tuple[Question, engine.Analysis, Costs]:
    """A module whose lines are worth what a die says."""
    options = Options(0.9, 1, 5000, annotate_lines=False, include_markers=True)
    question, rng = Question(module(), "x", "code", options), random.Random(1)
    lines = question.text.split("\n")
    scores = [rng.random() for _ in lines]
    analysis = engine.analyze(question, lines, scores, lambda: None, engine.load_scorers())
    return question, analysis, Costs(tokens.count_lines(lines), MARKER_TOKENS)


def test_what_was_fitted_for_the_kind_of_scores_is_used(code: tuple[Question, engine.Analysis, Costs]) -> None:
    question, analysis, costs = code
    of_use = replace(analysis, is_of_use=True)

    assert choose(analysis, costs, question, 50) == choose(analysis, costs, question, 50, fitted=FITTED["code"])
    assert choose(of_use, costs, question, 50) == choose(analysis, costs, question, 50, fitted=FITTED_TO_USE)
    assert choose(of_use, costs, question, 50) != choose(analysis, costs, question, 50)


@pytest.mark.parametrize(("share", "stay"), [(0.0, False), (0.25, True), (4.0, True)])
def test_imports_are_worth_their_share(code: tuple[Question, engine.Analysis, Costs], share: float, stay: bool) -> None:
    question, analysis, costs = code
    keep = choose(analysis, costs, question, 50, fitted=Fitted(import_share=share))

    assert [keep[row] for row in (0, 1)] == [stay, stay]
