"""Lines of an agent's tool are chosen by how likely the agent goes on to use them."""

from dataclasses import replace

import numpy as np

from kimi_proxy.core.prune import CallContext, Options, Question
from kimi_proxy.features.pruning import engine, score
from kimi_proxy.features.pruning.call_signals import output_signals
from kimi_proxy.features.pruning.model import Scorers, load_scorers

TEXT = "\n".join(
    row
    for i in range(80)
    for row in (
        f"def work_{i}(value: int) -> int:",
        f"    other = transform_{i}(value, limit={i})",
        "    return other",
        "",
    )
)
CONTEXT = CallContext(
    "Read", "src/work.py", "make it faster", "work_17 calls transform_17 too often.", '{"path":"src/work.py"}'
)
ASKED = Question(TEXT, "make it faster", "code", Options(0.7, 1, 5000, False, True), CONTEXT)
PRUNE_ID = "prn_0123456789abcdef"


def kept(question: Question, scorers: Scorers | None = None) -> str:
    return engine.prune(question, PRUNE_ID, scorers=scorers).text


def test_what_the_agent_speaks_of_stays() -> None:
    assert "transform_17(" in kept(ASKED)
    assert "transform_17(" not in kept(replace(ASKED, context=None))


def test_rows_that_the_conversation_shows_already_go_first() -> None:
    lines = TEXT.split("\n")
    fresh = engine.analyze(ASKED, lines, None, lambda: None, load_scorers()).scores
    seen = replace(ASKED, context=replace(CONTEXT, seen_rows=tuple(range(160))))
    known = engine.analyze(seen, lines, None, lambda: None, load_scorers()).scores

    assert fresh[:160].mean() > known[:160].mean()
    assert known[:160].mean() < known[160:].mean()


def test_without_what_was_learned_of_use_the_goal_decides() -> None:
    learned = load_scorers().learned
    others = Scorers({name: learned[name] for name in ("code", "docs", "logs")})

    assert kept(ASKED, others) == kept(replace(ASKED, context=None))
    assert kept(ASKED, Scorers()) == kept(replace(ASKED, context=None), Scorers())


def test_logs_and_pages_have_likelihoods_too() -> None:
    for source_type in ("logs", "docs"):
        analysis = engine.analyze(
            replace(ASKED, source_type=source_type), TEXT.split("\n"), None, lambda: None, load_scorers()
        )
        assert analysis.is_of_use
        assert np.isfinite(analysis.scores).all()


def test_an_output_is_more_likely_used_if_the_file_was_not_seen_before() -> None:
    lines = TEXT.split("\n")
    fresh = score.likely_used(output_signals(lines, CONTEXT), load_scorers())
    seen = score.likely_used(output_signals(lines, replace(CONTEXT, seen_rows=tuple(range(300)))), load_scorers())

    assert fresh is not None and seen is not None
    assert 0 < seen < fresh < 1
    assert score.likely_used(output_signals(lines, CONTEXT), Scorers()) is None


def test_an_explanation_weighs_by_what_the_agent_was_doing_too() -> None:
    pruned = engine.prune(ASKED, PRUNE_ID)
    cuts = [annotation.cut for annotation in pruned.annotations]
    row = TEXT.split("\n").index("    other = transform_17(value, limit=17)")
    in_chat, alone = (engine.explain(question, cuts)[row] for question in (ASKED, replace(ASKED, context=None)))

    assert in_chat.kept and alone.kept
    assert in_chat.score > alone.score
    assert "its block's name has the goal's words" in in_chat.why  # what the agent said is part of what it is after
    assert "its block's name has the goal's words" not in alone.why
    scores = engine.analyze(ASKED, TEXT.split("\n"), None, lambda: None, load_scorers()).scores
    assert in_chat.score == round(float(scores[row]), 3)


LOG = "\n".join(
    row
    for at in range(300)
    for row in (
        f"2026-01-02 10:00:{at % 60:02} INFO worker {at % 7} took job {at}",
        f"2026-01-02 10:00:{at % 60:02} INFO quota of tenant {at % 11} is {at * 3} MB" if at == 150 else "ok",
    )
)


def test_a_question_is_answered_though_agents_seldom_use_such_lines() -> None:
    """What the agent speaks of is elsewhere, and no agent has quoted such a line."""
    context = CallContext("Bash", "", "which quota has a tenant?", "worker 3 took a job", '{"command":"cat app.log"}')
    asked = Question(LOG, "which quota has a tenant?", "logs", Options(0.9, 1, 5000, False, True), context)

    assert "quota of tenant" in kept(asked)


def test_a_line_that_the_user_names_stays_whatever_agents_use() -> None:
    named = replace(
        ASKED, goal="does anything depend on transform_63?", options=replace(ASKED.options, max_prune_ratio=0.97)
    )
    seen = tuple(row for row in range(320) if row != 3)

    assert "transform_63(" in kept(replace(named, context=replace(CONTEXT, seen_rows=seen)))
