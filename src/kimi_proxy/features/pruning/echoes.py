"""Words that keep the goal's words company: where `retry` is asked for, lines with `backoff` answer too.

The lines that speak of the goal most are read for words that stand among them more often than elsewhere. Those
words are then looked for in the whole text.
"""

from collections.abc import Sequence

import numpy as np

from kimi_proxy.features.pruning.columns import Floats, scaled, spread
from kimi_proxy.features.pruning.places import TERRITORIES, Places
from kimi_proxy.features.pruning.structure.blocks import Block
from kimi_proxy.features.pruning.words import Words

TOP_SHARE, TOP_LINES = 0.02, 5
MOST_WORDS = 25
WORD_CHARS = 3
COMMON_SHARE = 0.15  # of the lines: a word so common says nothing


def measure(words: Words, first_guess: Floats, blocks: Sequence[Block]) -> dict[str, Floats]:
    echo = words.per_line(_weights(words, first_guess))
    held = Places.of([b for b in blocks if b.kind in TERRITORIES], words.line_count)
    return {
        "echo": scaled(echo),
        "echo_near": scaled(spread(echo, 2)),
        "echo_wide": scaled(spread(echo, 8)),
        "echo_block": held.here(scaled(held.means(echo))),
    }


def _weights(words: Words, first_guess: Floats) -> Floats:
    """What each word of the vocabulary tells of the goal by the company it keeps."""
    n, kinds = words.line_count, len(words.vocabulary)
    best = np.argsort(-np.round(first_guess, 9), kind="stable")[: max(TOP_LINES, int(n * TOP_SHARE))]
    trust = np.zeros(n)
    trust[best] = first_guess[best]
    total = float(trust.sum())
    if not total or not kinds:
        return np.zeros(kinds)
    seen = np.bincount(words.ids, minlength=kinds)
    among_best = np.bincount(words.ids, weights=trust[words.rows], minlength=kinds) / total
    weights = np.maximum(among_best - seen / n, 0) * np.log(1 + (n - np.minimum(seen, n) + 0.5) / (seen + 0.5))
    telling = np.array([len(word) >= WORD_CHARS and not word.isdigit() for word in words.vocabulary])
    weights = np.where(telling & (seen > 1) & (seen <= COMMON_SHARE * n), weights, 0.0)
    faint = np.argsort(-np.round(weights, 9), kind="stable")[MOST_WORDS:]
    weights[faint] = 0.0
    return weights
