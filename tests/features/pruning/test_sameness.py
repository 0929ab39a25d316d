"""The same question gets the same answer on every platform and every version of Python."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from tests.support.deep import deep

from kimi_proxy.core.prune import CallContext, Options, Question, SourceType
from kimi_proxy.features.pruning import engine

HERE = Path(__file__).parent / "bilingual"
GOALS = json.loads((HERE / "goals.json").read_text("utf-8"))
# They change when the engine, its model or the texts do: then engine.VERSION changes too.
CUTS = "e8a987d08fca32a24f0aa40479c3cfcf5ef4585500a8adc1e804b5df6696c4f5"
SCORES = "92efc7258830b83cda2d08a520429cc9c02e6af42604f589da121713f4a44e09"
USED = "f9694a1f165f06c7ea24e8e075ef09573d2d0c22f5a1f1769603f83ffe561247"


def questions() -> list[Question]:
    found = []
    for case in GOALS:
        source_type: SourceType = "logs" if ".log" in case["text"] else "code"
        text = (HERE / case["text"]).read_text("utf-8")
        found += [Question(text, case["en"], source_type, Options(r, 1, 5000, False, True)) for r in (0.5, 0.75, 0.9)]
    page = Path(__file__).parents[3] / "LICENSE"
    return [*found, Question(page.read_text("utf-8"), "patent grant", "docs", Options(0.8, 1, 5000, False, True))]


def test_the_same_lines_are_cut_everywhere() -> None:
    digest = sha256()
    for question in questions():
        digest.update(engine.prune(question, "prn_0123456789abcdef").text.encode())

    assert digest.hexdigest() == CUTS


@deep("it starts an interpreter for each hash seed")
def test_lines_are_scored_the_same_everywhere() -> None:
    digest = sha256()
    for question in questions():
        if question.source_type != "logs":
            digest.update(repr(engine.local_scores(question)).encode())

    assert digest.hexdigest() == SCORES


@deep("it starts an interpreter for each hash seed")
def test_what_agents_tools_print_is_cut_the_same_everywhere() -> None:
    digest = sha256()
    for at, question in enumerate(questions()):
        seen = tuple(range(at % 5, 200, 5))
        context = CallContext("Read", "a.py", question.goal, "I look at the lines.", "{}", "", at, seen_rows=seen)
        digest.update(engine.prune(replace(question, context=context), "prn_0123456789abcdef").text.encode())

    assert digest.hexdigest() == USED
