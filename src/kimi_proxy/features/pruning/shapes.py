"""What a line looks like, whatever the goal: its indent, its length, its kind."""

import re
from collections.abc import Sequence

import numpy as np

from kimi_proxy.features.pruning.columns import Floats
from kimi_proxy.features.pruning.structure.blocks import Outline

_COMMENT = re.compile(r"\s*(?:#(?!include|define|if|endif)|//|/?\*|--|;;|<!--|\"\"\"|'''|\.\. )")
_WORDLESS = re.compile(r"[\W_]*$")
LINE_CHARS = 200
KINDS = {"import": "import", "signature": "signature", "signature+": "signature", "heading": "heading"}


def measure(lines: Sequence[str], outline: Outline) -> dict[str, Floats]:
    heads = [line[:LINE_CHARS] for line in lines]
    signals = {
        "indent": np.array([min(40, len(h) - len(h.lstrip())) / 40 for h in heads]),
        "length": np.array([min(LINE_CHARS, len(h)) / LINE_CHARS for h in heads]),
        "wordless": np.array([float(_WORDLESS.match(h) is not None) for h in heads]),
        "comment": np.array([float(_COMMENT.match(h) is not None) for h in heads]),
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
