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
    "likeness": "reads like an import or a definition",
    "header": "header of the file",
    "heading": "heading",
    "error": "reports an error",
    "context": "next to an error",
    "traceback": "part of a traceback",
    "failure": "part of a failure report",
    "diagnostic": "names a place in a file and what is wrong there",
    "summary": "summary of a run",
    "no_prune": "inside a NO_PRUNE block",
    "table": "part of a table",
    "fence": "part of a code block",
}
_TELLS: Mapping[str, tuple[str, ...]] = {
    "has the goal's words": ("line", "rank_line"),
    "has many of the goal's words": ("line_coverage",),
    "has the rarest of the goal's words": ("rarest",),
    "near the rarest of the goal's words": ("rarest_near",),
    "has a string that the goal names exactly": ("exact_here",),
    "near a string that the goal names exactly": ("exact",),
    "next to lines with the goal's words": ("near", "rank_near"),
    "among lines with the goal's words": ("window2", "window5", "rank_window5"),
    "among lines with many of the goal's words": ("window2_coverage", "window5_coverage"),
    "in a stretch that speaks of the goal": (
        *("window12", "window12_coverage", "window25", "window25_coverage", "rank_window12"),
        *("stretch", "stretch_coverage", "rank_stretch"),
    ),
    "its block speaks of the goal": ("block", "block_mean", "block_rank"),
    "its block has many of the goal's words": ("block_coverage",),
    "its block has a string that the goal names exactly": ("block_exact",),
    "its block has a line that speaks of the goal": ("block_best",),
    "its block has words akin to the goal's": ("block_kin",),
    "its header has the goal's words": ("header",),
    "its block is named by the goal's words": ("name", "name_precision"),
    "the block around it speaks of the goal": ("parent", "parent_coverage", "parent_precision"),
    "near words akin to the goal's": ("kin", "kin3", "kin9"),
    "shares words with the lines that speak of the goal": (
        "echo",
        "echo_near",
        "echo_wide",
        "echo_block",
        "rank_echo_near",
    ),
    "reports trouble or stands next to it": ("trouble", "is_context", "is_failure", "is_traceback"),
    "reports trouble": ("alarm", "is_error", "is_diagnostic"),
    "of a kind that is seldom in this log": ("rare",),
    "near the end of the run": ("late",),
    "close to the best lines": ("to_best",),
    "close to lines with the goal's words": ("to_hit",),
    "looks like lines that answer such goals": (
        *("indent", "deeper", "length", "wordless", "comment", "calls", "digits", "repeats"),
        *("is_import", "is_signature", "is_heading", "in_fence"),
    ),
    "stands where answers often stand": (
        *("place", "block_place", "block_since", "block_until", "block_lines", "in_function", "in_class"),
    ),
}
_SIGNALS = {signal: words for words, signals in _TELLS.items() for signal in signals}
# The same for all lines of a text: they weigh the other signals, and say nothing of a line.
SILENT = frozenset(
    (
        *("known", "met", "text_lines", "goal_words", "system"),
        *("wants_words", "wants_imports", "wants_types", "wants_messages", "wants_tests", "wants_less", "wants_more"),
        *("wants_other_names", "wants_repair", "wants_speed", "wants_values"),
    )
)


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
    names, table = _told(shares, len(protected))
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


def _told(shares: Mapping[str, Floats], line_count: int) -> tuple[list[str], Floats]:
    """What each reason adds to each line: signals that are told in the same words are one."""
    told: dict[str, Floats] = {}
    for signal, added in shares.items():
        if signal in _SIGNALS:
            told[_SIGNALS[signal]] = told.get(_SIGNALS[signal], 0.0) + added
    return list(told), np.array(list(told.values())) if told else np.zeros((0, line_count))


def _words(reasons: Sequence[str], parts: Floats) -> str:
    strongest = sorted(range(len(reasons)), key=lambda k: -parts[k])[:STRONGEST]
    return ", ".join(reasons[k] for k in strongest if parts[k] > FAINT)
