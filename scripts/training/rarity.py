"""Cases from logs that a machine has kept anyway: what is of a seldom kind, asked for in its own words."""

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from evaluation.cases import Case, is_fair
from kimi_proxy.core import lines as text_lines
from kimi_proxy.features.pruning.structure.logs import templates

SYSTEM_FILES = "system files"
PLACES = ("/var/log/*.log", "/var/log/*/*.log", "/var/log/syslog", "/var/log/messages")
SELDOM = 3  # lines of a kind in a stretch
MIN_STRETCH, MAX_STRETCH = 200, 2000
COMMON_SHARE = 0.1
_WORD = re.compile(r"[A-Za-z]{4,}")


def files() -> list[Path]:
    """Logs on this machine that are long enough and may be read."""
    found = sorted({path for place in PLACES for path in Path("/").glob(place[1:])})
    return [path for path in found if _text(path).count("\n") > MIN_STRETCH]


def cases(path: Path, most: int, seed: int) -> Iterator[Case]:
    lines = text_lines.split(_text(path))
    rng = random.Random(f"{seed} {path.name}")
    for at in range(most):
        length = min(len(lines), rng.randint(MIN_STRETCH, MAX_STRETCH))
        start = rng.randint(0, len(lines) - length)
        found = _case(f"{path.name}:{at}", lines[start : start + length], rng)
        if found is not None:
            yield found


def _case(name: str, lines: Sequence[str], rng: random.Random) -> Case | None:
    shapes = templates(lines)
    seen = Counter(shapes)
    common = Counter(word for line in lines for word in set(_WORD.findall(line)))
    rows = [
        row
        for row, shape in enumerate(shapes)
        if seen[shape] <= SELDOM and len(_telling(lines[row], common, len(lines))) > 1
    ]
    if not rows:
        return None
    row = rng.choice(rows)
    words = _telling(lines[row], common, len(lines))
    goal = rng.choice(("when did it say something of {}?", "what happened with {}?", "{}")).format(
        " ".join(rng.sample(words, min(len(words), rng.randint(2, 4))))
    )
    gold = tuple(r for r, shape in enumerate(shapes) if shape == shapes[row])
    case = Case(name, "failure", "logs", SYSTEM_FILES, goal, text_lines.join(lines), gold)
    return case if is_fair(case) else None


def _telling(line: str, common: Counter[str], line_count: int) -> list[str]:
    return sorted({word for word in _WORD.findall(line) if common[word] <= COMMON_SHARE * line_count})


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
