"""What a line looks like, whatever the goal: its indent, its length, its kind."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from kimi_proxy.features.pruning.columns import Floats
from kimi_proxy.features.pruning.structure.blocks import Outline

_COMMENT = re.compile(r"\s*(?:#(?!include|define|if|endif)|//|/?\*|--|;;|<!--|\"\"\"|'''|\.\. )")
_WORDLESS = re.compile(r"[\W_]*$")
_DIGIT = re.compile(r"\d")
LINE_CHARS = 200
MOST_CALLS = 4
MOST_REPEATS = 10
KINDS = {"import": "import", "signature": "signature", "signature+": "signature", "heading": "heading"}


def measure(lines: Sequence[str], outline: Outline) -> dict[str, Floats]:
    heads = [line[:LINE_CHARS] for line in lines]
    bare = [head.strip() for head in heads]
    seen = Counter(bare)
    indent = np.array([min(40, len(h) - len(h.lstrip())) / 40 for h in heads])
    signals = {
        "indent": indent,
        "deeper": 0.5 + np.diff(indent, prepend=indent[:1]),
        "length": np.array([min(LINE_CHARS, len(h)) / LINE_CHARS for h in heads]),
        "wordless": np.array([float(_WORDLESS.match(h) is not None) for h in heads]),
        "comment": np.array([float(_COMMENT.match(h) is not None) for h in heads]),
        "calls": np.array([min(MOST_CALLS, h.count("(")) / MOST_CALLS for h in heads]),
        "digits": np.array([float(_DIGIT.search(h) is not None) for h in heads]),
        "repeats": np.array([min(MOST_REPEATS, seen[b]) / MOST_REPEATS for b in bare]),
    }
    for kind in ("import", "signature", "heading"):
        signals[f"is_{kind}"] = np.array([float(KINDS.get(why) == kind) for why in outline.protected])
    signals["in_fence"] = _inside(outline, {"fence", "table"}, len(lines))
    return signals


def _inside(outline: Outline, kinds: set[str], n: int) -> Floats:
    inside = np.zeros(n)
    for block in outline.blocks:
        if block.kind in kinds:
            inside[block.start : block.end] = 1.0
    return inside
