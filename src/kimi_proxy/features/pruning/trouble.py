"""What a log says about trouble: words of failure, rare lines, and where a run ends."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from kimi_proxy.features.pruning.matches import CHECK_EVERY, Floats
from kimi_proxy.features.pruning.structure.blocks import Outline
from kimi_proxy.features.pruning.template import template

_STRONG = re.compile(
    r"\b(?:errors?|exception|traceback|fatal|panic(?:ked)?|fail(?:s|ed|ure|ures|ing)?|abort(?:ed|ing)?"
    r"|assert\w*|segfault|segmentation|crash\w*|killed|err!)\b|[a-z](?:error|exception|failure)\b|[✖✗✘●×]",
    re.IGNORECASE,
)
_WEAK = re.compile(
    r"warn|denied|not found|cannot|can't|could ?n[o']t|unable|undefined|missing|invalid|refused|timed? ?out"
    r"|expected|actual|not ok|exit(?:ed)?(?: with)?(?: code| status)? [1-9]|returned? [1-9]|no such|unresolved"
    r"|mismatch|differ|lost|broken|illegal|exceed|bad |reset by|unavailable|conflict|rejected|terminated"
    r"|too long|no output|not (?:a|be|been|available|allowed|supported|valid|served|receive)",
    re.IGNORECASE,
)
_CALM = re.compile(
    r"\b(?:0|no|zero) (?:errors?|failures?|failed|warnings?)|(?:errors?|failures?|failed)\W{0,3}0\b"
    r"|without errors?|if error|error[-_]?(?:log|handler|page|codes?)|ignor\w+ error|--(?:fail|error)|-w?error|set -e",
    re.IGNORECASE,
)
LINE_CHARS = 600


def measure(lines: Sequence[str], outline: Outline, check: Callable[[], None]) -> dict[str, Floats]:
    """`trouble` with its context, `rare` by template, `late` by position, `system` where nothing ends."""
    n = len(lines)
    rare = rarity(lines, check)
    alarm = np.zeros(n)
    for i, line in enumerate(lines):
        if i % CHECK_EVERY == 0:
            check()
        alarm[i] = alarm_of(line[:LINE_CHARS])
    return {
        "trouble": fading(alarm * (0.4 + 0.6 * rare), before=0.6, after=0.8),
        "alarm": fading(alarm * rare, before=0.3, after=0.3),
        "rare": fading(rare, before=0.4, after=0.4),
        "late": np.linspace(0.0, 1.0, n) if n > 1 else np.ones(n),
        "system": np.full(n, 1.0 if outline.language == "system" else 0.0),
    }


def alarm_of(line: str) -> float:
    """1 for a word of failure, less for a word of worry."""
    if _STRONG.search(line) and not _CALM.search(line):
        return 1.0
    return 0.55 if _WEAK.search(line) else 0.0


def rarity(lines: Sequence[str], check: Callable[[], None]) -> Floats:
    """1 for a line of a kind seen once, less the more lines have its template."""
    shapes: list[str] = []
    for i, line in enumerate(lines):
        if i % CHECK_EVERY == 0:
            check()
        shapes.append(template(line))
    seen = Counter(shapes)
    return np.array([1 / (1 + math.log(seen[s])) if s else 0.0 for s in shapes])


def fading(values: Floats, before: float, after: float) -> Floats:
    """Each value carried on to the lines after and before it, weaker with every line."""
    out = values.tolist()
    level = 0.0
    for i, value in enumerate(values.tolist()):
        level = max(value, level * after)
        out[i] = max(out[i], level)
    level = 0.0
    for i in range(len(out) - 1, -1, -1):
        level = max(float(values[i]), level * before)
        out[i] = max(out[i], level)
    return np.array(out)
