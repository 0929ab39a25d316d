"""What a log says about trouble: words of failure, rare lines, and where a run ends."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from kimi_proxy.features.pruning.columns import Floats, fading
from kimi_proxy.features.pruning.structure.blocks import Outline
from kimi_proxy.features.pruning.template import rough, template
from kimi_proxy.features.pruning.words import CHECK_EVERY

LINE_CHARS = 600
WORRY = 0.55
MARKED = ("error", "context", "failure", "traceback", "diagnostic")  # as the outline marks what must stay

_FAILURE = re.compile(
    r"\b(?:errors?|exception|traceback|fatal|panic(?:ked)?|fail(?:s|ed|ure|ures|ing)?|abort(?:ed|ing)?"
    r"|assert\w*|segfault|segmentation|crash\w*|killed|err!)(?!\w)|[a-z](?:error|exception|failure)\b|[✖✗✘●×]"
)
# A line without one of these cannot match above, and most lines have none: plain search is far cheaper.
_FAILURE_ROOTS = ("err", "excep", "trace", "fatal", "panic", "fail", "abort", "assert", "seg", "crash", "killed")
_CALM = re.compile(
    r"\b(?:0|no|zero) (?:errors?|failures?|failed|warnings?)|(?:errors?|failures?|failed)\W{0,3}0\b"
    r"|without errors?|if error|error[-_]?(?:log|handler|page|codes?)|ignor\w+ error|--(?:fail|error)"
    r"|-w?error|set -e"
)
_WORRY = (
    "warn", "denied", "not found", "cannot", "can't", "could not", "couldn't", "unable", "undefined", "missing",
    "invalid", "refused", "timed out", "timeout", "time out", "expected", "actual", "not ok", "no such",
    "unresolved", "mismatch", "differ", "lost", "broken", "illegal", "exceed", "bad ", "reset by", "unavailable",
    "conflict", "rejected", "terminated", "too long", "no output", "not a", "not be", "not supported", "not valid",
    "not served", "not receive", "échec", "échoué", "erreur",
)  # fmt: skip
_BAD_EXIT = re.compile(r"(?:exit(?:ed)?(?: with)?(?: code| status)?|returned?) [1-9]")


def measure(lines: Sequence[str], outline: Outline, check: Callable[[], None]) -> dict[str, Floats]:
    """`trouble` with its context, `rare` by template, `late` by position, `system` where nothing ends."""
    n = len(lines)
    shapes, alarm = _shapes(lines, check)
    seen = Counter(shapes)
    rare = np.array([1 / (1 + math.log(seen[s])) if s else 0.0 for s in shapes])
    return {
        "trouble": fading(alarm * (0.4 + 0.6 * rare), before=0.6, after=0.8),
        "alarm": fading(alarm * rare, before=0.3, after=0.3),
        "rare": fading(rare, before=0.4, after=0.4),
        "late": np.linspace(0.0, 1.0, n) if n > 1 else np.ones(n),
        "system": np.full(n, 1.0 if outline.language == "system" else 0.0),
        **{f"is_{kind}": np.array([float(why == kind) for why in outline.protected]) for kind in MARKED},
    }


def _shapes(lines: Sequence[str], check: Callable[[], None]) -> tuple[list[str], Floats]:
    """The template and the alarm of each line; lines that differ in digits alone are looked at once."""
    known: dict[str, tuple[str, float]] = {}
    shapes: list[str] = []
    alarms: list[float] = []
    for i, line in enumerate(lines):
        if i % CHECK_EVERY == 0:
            check()
        key = rough(line)
        found = known.get(key)
        if found is None:
            found = known[key] = (template(key), alarm_of(line[:LINE_CHARS]))
        shapes.append(found[0])
        alarms.append(found[1])
    return shapes, np.array(alarms)


def alarm_of(line: str) -> float:
    """1 for a word of failure, less for a word of worry."""
    low = line.lower()
    if (
        (any(root in low for root in _FAILURE_ROOTS) or not line.isascii())
        and _FAILURE.search(low)
        and not _CALM.search(low)
    ):
        return 1.0
    worried = any(word in low for word in _WORRY) or _BAD_EXIT.search(low) is not None
    return WORRY if worried else 0.0
