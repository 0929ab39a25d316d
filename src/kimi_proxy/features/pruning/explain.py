"""Why each line stayed or went, in words a person can check."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kimi_proxy.core.prune import Cut
from kimi_proxy.features.pruning.columns import Floats

STRONGEST = 2
FAINT = 0.05

_PROTECTED = {
    "import": "import",
    "signature": "signature of a definition",
    "signature+": "signature of a definition",
    "header": "header of the file",
    "heading": "heading",
    "error": "reports an error",
    "context": "next to an error",
    "traceback": "part of a traceback",
    "failure": "part of a failure report",
    "summary": "summary of a run",
    "no_prune": "inside a NO_PRUNE block",
    "table": "part of a table",
    "fence": "part of a code block",
}
_SIGNALS = {
    "line": "has the goal's words",
    "line_coverage": "has many of the goal's words",
    "near": "next to lines with the goal's words",
    "exact": "near a string that the goal names exactly",
    "above": "follows a line with the goal's words",
    "below": "comes before a line with the goal's words",
    "window2": "among lines with the goal's words",
    "window5": "among lines with the goal's words",
    "window2_coverage": "among lines with many of the goal's words",
    "window5_coverage": "among lines with many of the goal's words",
    "window12_coverage": "in a stretch that speaks of the goal",
    "window12": "in a stretch that speaks of the goal",
    "stretch": "in a stretch that speaks of the goal",
    "stretch_coverage": "in a stretch that speaks of the goal",
    "block": "its block speaks of the goal",
    "block_coverage": "its block has many of the goal's words",
    "block_exact": "its block has a string that the goal names exactly",
    "block_best": "its block has a line that speaks of the goal",
    "header": "its header has the goal's words",
    "parent": "the block around it speaks of the goal",
    "parent_coverage": "the block around it speaks of the goal",
    "trouble": "reports trouble or stands next to it",
    "alarm": "reports trouble",
    "rare": "of a kind that is seldom in this log",
    "late": "near the end of the run",
    "to_best": "close to the best lines",
    "to_hit": "close to lines with the goal's words",
}


@dataclass(frozen=True, slots=True)
class LineWhy:
    """A line, 1-based, its score between 0 and 1, and the reasons for its fate."""

    line: int
    kept: bool
    score: float
    why: str


def explain(
    cuts: Sequence[Cut], protected: Sequence[str], scores: Floats, shares: Mapping[str, Floats]
) -> list[LineWhy]:
    """One row per line; `shares` are the parts that each signal has in the score."""
    reason_of = {n: cut.reason for cut in cuts for n in range(cut.start, cut.end + 1)}
    names = list(shares)
    table = np.array([shares[name] for name in names]) if names else np.zeros((0, len(protected)))
    rows: list[LineWhy] = []
    for i, why in enumerate(protected):
        told = _words(names, table[:, i])
        if i + 1 in reason_of:
            text = f"cut, {reason_of[i + 1]}" + (f"; outweighed: {told}" if told else "; nothing speaks of the goal")
        else:
            kept_for = [_PROTECTED.get(why, why)] if why else []
            kept_for += [told] if told else []
            text = "; ".join(kept_for) or "fills a gap that its marker would cost more than"
        rows.append(LineWhy(i + 1, i + 1 not in reason_of, round(float(scores[i]), 3), text))
    return rows


def _words(names: Sequence[str], parts: Floats) -> str:
    strongest = sorted(range(len(names)), key=lambda k: -parts[k])[:STRONGEST]
    told = [_SIGNALS[names[k]] for k in strongest if parts[k] > FAINT and names[k] in _SIGNALS]
    return ", ".join(dict.fromkeys(told))
