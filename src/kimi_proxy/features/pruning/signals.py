"""What can be measured of each line with respect to a goal: one named column per signal."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kimi_proxy.core.prune import SourceType
from kimi_proxy.features.pruning import echoes, intent, matches, places, shapes, trouble
from kimi_proxy.features.pruning.columns import Floats, rank, scaled, spread
from kimi_proxy.features.pruning.matches import Matches
from kimi_proxy.features.pruning.structure.blocks import Outline
from kimi_proxy.features.pruning.terms import Goal, read_goal

Signals = Mapping[str, Floats]
WINDOWS = (2, 5, 12, 25)
KIN_WINDOWS = (3, 9)
RANKED = ("line", "near", "window5", "window12", "stretch", "echo_near")


def measure(
    lines: Sequence[str], goal: str, source_type: SourceType, outline: Outline, check: Callable[[], None]
) -> Signals:
    """Every signal of a text of that type, each about between 0 and 1."""
    asked = read_goal(goal)
    found = matches.find(lines, asked, check)
    signals = _relevance(found)
    check()
    signals |= places.measure(found, signals["near"], outline.blocks)
    check()
    if source_type == "logs":
        signals |= trouble.measure(lines, outline, check)
    signals |= _alike(found) | _rarest(found) | echoes.measure(found.words, _first_guess(signals), outline.blocks)
    check()
    signals |= shapes.measure(lines, outline)
    signals |= {f"rank_{name}": rank(signals[name]) for name in RANKED}
    return signals | _whole(found, asked) | intent.measure(goal, len(lines))


def _relevance(found: Matches) -> dict[str, Floats]:
    """How a line, and the lines around it, speak of the goal."""
    n = len(found.lengths)
    here = np.arange(n)
    alone = found.over(here, here + 1)
    line = alone.bm25()
    signals = {
        "line": scaled(line),
        "line_coverage": alone.coverage(),
        "near": scaled(spread(line, 3)),
        "exact": scaled(spread(found.exact, 3)),
        "exact_here": scaled(found.exact),
        "known": np.full(n, found.known),
    }
    for reach in WINDOWS:
        window = found.over(np.maximum(0, here - reach), np.minimum(n, here + reach + 1))
        signals[f"window{reach}"] = scaled(window.bm25())
        signals[f"window{reach}_coverage"] = window.coverage()
    return signals


def _alike(found: Matches) -> dict[str, Floats]:
    """The same for words that only share a root with the goal's: `auth` for `authentication`."""
    n = len(found.lengths)
    here = np.arange(n)
    kin = found.kin()
    signals = {"kin": scaled(kin.over(here, here + 1).bm25())}
    for reach in KIN_WINDOWS:
        window = kin.over(np.maximum(0, here - reach), np.minimum(n, here + reach + 1))
        signals[f"kin{reach}"] = scaled(window.bm25())
    return signals


def _rarest(found: Matches) -> dict[str, Floats]:
    """Which of the goal's words a line has, by the rarest of them."""
    rarest = ((found.counts > 0) * found.idf).max(axis=1, initial=0.0) / found.idf.max(initial=1e-9)
    return {"rarest": rarest, "rarest_near": _highest_near(rarest, 3)}


def _highest_near(values: Floats, reach: int) -> Floats:
    highest = values.copy()
    for distance in range(1, min(reach, len(values) - 1) + 1):
        np.maximum(highest[:-distance], values[distance:], out=highest[:-distance])
        np.maximum(highest[distance:], values[:-distance], out=highest[distance:])
    return highest


def _first_guess(signals: Signals) -> Floats:
    return signals["line"] + signals["near"] + signals["window5"] + signals["block_coverage"]


def _whole(found: Matches, goal: Goal) -> dict[str, Floats]:
    """What is the same for all lines: how long text and goal are, and how often they meet."""
    n = len(found.lengths)
    met = float((found.counts.sum(axis=1) > 0).mean()) if n else 0.0
    return {
        "text_lines": np.full(n, math.log1p(n) / 8),
        "goal_words": np.full(n, len(goal.ideas()) / 40),
        "met": np.full(n, met),
    }
