"""The score of each line for a goal.

Code and documentation are scored by a model trained on how people change them, logs by a model trained on runs with
known failures and by hand-set weights. If the model cannot be loaded, such weights score everything."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kimi_proxy.core.prune import SourceType
from kimi_proxy.features.pruning.model import Scorers
from kimi_proxy.features.pruning.signals import Signals
from kimi_proxy.features.pruning.structure.blocks import Floats, fading, scale_to_one

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
# A run ends where it fails: in the log of a build the end counts, and failures with what follows them.
RUN_LOG: Mapping[str, float] = {"near": 1.0, "trouble": 1.0, "late": 0.3, "rare": 0.25}
# In the log of a long-running system, the goal's words and rare templates count most.
SYSTEM_LOG: Mapping[str, float] = {"line": 1.5, "alarm": 0.6, "rare": 0.8}
END_WEIGHT, END_POWER = 0.6, 12

HALO, HALO_FADE = 0.3, 0.9
FILLER = 1e-6
SHARPNESS = 2  # squared: a line twice as good is worth four of the others


USED, USED_OUTPUT = "used", "used output"  # the forests that were learned from agents' sessions


def use(signals: Signals, scorers: Scorers, check: Callable[[], None]) -> Floats:
    """Return one score per line of a tool result, from 0 to 1: how likely the agent will use it."""
    return scale_to_one(np.sqrt(use_probability(signals, scorers, check)))


def blend(used: Floats, asked: Floats) -> Floats:
    """Return combined scores: likely use by an agent, and relevance to the question.

    used^½ · asked^½. Past use does not know this user's question: with it alone, build logs lost a seventh of the
    answers that the question's own trees keep. Combining costs 3 of 100 used lines.
    """
    return np.round(scale_to_one(np.sqrt(used * asked)), 9)


def use_probability(signals: Signals, scorers: Scorers, check: Callable[[], None]) -> Floats:
    """Return for each line of a tool result the probability that the agent will use it."""
    learned = scorers.learned[USED]
    return learned.probability(_with_all(signals, learned.forest.signals), check)


def likely_used(signals: Mapping[str, float], scorers: Scorers) -> float | None:
    """Return the probability that an agent will use any line of an output; None without a trained model."""
    learned = scorers.learned.get(USED_OUTPUT)
    if learned is None:
        return None
    return float(learned.probability({name: np.array([value]) for name, value in signals.items()}, lambda: None)[0])


def _with_all(signals: Signals, names: Sequence[str]) -> Signals:
    """Return the signals of these names; those that texts of another type have are 0."""
    nothing: Floats = np.zeros(len(signals["line"]))
    return {name: signals.get(name, nothing) for name in names}


def relevance(source_type: SourceType, signals: Signals, scorers: Scorers, check: Callable[[], None]) -> Floats:
    """Return one score per line, between 0 and 1."""
    learned = scorers.learned.get(source_type)
    if learned is None:
        return _weigh_signals(source_type, signals)
    # The root, for `worth` takes the power: a line twice as likely to answer is then worth twice as much.
    likely = scale_to_one(np.sqrt(learned.probability(signals, check)))
    if source_type != "logs":
        return likely
    # likely^¾ · weighed^¼, for the next system writes like no tool that was learned from. By roots alone, which are
    # the same on every machine.
    return np.round(scale_to_one(np.sqrt(likely * np.sqrt(likely * _weigh_signals(source_type, signals)))), 9)


def _weigh_signals(source_type: SourceType, signals: Signals) -> Floats:
    total: Floats = np.zeros(len(signals["line"]))
    for part in _by_hand(source_type, signals).values():
        total = total + part
    # Rounded, for the last digits differ between machines.
    return np.round(scale_to_one(np.maximum(total, 0.0)), 9)


def contributions(kind: str, signals: Signals, scorers: Scorers) -> dict[str, Floats]:
    """Return what each signal adds to the score of each line by the trees of that kind.

    A signal that a line lacks adds nothing.
    """
    learned = scorers.learned.get(kind)
    if learned is None:
        return _by_hand(kind, signals)
    known = _with_all(signals, learned.forest.signals)
    return {name: np.where(known[name] > 0, added, 0.0) for name, added in learned.contributions(known).items()}


def blended_contributions(used: Mapping[str, Floats], asked: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return what each signal adds to a score that `blend` made of both."""
    nothing: Floats = np.zeros(1)
    return {name: (used.get(name, nothing) + asked.get(name, nothing)) / 2 for name in {**asked, **used}}


def _by_hand(source_type: str, signals: Signals) -> dict[str, Floats]:
    chosen = CODE if source_type == "code" else PROSE
    if source_type == "logs":
        chosen = SYSTEM_LOG if signals["system"].any() else RUN_LOG
    parts = {name: weight * signals[name] for name, weight in chosen.items()}
    if chosen is RUN_LOG:
        parts["late"] = parts["late"] + END_WEIGHT * signals["late"] ** END_POWER
    return parts


def worth(scores: Floats, lines: Sequence[str], costs: Sequence[int], blank_share: float) -> list[float]:
    """Return what keeping each line brings.

    The limits may ask for more lines than match the goal: then those near the ones that do come
    first, and where nothing does, the beginning of the text.
    """
    halo = fading(scores, HALO_FADE, HALO_FADE)
    values = np.maximum(scores, HALO * halo) ** SHARPNESS
    blank = np.array([not line.strip() for line in lines], dtype=bool)
    values = np.where(blank, blank_share * values, values)
    return [float(v) for v in values + FILLER * np.asarray(costs)]


_NOTHING = 1e-9  # a sum of local scores that is as good as zero


def choose(lines: Sequence[str], local: Sequence[float], max_docs: int) -> list[int]:
    """Return the rows to ask a reranker about: none that is blank, and the best by local score if too many."""
    return sorted(sorted(candidates_of(lines), key=lambda i: (-local[i], i))[:max_docs])


def candidates_of(lines: Sequence[str]) -> list[int]:
    return [i for i, line in enumerate(lines) if line.strip()]


def merge(local: Sequence[float], asked: Sequence[int], remote: Sequence[float]) -> list[float]:
    """Return one score per line, in 0..1: the reranker's if it scored the line, otherwise the local one.

    Scores of a reranker outside 0..1 are rescaled. Local and remote scores are not comparable, so local ones are scaled
    by the average ratio on lines that have both.
    """
    scaled_remote = _within_unit(remote)
    local_sum = sum(local[i] for i in asked)
    scale = sum(scaled_remote) / local_sum if local_sum > _NOTHING else 1.0
    merged = [min(score * scale, 1.0) for score in local]
    for i, score in zip(asked, scaled_remote, strict=True):
        merged[i] = score
    return merged


def _within_unit(scores: Sequence[float]) -> list[float]:
    low = min(scores, default=0.0)
    high = max(scores, default=0.0)
    if low >= 0 and high <= 1:
        return list(scores)
    # Divided first, for the difference of two huge numbers would be infinite.
    biggest = max(-low, high)
    span = high / biggest - low / biggest
    return [(s / biggest - low / biggest) / span if span > 0 else 0.5 for s in scores]
