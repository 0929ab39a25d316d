"""What can be measured of each line with respect to a goal: one named column per signal."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kimi_proxy.core.prune import SourceType
from kimi_proxy.features.pruning import matches, places, shapes, trouble
from kimi_proxy.features.pruning.columns import Floats, scaled, spread
from kimi_proxy.features.pruning.matches import Matches
from kimi_proxy.features.pruning.structure.blocks import Outline
from kimi_proxy.features.pruning.terms import read_goal

Signals = Mapping[str, Floats]
WINDOWS = (2, 5, 12)


def measure(
    lines: Sequence[str], goal: str, source_type: SourceType, outline: Outline, check: Callable[[], None]
) -> Signals:
    """Every signal of a text of that type, each about between 0 and 1."""
    found = matches.find(lines, read_goal(goal), check)
    signals = _relevance(found)
    check()
    signals |= places.measure(found, signals["near"], outline.blocks)
    check()
    if source_type == "logs":
        return signals | trouble.measure(lines, outline, check)
    return signals | shapes.measure(lines, outline)


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
        "above": scaled(np.concatenate([np.zeros(min(1, n)), line[:-1]])),
        "below": scaled(np.concatenate([line[1:], np.zeros(min(1, n))])),
        "known": np.full(n, found.known),
    }
    for reach in WINDOWS:
        window = found.over(np.maximum(0, here - reach), np.minimum(n, here + reach + 1))
        signals[f"window{reach}"] = scaled(window.bm25())
        signals[f"window{reach}_coverage"] = window.coverage()
    return signals
