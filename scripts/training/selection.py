"""What each constant of the selection gains or loses, at the same number of tokens, markers included."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from figures import told

from evaluation import judging
from evaluation.cases import Case
from evaluation.judging import BUDGETS, between, recall
from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.prune import Question
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.engine import MARKER_TOKENS, Analysis, Fitted
from kimi_proxy.features.pruning.model import Scorers
from kimi_proxy.features.pruning.select import Costs

TRIED = {
    "blank_share": (0.02, 0.1, 0.3, 0.6),
    "toll_share": (0.5, 0.7, 1.0, 1.4),
    "import_share": (0.1, 0.25, 0.5, 1.0),
}


@dataclass(frozen=True, slots=True)
class Read:
    """A case that has been read and scored, so that only the choice is left."""

    case: Case
    analysis: Analysis
    costs: Costs


def tell(cases: Sequence[Case], scorers: Scorers) -> None:
    read = [_read(case, scorers) for case in cases]
    print(f"\nRecall at {', '.join(f'{b:.0%}' for b in BUDGETS)} of the tokens, markers included:\n")
    print("| constant | value | recall |\n|---|---|---|")
    for field in fields(Fitted):
        for value in TRIED[field.name]:
            chosen = " (chosen)" if value == field.default else ""
            tried = replace(Fitted(), **{field.name: value})
            print(f"| {field.name} | {value}{chosen} | {_told(read, tried)} |", flush=True)


def _read(case: Case, scorers: Scorers) -> Read:
    lines = text_lines.split(case.text)
    analysis = engine.analyze(judging.question(case, 0.7), lines, None, lambda: None, scorers)
    return Read(case, analysis, Costs(tokens.count_lines(lines), MARKER_TOKENS))


def _told(read: Iterable[Read], fitted: Fitted) -> str:
    reached = [_reached(one, fitted) for one in read]
    return told(statistics.fmean(column) for column in zip(*reached, strict=True))


def _reached(read: Read, fitted: Fitted) -> list[float]:
    points = [_point(read, judging.question(read.case, ratio), fitted) for ratio in judging.RATIOS]
    return [between(points, budget) for budget in BUDGETS]


def _point(read: Read, question: Question, fitted: Fitted) -> tuple[float, float]:
    """Which share of the tokens stays, and which share of the lines that answer."""
    count = len(read.analysis.lines)
    floor = count - math.floor(count * question.options.max_prune_ratio)
    keep = engine.choose(read.analysis, read.costs, question, floor, fitted=fitted)
    return min(1.0, read.costs.of(keep) / sum(read.costs.lines)), recall(read.case, keep)
