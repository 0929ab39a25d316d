"""Lines scored by a reranker and lines scored here, brought onto one scale."""

from collections.abc import Sequence

_NOTHING = 1e-9  # a sum of local scores that is as good as zero


def choose(lines: Sequence[str], local: Sequence[float], max_docs: int) -> list[int]:
    """Which lines to ask about, in their order: none that is blank, and the best by local score if too many."""
    candidates = candidates_of(lines)
    best = sorted(candidates, key=lambda i: (-local[i], i))[:max_docs]
    return sorted(best)


def candidates_of(lines: Sequence[str]) -> list[int]:
    return [i for i, line in enumerate(lines) if line.strip()]


def merge(local: Sequence[float], asked: Sequence[int], remote: Sequence[float]) -> list[float]:
    """One score per line, in 0..1: the reranker's where it was asked, the local one elsewhere.

    A reranker that answers outside 0..1 is stretched into it. A local score says more or less than a remote one,
    so it is scaled by what the lines that have both got on average.
    """
    heard = _within_unit(remote)
    local_sum = sum(local[i] for i in asked)
    scale = sum(heard) / local_sum if local_sum > _NOTHING else 1.0
    merged = [min(score * scale, 1.0) for score in local]
    for i, score in zip(asked, heard, strict=True):
        merged[i] = score
    return merged


def _within_unit(scores: Sequence[float]) -> list[float]:
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    if low >= 0 and high <= 1:
        return list(scores)
    # Divided first, for the difference of two huge numbers would be infinite.
    biggest = max(-low, high)
    span = high / biggest - low / biggest
    return [(s / biggest - low / biggest) / span if span > 0 else 0.5 for s in scores]
