"""The yardstick: a plain BM25 score of every line, as an afternoon's script would do it."""

import math
import re
from collections import Counter

_WORD = re.compile(r"[A-Za-z0-9]+")


def bm25_per_line(text: str, goal: str, k1: float = 1.2, b: float = 0.75) -> list[float]:
    documents = [Counter(w.lower() for w in _WORD.findall(line)) for line in text.split("\n")]
    wanted = {w.lower() for w in _WORD.findall(goal)}
    lengths = [sum(d.values()) for d in documents]
    mean = sum(lengths) / len(lengths) or 1.0
    frequency = {w: sum(1 for d in documents if w in d) for w in wanted}
    idf = {w: math.log(1 + (len(documents) - f + 0.5) / (f + 0.5)) for w, f in frequency.items()}
    return [
        sum(idf[w] * d[w] * (k1 + 1) / (d[w] + k1 * (1 - b + b * length / mean)) for w in wanted if w in d)
        for d, length in zip(documents, lengths, strict=True)
    ]
