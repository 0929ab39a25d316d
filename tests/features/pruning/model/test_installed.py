from importlib import resources

import pytest

from kimi_proxy.core.prune import Options, Question
from kimi_proxy.features.pruning import engine, explain, model, score
from kimi_proxy.features.pruning.model import Scorers
from kimi_proxy.features.pruning.signals import measure

RAW = (resources.files("kimi_proxy.features.pruning") / model.NAME).read_bytes()
TEXT = "\n".join(
    row for i in range(40) for row in (f"def work_{i}(value):", f"    other = value + {i}", "    return other", "")
)
GOAL = "what does work_17 return?"

# The same for all lines of a text: they weigh the other signals, and say nothing of a line.
CONSTANT_SIGNALS = frozenset(
    (
        *("known", "met", "text_lines", "goal_words", "system"),
        *("wants_words", "wants_imports", "wants_types", "wants_messages", "wants_tests", "wants_less", "wants_more"),
        *("wants_other_names", "wants_repair", "wants_speed", "wants_values"),
    )
)


def asked(source_type: str = "code") -> Question:
    return Question(TEXT, GOAL, source_type, Options(0.7, 1, 5000, False, True))


def flipped(at: int) -> bytes:
    return RAW[:at] + bytes([RAW[at] ^ 1]) + RAW[at + 1 :]


def test_the_package_carries_a_scorer_for_every_kind_of_text_of_less_than_a_megabyte() -> None:
    scorers = model.load_scorers()

    assert set(scorers.learned) == {"code", "docs", "logs", "used", "used output"}
    assert scorers.fault == ""
    assert len(RAW) < model.MAX_BYTES


def test_every_signal_that_it_weighs_is_told_in_words_or_known_to_be_the_same_for_all_lines() -> None:
    forests = model.load_scorers().learned
    weighed = {name for source_type in ("code", "docs", "logs") for name in forests[source_type].forest.signals}

    assert weighed <= {*explain._REASON_OF, *CONSTANT_SIGNALS}


@pytest.mark.parametrize("at", [0, 40, len(RAW) // 2, len(RAW) - 1])
def test_with_one_flipped_byte_it_is_refused_and_weights_set_by_hand_decide_and_say_so(at: int) -> None:
    damaged = model.load(flipped(at))
    pruned = engine.prune(asked(), "prn_0123456789abcdef", scorers=damaged)
    by_hand = engine.prune(asked(), "prn_0123456789abcdef", scorers=Scorers())

    assert damaged.learned == {}
    assert damaged.fault.startswith("the learned scorer was refused, weights set by hand decide: it")
    assert pruned.text == by_hand.text != TEXT
    assert (pruned.warnings, pruned.used_fallback) == (("scorer_refused",), True)
    assert by_hand.warnings == ()


def test_a_log_is_judged_by_weights_too_and_without_trees_by_them_alone() -> None:
    damaged = model.load(b"")
    pruned = engine.prune(asked("logs"), "prn_0123456789abcdef", scorers=damaged)

    assert pruned.text == engine.prune(asked("logs"), "prn_0123456789abcdef", scorers=Scorers()).text
    assert pruned.warnings == ("scorer_refused",)


def test_scores_from_outside_need_no_scorer() -> None:
    damaged = model.load(b"")
    scores = [0.0] * len(TEXT.split("\n"))
    assert engine.prune(asked(), "prn_0123456789abcdef", scores, scorers=damaged).warnings == ()


def test_a_line_is_not_explained_by_what_it_does_not_have() -> None:
    lines = TEXT.split("\n")
    signals = measure(lines, asked().goal, "code", engine.outline(lines, "code"), lambda: None)
    shares = score.contributions("code", signals, model.load_scorers())

    assert all((added[signals[name] == 0] == 0).all() for name, added in shares.items())
    assert any((added != 0).any() for added in shares.values())


def test_lines_that_answer_are_explained_by_the_goal() -> None:
    cuts = [a.cut for a in engine.prune(asked(), "prn_0123456789abcdef").annotations]
    best = max(engine.explain(asked(), cuts), key=lambda row: row.score)

    assert best.kept and best.line in range(69, 73)
    assert "goal" in best.why
