"""How much each hit of a search is worth: what the goal speaks of, then what is said nowhere else."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from kimi_proxy.features.pruning import matches
from kimi_proxy.features.pruning.columns import Floats, scaled
from kimi_proxy.features.pruning.terms import WORD, parts, read_goal

LINE_CHARS = 300
RAREST = 4  # words of a hit that tell how much it is like the others
NOVELTY = 0.6


def worth(lines: Sequence[str], goal: str, check: Callable[[], None]) -> list[float]:
    here = np.arange(len(lines))
    relevance = scaled(matches.find(lines, read_goal(goal), check).over(here, here + 1).bm25())
    check()
    return [float(w) for w in np.minimum(1.0, relevance + NOVELTY * _novelty(lines))]


def _novelty(lines: Sequence[str]) -> Floats:
    words = [{part for word in WORD.findall(line[:LINE_CHARS]) for part in parts(word)} for line in lines]
    lines_with = Counter(word for found in words for word in found)
    rarity = {word: math.log(len(lines) / count) for word, count in lines_with.items()}
    rarest = (sorted((rarity[word] for word in found), reverse=True)[:RAREST] for found in words)
    return scaled(np.array([sum(found) / RAREST for found in rarest]))
