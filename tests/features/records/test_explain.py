"""A record is explained by what the choice was made by, and a gap says how many failures it holds."""

import json
import re

from kimi_proxy.core.prune import Options, Origin, Question
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.records.prune import FRAME
from kimi_proxy.features.sanitizer.shorten import Task, shorten

PRUNE_ID = "prn_0123456789abcdef"
GOAL = "Which order was shipped to Lisbon?"


def orders(failed_every: int = 1000, count: int = 300) -> str:
    """Pretty JSON, five lines for an order; one has failed in so many."""
    rows = [
        {
            "id": n,
            "city": "Lisbon" if n == 200 else "Porto",
            "state": "ok" if n % failed_every else "failed: card declined",
        }
        for n in range(count)
    ]
    return json.dumps(rows, indent=1)


def ask(text: str, ratio: float = 0.9) -> Question:
    return Question(text, GOAL, "code", Options(ratio, 1, 1000, annotate_lines=False, include_markers=True))


def row_of(text: str, part: str) -> int:
    return next(row for row, line in enumerate(text.split("\n"), 1) if part in line)


def test_a_record_is_explained_by_what_it_matches_and_how_it_differs():
    question = ask(orders())
    cuts = [one.cut for one in engine.prune(question, PRUNE_ID).annotations]
    why = {one.line: one for one in engine.explain(question, cuts)}

    matched, odd, usual = (why[row_of(question.text, part)] for part in ('"Lisbon"', "declined", '"id": 120,'))
    assert matched.kept and "matches the goal" in matched.why
    assert odd.kept and "reports a failure" in odd.why
    assert not usual.kept
    assert re.fullmatch(r"cut, .*semblables; like the records next to it", usual.why)
    assert why[1].why == FRAME
    assert len(why) == question.text.count("\n") + 1


def test_a_gap_among_records_says_how_many_failures_it_holds():
    text = orders(failed_every=7)
    pruned = engine.prune(ask(text, 0.95), PRUNE_ID)
    gaps = [text.split("\n")[one.cut.start - 1 : one.cut.end] for one in pruned.annotations]
    held = [sum("declined" in line for line in gap) for gap in gaps]
    said = [re.match(r"dont (\d+) erreur", one.cut.reason) for one in pruned.annotations]

    assert sum(held) > 0
    assert [int(found[1]) if found else 0 for found in said] == held


def test_a_result_of_a_chat_that_was_cut_by_records_is_explained_by_them():
    text = orders()
    task = Task(text, GOAL, Origin("query"), is_unread=True, threshold_tokens=1000, preview_chars=200, seed=b"seed")
    (hidden,) = shorten(task).hidden

    assert hidden.source_type is not None
    question = Question(text, GOAL, hidden.source_type, Options(hidden.max_prune_ratio, 0, 0, False, True))
    why = {one.line: one for one in engine.explain(question, hidden.cuts)}
    assert "matches the goal" in why[row_of(text, '"Lisbon"')].why
    assert {one.line for one in why.values() if not one.kept} == {
        row for cut in hidden.cuts for row in range(cut.start, cut.end + 1)
    }
