"""How much each line is worth to a reader with a goal: a weighted sum of signals, set by hand.

A learned scorer replaces `worth` and nothing else: it reads the same signals.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from kimi_proxy.core.prune import SourceType
from kimi_proxy.features.pruning.columns import Floats, fading, scaled
from kimi_proxy.features.pruning.signals import Signals

CODE: Mapping[str, float] = {
    "line": 0.6,
    "near": 0.2,
    "exact": 0.2,
    "window2": 0.2,
    "window2_coverage": 0.4,
    "window5": 0.3,
    "window5_coverage": 0.2,
    "window12": 0.5,
    "window12_coverage": 0.4,
    "stretch": 0.3,
    "stretch_coverage": 0.2,
    "block": 0.2,
    "block_coverage": 0.5,
    "block_exact": 0.1,
    "parent_coverage": 0.2,
    "comment": -0.2,
    "wordless": -0.2,
}
PROSE: Mapping[str, float] = {"line": 0.2, "window2": 0.3, "window5": 0.5, "stretch": 0.6, "exact": 0.2}
# A run ends where it fails: in the log of a build the end counts, and trouble with what follows it.
RUN_LOG: Mapping[str, float] = {"near": 1.0, "trouble": 1.0, "late": 0.3, "rare": 0.25}
# A system goes on: in its log the goal's words count, and lines of a kind that is seldom seen.
SYSTEM_LOG: Mapping[str, float] = {"line": 1.5, "alarm": 0.6, "rare": 0.8}
END_WEIGHT, END_POWER = 0.6, 12

BLANK_SHARE = 0.1
HALO, HALO_FADE = 0.3, 0.9
FILLER = 1e-6
SHARPNESS = 2  # squared: a line twice as good is worth four of the others


def weights(source_type: SourceType, signals: Signals) -> Mapping[str, float]:
    if source_type != "logs":
        return CODE if source_type == "code" else PROSE
    return SYSTEM_LOG if signals["system"].any() else RUN_LOG


def relevance(source_type: SourceType, signals: Signals) -> Floats:
    """One score per line, between 0 and 1."""
    total: Floats = np.zeros(len(signals["line"]))
    for part in shares(source_type, signals).values():
        total = total + part
    return scaled(np.maximum(total, 0.0))


def shares(source_type: SourceType, signals: Signals) -> dict[str, Floats]:
    """What each signal adds to the score of each line."""
    chosen = weights(source_type, signals)
    parts = {name: weight * signals[name] for name, weight in chosen.items()}
    if chosen is RUN_LOG:
        parts["late"] = parts["late"] + END_WEIGHT * signals["late"] ** END_POWER
    return parts


def worth(scores: Floats, lines: Sequence[str], costs: Sequence[int]) -> list[float]:
    """What keeping each line brings; an empty line brings little by itself.

    The limits may ask for more lines than speak of the goal: then those near the ones that do come
    first, and where nothing does, the beginning of the text.
    """
    halo = fading(scores, HALO_FADE, HALO_FADE)
    values = np.maximum(scores, HALO * halo) ** SHARPNESS
    blank = np.array([not line.strip() for line in lines], dtype=bool)
    values = np.where(blank, BLANK_SHARE * values, values)
    return [float(v) for v in values + FILLER * np.asarray(costs)]
