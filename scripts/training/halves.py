"""How well logs of tools are judged by what was learned from others: each half of the tools by the other half."""

import random
from collections.abc import Sequence

import figures
import fitting
from lessons import of_logs
from logbook import HALVES, Entry

from evaluation.cases import Case
from evaluation.judging import Judged
from kimi_proxy.features.pruning import model


def tell(entries: Sequence[Entry], most: int, seed: int) -> None:
    """Print the figures of each tool, on at most that many of its cases."""
    judged: list[Judged] = []
    for half in HALVES:
        others = [entry for entry in entries if not entry.tools & half]
        scorers = model.load(model.write(fitting.fit(of_logs(others, seed), seed)))
        judged += figures.judged(_sampled([one for one in entries if one.tools <= half], most, seed), scorers)
    figures.tell(judged)


def _sampled(entries: Sequence[Entry], most: int, seed: int) -> list[Case]:
    """Of each tool the same number of cases that have an answer, or all it has."""
    by_tool: dict[str, list[Case]] = {}
    for entry in entries:
        if entry.answered:
            by_tool.setdefault(entry.tool, []).append(entry.case)
    rng = random.Random(seed)
    return [case for cases in by_tool.values() for case in rng.sample(cases, min(most, len(cases)))]
