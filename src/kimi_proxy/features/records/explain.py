"""Why each line of a text of records stayed or went, in words a person can check."""

from collections.abc import Callable, Sequence

from kimi_proxy.core.markers import NO_PRUNE_BEGIN
from kimi_proxy.core.prune import Cut, Question
from kimi_proxy.features.pruning.explain import LineWhy
from kimi_proxy.features.records.choose import ODD_WEIGHT, WORTH_KEEPING, JudgedUnit, Ranking
from kimi_proxy.features.records.prune import is_of_records, row_starts
from kimi_proxy.features.records.read import read
from kimi_proxy.features.records.tree import part_starts

FRAME = "an example of the records, or what stands around those that stay"


def explain_records(question: Question, cuts: Sequence[Cut], check: Callable[[], None]) -> list[LineWhy] | None:
    """Return a row for each line, or part of a text of one line; None if it was not cut by its records."""
    text = question.text
    if NO_PRUNE_BEGIN in text or not cuts or not all(map(is_of_records, cuts)):
        return None
    root = read(text)
    if root is None:
        return None
    budget = max(1, int((1 - question.options.max_prune_ratio) * len(text)))
    judged = list(Ranking(text, root, question.goal, budget, check).judge())
    starts = row_starts(text, lambda: part_starts(root))
    reason_of = {row: cut.reason for cut in cuts for row in range(cut.start, cut.end + 1)}
    rows: list[LineWhy] = []
    at = 0
    for row, (start, end) in enumerate(zip(starts, (*starts[1:], len(text) + 1), strict=True), 1):
        while at < len(judged) and judged[at].end <= start:
            at += 1
        inside = at
        found: list[JudgedUnit] = []
        while inside < len(judged) and judged[inside].start < end:
            found.append(judged[inside])
            inside += 1
        rows.append(_why(row, found, reason_of.get(row)))
    return rows


def _why(row: int, units: Sequence[JudgedUnit], cut_because: str | None) -> LineWhy:
    best = max(units, key=_worth, default=None)
    speaks = _speaks(best) if best is not None else ""
    score = round(min(1.0, _worth(best)), 3) if best is not None else 0.0
    if cut_because is None:
        return LineWhy(row, True, score, speaks or FRAME)
    outweighed = f"outweighed: {speaks}" if speaks else "like the records beside it"
    return LineWhy(row, False, score, f"cut, {cut_because}; {outweighed}")


def _worth(unit: JudgedUnit) -> float:
    return unit.goal + ODD_WEIGHT * unit.odd


def _speaks(unit: JudgedUnit) -> str:
    """Return the reasons to keep a unit; empty if there are none."""
    if _worth(unit) < WORTH_KEEPING:
        return ""
    failed = "reports a failure" if unit.failed else "differs from the records beside it"
    said = ((unit.goal, "matches the goal"), (ODD_WEIGHT * unit.odd, failed))
    return ", ".join(words for weight, words in sorted(said, reverse=True) if weight >= WORTH_KEEPING / 2)
