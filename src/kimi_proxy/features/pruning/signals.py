"""What can be measured of each line with respect to a goal: one named column per signal."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kimi_proxy.core.prune import SourceType
from kimi_proxy.features.pruning import goal as matches
from kimi_proxy.features.pruning.goal import CHECK_EVERY, WORD, Goal, Matches, Words, fold, parts, read_goal
from kimi_proxy.features.pruning.structure.blocks import (
    Block,
    Floats,
    Outline,
    Rows,
    fading,
    nearness,
    rank,
    scaled,
    spread,
)
from kimi_proxy.features.pruning.structure.logs import rough, template

_COMMENT = re.compile(r"\s*(?:#(?!include|define|if|endif)|//|/?\*|--|;;|<!--|\"\"\"|'''|\.\. )")
_WORDLESS = re.compile(r"[\W_]*$")
_DIGIT = re.compile(r"\d")
LINE_CHARS = 200
MOST_CALLS = 4
MOST_REPEATS = 10
KINDS = {"import": "import", "signature": "signature", "signature+": "signature", "heading": "heading"}


def measure_shapes(lines: Sequence[str], outline: Outline) -> dict[str, Floats]:
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


# The blocks that a reader would name when asked where a line is; a paragraph or a comment is not one.
TERRITORIES = frozenset(
    (
        *("function", "method", "class", "type", "namespace", "file-header", "import", "section"),
        *("failure", "traceback", "diagnostic", "window"),
    )
)
HOLDERS = frozenset({"class", "type", "namespace"})
CALLABLE = frozenset({"function", "method"})
STRETCH_LINES = 50  # a longer stretch is cut: far ends of it have little to do with each other
FAR_LINES = 60
TOP_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Places:
    """Blocks as columns, and for each line the innermost that holds it and the one around; -1 where there is none."""

    starts: Rows
    ends: Rows
    owner: Rows
    parent: Rows

    @classmethod
    def of(cls, blocks: Sequence[Block], line_count: int) -> "Places":
        owner, parent = np.full(line_count, -1), np.full(line_count, -1)
        for i, block in enumerate(blocks):
            parent[block.start : block.end] = owner[block.start : block.end]
            owner[block.start : block.end] = i
        starts = np.array([b.start for b in blocks], dtype=np.int64)
        return cls(starts, np.array([b.end for b in blocks], dtype=np.int64), owner, parent)

    @property
    def lengths(self) -> Rows:
        return self.ends - self.starts

    def here(self, values: Floats) -> Floats:
        """For each line the value of the block that holds it."""
        return _of(values, self.owner)

    def around(self, values: Floats) -> Floats:
        return _of(values, self.parent)

    def means(self, column: Floats) -> Floats:
        sums = np.concatenate([[0.0], column.cumsum()])
        means: Floats = (sums[self.ends] - sums[self.starts]) / np.maximum(1, self.lengths)
        return means

    def peaks(self, column: Floats) -> Floats:
        if not len(self.starts):
            return np.zeros(0)
        borders = np.stack([self.starts, self.ends], axis=1).ravel()
        highest: Floats = np.maximum.reduceat(np.append(column, 0.0), borders)[::2]
        return highest


def measure_places(found: Matches, near: Floats, blocks: Sequence[Block]) -> dict[str, Floats]:
    n = len(found.lengths)
    territories = [b for b in blocks if b.kind in TERRITORIES]
    signals = _stretches(found, territories, n) | _blocks(found, near, territories, n)
    top = np.quantile(near, 1 - TOP_SHARE) if n else 0.0
    signals["place"] = np.arange(n) / max(1, n - 1)
    signals["to_hit"] = nearness(found.counts.sum(axis=1) > 0)
    # What differs by a rounding error is the same.
    signals["to_best"] = nearness((near >= top - 1e-9) & (near > 0))
    return signals


def _blocks(found: Matches, near: Floats, blocks: Sequence[Block], n: int) -> dict[str, Floats]:
    held = Places.of(blocks, n)
    headers = np.array([max(b.start + 1, min(b.body, b.end)) for b in blocks], dtype=np.int64)
    whole = found.over(held.starts, held.ends)
    scores, coverage = scaled(whole.bm25()), whole.coverage()
    named, precise = _names(found, blocks)
    since = np.arange(n) - held.here(held.starts.astype(np.float64))
    until = held.here(held.ends.astype(np.float64)) - np.arange(n)
    inside = held.owner >= 0
    return {
        "block": held.here(scores),
        "block_coverage": held.here(coverage),
        "block_kin": held.here(scaled(found.kin().over(held.starts, held.ends).bm25())),
        "block_exact": held.here(scaled(held.peaks(found.exact))),
        "block_best": held.here(held.peaks(near)),
        "block_mean": held.here(scaled(held.means(near))),
        "block_rank": held.here(rank(scores)),
        "block_lines": held.here(np.log1p(held.lengths) / 8),
        "block_place": np.where(inside, since / np.maximum(1, since + until), 0.0),
        "block_since": np.where(inside, np.minimum(since, FAR_LINES) / FAR_LINES, 0.0),
        "block_until": np.where(inside, np.minimum(until, FAR_LINES) / FAR_LINES, 0.0),
        "header": held.here(found.over(held.starts, headers).coverage()),
        "name": held.here(named),
        "name_precision": held.here(precise),
        "in_function": held.here(np.array([float(b.kind in CALLABLE) for b in blocks])),
        "in_class": held.here(np.array([float(b.kind in HOLDERS) for b in blocks])),
        "parent": held.around(scores),
        "parent_coverage": held.around(coverage),
        "parent_precision": held.around(precise),
    }


def _names(found: Matches, blocks: Sequence[Block]) -> tuple[Floats, Floats]:
    """For each block how much of the goal its name says, and how much of its name the goal says."""
    weight = dict(zip(found.stems, found.idf.tolist(), strict=True))
    total = sum(weight.values()) or 1.0
    named, precise = np.zeros(len(blocks)), np.zeros(len(blocks))
    for i, block in enumerate(blocks):
        said = [piece for word in WORD.findall(block.name) for piece in _pieces(word)]
        named[i] = sum(weight.get(piece, 0.0) for piece in set(said)) / total
        precise[i] = sum(piece in weight for piece in said) / max(1, len(said))
    return named, precise


def _pieces(word: str) -> tuple[str, ...]:
    """The parts of a name; of a name of several parts, those alone."""
    found = parts(word)
    return found[1:] or found


def _stretches(found: Matches, blocks: Sequence[Block], n: int) -> dict[str, Floats]:
    """The text cut at every border of a block: what a reader sees between two headings."""
    if not n:
        return {"stretch": np.zeros(0), "stretch_coverage": np.zeros(0)}
    borders = sorted({0, n, *(b.start for b in blocks), *(b.end for b in blocks if b.end < n)})
    cuts: list[int] = []
    for a, b in pairwise(borders):
        pieces = max(1, round((b - a) / STRETCH_LINES))
        cuts += [a + (b - a) * k // pieces for k in range(pieces)]
    starts = np.array(cuts)
    ends = np.append(starts[1:], n)
    spans = found.over(starts, ends)
    lengths = ends - starts
    return {
        "stretch": np.repeat(scaled(spans.bm25()), lengths),
        "stretch_coverage": np.repeat(spans.coverage(), lengths),
    }


def _of(values: Floats, owner: Rows) -> Floats:
    return np.where(owner >= 0, values[owner], 0.0) if len(values) else np.zeros(len(owner))


# Words that keep the goal's words company: where `retry` is asked for, lines with `backoff` answer too.
#
# The lines that speak of the goal most are read for words that stand among them more often than elsewhere. Those
# words are then looked for in the whole text.

ECHO_TOP_SHARE, TOP_LINES = 0.02, 5
MOST_WORDS = 25
WORD_CHARS = 3
COMMON_SHARE = 0.15  # of the lines: a word so common says nothing


def measure_echoes(words: Words, first_guess: Floats, blocks: Sequence[Block]) -> dict[str, Floats]:
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
    best = np.argsort(-np.round(first_guess, 9), kind="stable")[: max(TOP_LINES, int(n * ECHO_TOP_SHARE))]
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


GOAL_CHARS = 1000

_INTENTS: Mapping[str, re.Pattern[str]] = {
    f"wants_{name}": re.compile(rf"\b(?:{words})")
    for name, words in {
        "words": "typo|doc|comment|spell|grammar|wording|readme|javadoc|example|clarif|explain|mention|explique",
        "imports": "import|includ|depend|header|requir|module|package|paquet",
        "types": r"typ(?:e|ing)|annotation|signature|generic|lint|clippy|mypy|overload",
        "messages": "messag|log|warn|error|text|string|print|output|display|format|erreur|affich",
        "tests": "test|assert|bench|coverage|spec",
        "less": "remov|drop|delet|unused|dead|redundan|clean|simplif|deprecat|supprim|retir",
        "more": "add|support|implement|introduc|allow|new|option|feature|ajout|permet",
        "other_names": r"renam|mov|refactor|extract|replac|use\b|renomm|deplac|remplac",
        "repair": "fix|bug|crash|leak|race|wrong|incorrect|handl|avoid|prevent|issue|fail|corrig|plant|echou|echec",
        "speed": "perf|optimi|fast|speed|cache|alloc|memor|rapid|lent",
        "values": "version|default|constant|limit|size|value|timeout|number|valeur|taille|nombre|delai",
    }.items()
}


def measure_intent(goal: str, line_count: int) -> dict[str, Floats]:
    asked = fold(goal[:GOAL_CHARS])
    return {name: np.full(line_count, float(words.search(asked) is not None)) for name, words in _INTENTS.items()}


TROUBLE_LINE_CHARS = 600
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


def measure_trouble(lines: Sequence[str], outline: Outline, check: Callable[[], None]) -> dict[str, Floats]:
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
            found = known[key] = (template(key), alarm_of(line[:TROUBLE_LINE_CHARS]))
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


Signals = Mapping[str, Floats]
WINDOWS = (2, 5, 12, 25)
KIN_WINDOWS = (3, 9)
RANKED = ("line", "near", "window5", "window12", "stretch", "echo_near")


def measure(
    lines: Sequence[str], goal: str, source_type: SourceType, outline: Outline, check: Callable[[], None]
) -> Signals:
    """Every signal of a text of that type, each about between 0 and 1."""
    asked = read_goal(goal)
    found = matches.find(lines, asked, check)
    signals = _relevance(found)
    check()
    signals |= measure_places(found, signals["near"], outline.blocks)
    check()
    if source_type == "logs":
        signals |= measure_trouble(lines, outline, check)
    signals |= _alike(found) | _rarest(found) | measure_echoes(found.words, _first_guess(signals), outline.blocks)
    check()
    signals |= measure_shapes(lines, outline)
    signals |= {f"rank_{name}": rank(signals[name]) for name in RANKED}
    return signals | _whole(found, asked) | measure_intent(goal, len(lines))


def _relevance(found: Matches) -> dict[str, Floats]:
    """How a line, and the lines around it, speak of the goal."""
    n = len(found.lengths)
    here = np.arange(n)
    alone = found.over(here, here + 1)
    line = alone.bm25()
    signals = {
        "line": scaled(line),
        "line_coverage": alone.coverage(),
        "near": scaled(spread(line, 3)),
        "exact": scaled(spread(found.exact, 3)),
        "exact_here": scaled(found.exact),
        "known": np.full(n, found.known),
    }
    for reach in WINDOWS:
        window = found.over(np.maximum(0, here - reach), np.minimum(n, here + reach + 1))
        signals[f"window{reach}"] = scaled(window.bm25())
        signals[f"window{reach}_coverage"] = window.coverage()
    return signals


def _alike(found: Matches) -> dict[str, Floats]:
    """The same for words that only share a root with the goal's: `auth` for `authentication`."""
    n = len(found.lengths)
    here = np.arange(n)
    kin = found.kin()
    signals = {"kin": scaled(kin.over(here, here + 1).bm25())}
    for reach in KIN_WINDOWS:
        window = kin.over(np.maximum(0, here - reach), np.minimum(n, here + reach + 1))
        signals[f"kin{reach}"] = scaled(window.bm25())
    return signals


def _rarest(found: Matches) -> dict[str, Floats]:
    """Which of the goal's words a line has, by the rarest of them."""
    rarest = ((found.counts > 0) * found.idf).max(axis=1, initial=0.0) / found.idf.max(initial=1e-9)
    return {"rarest": rarest, "rarest_near": _highest_near(rarest, 3)}


def _highest_near(values: Floats, reach: int) -> Floats:
    highest = values.copy()
    for distance in range(1, min(reach, len(values) - 1) + 1):
        np.maximum(highest[:-distance], values[distance:], out=highest[:-distance])
        np.maximum(highest[distance:], values[:-distance], out=highest[distance:])
    return highest


def _first_guess(signals: Signals) -> Floats:
    return signals["line"] + signals["near"] + signals["window5"] + signals["block_coverage"]


def _whole(found: Matches, goal: Goal) -> dict[str, Floats]:
    """What is the same for all lines: how long text and goal are, and how often they meet."""
    n = len(found.lengths)
    met = float((found.counts.sum(axis=1) > 0).mean()) if n else 0.0
    return {
        "text_lines": np.full(n, math.log1p(n) / 8),
        "goal_words": np.full(n, len(goal.ideas()) / 40),
        "met": np.full(n, met),
    }
