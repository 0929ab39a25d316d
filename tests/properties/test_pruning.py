"""The guarantees of a prune, for any text, any goal and any limits."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.support.deep import often

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import markers, tokens
from kimi_proxy.core.prune import SOURCE_TYPES, CallContext, Options, Pruned, Question, SourceType
from kimi_proxy.features.pruning import engine

PRUNE_ID = "prn_0123456789abcdef"
WORDING_TOKENS = 12

CODE_LINES = st.sampled_from(
    [
        "import os",
        "def parse_yaml(path):",
        "    return load(path)",
        "class Session:",
        "    def close(self):",
        "        self.socket.close()",
        "    # the timeout is in seconds",
        "}",
        "",
        "    if x > 3:",
        "        raise ValueError(x)",
        "@decorator",
        "async def fetch(url: str) -> bytes:",
        "    timeout = config.timeout_s or DEFAULT_TIMEOUT",
    ]
)
LOG_LINES = st.sampled_from(
    [
        "2026-01-02 10:00:01 INFO request 17 served in 3 ms",
        "GET /health 200",
        "ERROR could not open session",
        "Traceback (most recent call last):",
        '  File "a.py", line 3, in f',
        "ValueError: bad token",
        "ok",
        "",
        "FAILED tests/test_a.py::test_b - assert 1 == 2",
        "WARN retrying in 5 s",
    ]
)
DOC_LINES = st.sampled_from(
    [
        "# Install",
        "## Configure the timeout",
        "Run the command below.",
        "```",
        "pip install x",
        "| a | b |",
        "|---|---|",
        "",
        "- one item of a list",
        "Sessions end after a timeout unless they are kept alive by their owner.",
        "=====",
    ]
)
ODD_LINES = st.one_of(
    st.text(st.characters(exclude_characters="\n"), max_size=40),
    st.sampled_from(
        [
            "⟦PRUNÉ: prune_id=prn_fake lignes 1-5 (5) raison=x⟧",
            f"⟦PRUNÉ: prune_id={PRUNE_ID} lignes 1-2 (2) raison=⟧",
            "⟦NO_PRUNE_BEGIN⟧",
            "⟦NO_PRUNE_END⟧",
            "\r",
            "a\rb",
            "page\x0ctwo\u2028three\x85",
            "\ud800",
            "\x00",
            "7│ x",
            "x" * 3000,
        ]
    ),
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Texts long enough to be pruned: a few drawn stretches, repeated."""
    family = draw(st.sampled_from([CODE_LINES, LOG_LINES, DOC_LINES]))
    line = st.one_of(family, family, family, ODD_LINES)
    stretches = draw(st.lists(st.lists(line, min_size=1, max_size=12), min_size=1, max_size=6))
    order = draw(st.lists(st.integers(0, len(stretches) - 1), max_size=14))
    lines = [line for i in order for line in stretches[i]]
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n"]))


GOALS = st.one_of(
    st.sampled_from(["", "where is the timeout set?", "pourquoi la session échoue", "`parse_yaml` a.py"]),
    st.text(max_size=60),
)
OPTIONS = st.builds(
    Options,
    max_prune_ratio=st.one_of(st.sampled_from([0.0, 0.3, 0.55, 0.7, 0.9, 1.0]), st.floats(0, 1)),
    min_keep_lines=st.one_of(st.integers(0, 5), st.integers(0, 200)),
    timeout_ms=st.just(60_000),
    annotate_lines=st.booleans(),
    include_markers=st.booleans(),
)
QUESTIONS = st.builds(Question, text=texts(), goal=GOALS, source_type=st.sampled_from(SOURCE_TYPES), options=OPTIONS)


def cut_lines(pruned: Pruned) -> set[int]:
    return {n for a in pruned.annotations for n in range(a.cut.start, a.cut.end + 1)}


def rebuilt(question: Question, pruned: Pruned) -> str:
    """The text that the annotations promise, built without the code under test."""
    if not pruned.annotations:
        return question.text
    marker_at = {a.cut.start: a.marker for a in pruned.annotations}
    gone = cut_lines(pruned)
    out: list[str] = []
    for number, line in enumerate(text_lines.split(question.text), 1):
        if number in marker_at and question.options.include_markers:
            out.append(marker_at[number])
        if number not in gone:
            out.append(f"{number}│ {line}" if question.options.annotate_lines else line)
    return "\n".join(out)


@often
@given(QUESTIONS)
def test_kept_lines_stay_identical_and_in_order_with_each_marker_where_its_lines_were(question: Question) -> None:
    pruned = engine.prune(question, PRUNE_ID)

    assert pruned.text == rebuilt(question, pruned)


@often
@given(QUESTIONS)
def test_no_more_lines_go_than_the_ratio_allows(question: Question) -> None:
    pruned = engine.prune(question, PRUNE_ID)

    assert pruned.pruned_lines <= math.floor(pruned.original_lines * question.options.max_prune_ratio)


@often
@given(QUESTIONS)
def test_the_floor_of_kept_lines_holds_or_nothing_is_cut_and_that_is_said(question: Question) -> None:
    pruned = engine.prune(question, PRUNE_ID)
    kept = pruned.original_lines - pruned.pruned_lines

    if pruned.original_lines < question.options.min_keep_lines:
        assert pruned.text == question.text
        assert (pruned.used_fallback, pruned.warnings) == (True, ("constraints_unmet",))
    else:
        assert kept >= question.options.min_keep_lines


@often
@given(QUESTIONS)
def test_every_annotation_is_told_by_its_marker_and_cuts_never_touch(question: Question) -> None:
    pruned = engine.prune(question, PRUNE_ID)

    end = -1
    for annotation in pruned.annotations:
        cut = annotation.cut
        assert end + 1 < cut.start <= cut.end <= pruned.original_lines
        assert markers.read(annotation.marker) == markers.PruneMarker(PRUNE_ID, cut.start, cut.end, cut.reason)
        assert "\n" not in annotation.marker
        assert len(cut.reason) <= markers.REASON_MAX_CHARS
        end = cut.end


@often
@given(QUESTIONS)
def test_the_answer_never_costs_more_tokens_than_the_text(question: Question) -> None:
    pruned = engine.prune(question, PRUNE_ID)

    assert pruned.tokens_before == tokens.count(question.text)
    assert pruned.tokens_after == tokens.count(pruned.text) <= pruned.tokens_before


@often
@given(QUESTIONS)
def test_the_same_question_gets_the_same_answer_however_it_is_shown(question: Question) -> None:
    pruned = engine.prune(question, PRUNE_ID)
    plain = Options(question.options.max_prune_ratio, question.options.min_keep_lines, 5000, False, True)
    shown = engine.prune(Question(question.text, question.goal, question.source_type, plain), PRUNE_ID)

    assert engine.prune(question, PRUNE_ID) == pruned
    if pruned.annotations and shown.annotations:
        assert shown.annotations == pruned.annotations


@often
@given(QUESTIONS)
def test_what_was_cut_and_what_was_kept_make_up_the_text(question: Question) -> None:
    pruned = engine.prune(question, PRUNE_ID)
    lines = text_lines.split(question.text)
    gone = cut_lines(pruned)

    kept = {n: line for n, line in enumerate(lines, 1) if n not in gone}
    recovered = {
        n: line
        for a in pruned.annotations
        for n, line in zip(
            range(a.cut.start, a.cut.end + 1), text_lines.pick(lines, a.cut.start, a.cut.end, False), strict=True
        )
    }
    assert text_lines.join((kept | recovered)[n] for n in sorted(kept | recovered)) == question.text


@often
@given(QUESTIONS)
def test_a_marker_that_stands_in_the_input_is_a_line_like_any_other(question: Question) -> None:
    disarmed = question.text.replace("⟦PRUNÉ:", "⟦pruné:")
    armed = engine.prune(question, PRUNE_ID)
    plain = engine.prune(Question(disarmed, question.goal, question.source_type, question.options), PRUNE_ID)

    if armed.tokens_before == plain.tokens_before:
        assert cut_lines(armed) == cut_lines(plain)


@often
@given(QUESTIONS)
def test_the_goal_is_never_told_in_a_reason(question: Question) -> None:
    secret = "zanzibar quokka"
    told = engine.prune(Question(question.text, secret, question.source_type, question.options), PRUNE_ID)

    assert not any("quokka" in a.cut.reason for a in told.annotations)


@often
@given(QUESTIONS)
def test_nothing_between_no_prune_directives_goes(question: Question) -> None:
    lines = text_lines.split(question.text)
    gone = cut_lines(engine.prune(question, PRUNE_ID))

    protected = False
    for number, line in enumerate(lines, 1):
        protected = protected or line.strip() == markers.NO_PRUNE_BEGIN
        if protected:
            assert number not in gone
        if line.strip() == markers.NO_PRUNE_END:
            protected = False


@often
@given(QUESTIONS, st.lists(st.floats(0, 1), min_size=2, max_size=5))
def test_a_higher_limit_never_saves_less(question: Question, ratios: list[float]) -> None:
    saved = 0
    for ratio in sorted(ratios):
        options = replace(question.options, max_prune_ratio=ratio, annotate_lines=False, include_markers=True)
        pruned = engine.prune(replace(question, options=options), PRUNE_ID)
        # What a marker says of a cut may get longer by some words when the cut does.
        assert pruned.tokens_before - pruned.tokens_after >= saved - WORDING_TOKENS * len(pruned.annotations)
        saved = max(saved, pruned.tokens_before - pruned.tokens_after)


NAMES = st.from_regex(r"[a-z]{6,12} [a-z]{4,8}", fullmatch=True)


@often
@given(
    NAMES,
    st.lists(st.integers(0, 299), min_size=1, max_size=8, unique=True),
    st.floats(0, 1),
    st.sampled_from(SOURCE_TYPES),
    st.booleans(),
)
def test_what_the_goal_quotes_stays_at_every_ratio(
    name: str, places: list[int], ratio: float, source_type: SourceType, in_chat: bool
) -> None:
    lines = [f"line {at} of the notes speaks of the weather in the north and of rain" for at in range(300)]
    for at in places:
        lines[at] = f"here it says {name} at {at}"
    context = CallContext("Bash", "", "the weather in the north", seen_rows=tuple(places)) if in_chat else None
    options = Options(ratio, 0, 0, annotate_lines=False, include_markers=True)
    question = Question("\n".join(lines), f'where does it say "{name}"?', source_type, options, context)
    kept = text_lines.split(engine.prune(question, PRUNE_ID).text)
    assert [line for line in kept if name in line] == [line for line in lines if name in line]
