"""Lines of an agent's tool are chosen by how likely the agent goes on to use them."""

from dataclasses import replace

import numpy as np

from kimi_proxy.core.prune import CallContext, Options, Question
from kimi_proxy.features.pruning import engine, score
from kimi_proxy.features.pruning.call_signals import output_signals
from kimi_proxy.features.pruning.model import Scorers, installed

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
    fresh = engine.analyze(ASKED, lines, None, lambda: None, installed()).scores
    seen = replace(ASKED, context=replace(CONTEXT, seen_rows=tuple(range(160))))
    known = engine.analyze(seen, lines, None, lambda: None, installed()).scores

    assert fresh[:160].mean() > known[:160].mean()
    assert known[:160].mean() < known[160:].mean()


def test_without_what_was_learned_of_use_the_goal_decides() -> None:
    learned = installed().learned
    others = Scorers({name: learned[name] for name in ("code", "docs", "logs")})

    assert kept(ASKED, others) == kept(replace(ASKED, context=None))
    assert kept(ASKED, Scorers()) == kept(replace(ASKED, context=None), Scorers())


def test_logs_and_pages_have_likelihoods_too() -> None:
    for source_type in ("logs", "docs"):
        analysis = engine.analyze(
            replace(ASKED, source_type=source_type), TEXT.split("\n"), None, lambda: None, installed()
        )
        assert analysis.is_of_use
        assert np.isfinite(analysis.scores).all()


def test_an_output_is_more_likely_used_if_the_file_was_not_seen_before() -> None:
    lines = TEXT.split("\n")
    fresh = score.likely_used(output_signals(lines, CONTEXT), installed())
    seen = score.likely_used(output_signals(lines, replace(CONTEXT, seen_rows=tuple(range(300)))), installed())

    assert fresh is not None and seen is not None
    assert 0 < seen < fresh < 1
    assert score.likely_used(output_signals(lines, CONTEXT), Scorers()) is None
