"""The signals of each line with respect to a goal: one named column each, about between 0 and 1.

The learned scorer refers to signals by these names. Changing a name or a value requires a new model."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kimi_proxy.core.prune import CallContext, SourceType
from kimi_proxy.features.failures import MARKS, failure_level
from kimi_proxy.features.pruning.call_signals import CallSignals, call_signals
from kimi_proxy.features.pruning.goal import (
    CHECK_EVERY,
    WORD,
    Goal,
    Matches,
    TextWords,
    find,
    fold,
    parts,
    read_goal,
)
from kimi_proxy.features.pruning.structure.blocks import (
    Block,
    Floats,
    Outline,
    Rows,
    fading,
    nearness,
    rank,
    scale_to_one,
    spread,
)
from kimi_proxy.features.pruning.structure.logs import template, without_numbers

Signals = Mapping[str, Floats]
WINDOWS = (2, 5, 12, 25)
ROOT_WINDOWS = (3, 9)
RANKED = ("line", "near", "window5", "window12", "stretch", "echo_near")


@dataclass(frozen=True, slots=True)
class WordSignals:
    """The positions of a goal's words in a text, and the signals that can be measured before its structure is known."""

    found: Matches
    akin: Matches  # words counted that only share a root
    signals: Signals
    of_call: CallSignals | None


def read_lines(
    lines: Sequence[str],
    goal: str,
    source_type: SourceType,
    check: Callable[[], None],
    context: CallContext | None = None,
    before: "WordSignals | None" = None,
) -> WordSignals:
    """Return what can be measured while a text is parsed; with a context also by what an agent was doing.

    `before` is what was returned of the same text for another goal: what no goal changes is taken from there.
    """
    wanted = read_goal(goal)
    found = find(lines, wanted, check, before.found.words if before else None, is_terse=source_type == "logs")
    signals = _relevance(found)
    check()
    akin = found.by_roots()
    signals |= _positions(found, signals["near"]) | _shared_roots(akin) | _rarest(found)
    check()
    signals |= _pick(before.signals, SHAPES) if before else _line_shapes(lines, found.words)
    signals |= _score_text_and_goal(found, wanted, fold(goal[:GOAL_CHARS]))
    of_call = call_signals(lines, found.words, context, source_type) if context else None
    check()
    return WordSignals(found, akin, signals, of_call)


def measure(
    lines: Sequence[str],
    goal: str,
    source_type: SourceType,
    outline: Outline,
    check: Callable[[], None],
    context: CallContext | None = None,
    words: WordSignals | None = None,
    before: Signals | None = None,
) -> Signals:
    """Return every signal of a text of that type; with a context also those of the agent's activity.

    `words` is the result of `read_lines` for the same text, if it was called, and `before` the result for the same text
    and another goal.
    """
    words = words or read_lines(lines, goal, source_type, check, context)
    found = words.found
    signals = dict(words.signals)
    blocks = [block for block in outline.blocks if block.kind in SCORED_BLOCKS]
    signals |= _stretches(found, blocks) | _blocks(found, words.akin, signals["near"], blocks)
    check()
    if source_type == "logs":
        signals |= _pick(before, OF_LOGS) if before else log_signals(lines, outline, check)
    first_guess = signals["line"] + signals["near"] + signals["window5"] + signals["block_coverage"]
    signals |= _cooccurrence(found.words, first_guess, blocks)
    signals |= _pick(before, OF_OUTLINES) if before else _outline_marks(outline)
    check()
    signals |= {f"rank_{name}": rank(signals[name]) for name in RANKED}
    if words.of_call is not None:
        check()
        columns = BlockColumns.of(blocks, len(lines))
        signals |= words.of_call.with_blocks(lambda values: columns.here(columns.means(values)))
    return signals


def _pick(signals: Signals, names: Sequence[str]) -> Signals:
    return {name: signals[name] for name in names}


SAID_CHARS, ARGUMENT_CHARS = 280, 280  # as much as of the user's words


def wider_goal(goal: str, context: CallContext) -> str:
    """Return a goal extended by an agent's last message and the arguments of its call."""
    return f"{goal} {context.said[-SAID_CHARS:]} {context.arguments[:ARGUMENT_CHARS]}"


def _relevance(found: Matches) -> dict[str, Floats]:
    """Score each line, and the lines around it, by the goal's words."""
    n = len(found.lengths)
    alone = found.around(0)
    line = alone.bm25()
    signals = {
        "line": scale_to_one(line),
        "line_coverage": alone.coverage(),
        "near": scale_to_one(spread(line, 3)),
        "exact": scale_to_one(spread(found.exact, 3)),
        "exact_here": scale_to_one(found.exact),
        "known": np.full(n, found.known),
    }
    for reach in WINDOWS:
        window = found.around(reach)
        signals[f"window{reach}"] = scale_to_one(window.bm25())
        signals[f"window{reach}_coverage"] = window.coverage()
    return signals


def _shared_roots(akin: Matches) -> dict[str, Floats]:
    """The same for words that only share a root with the goal's: `auth` for `authentication`."""
    windows = {f"kin{reach}": scale_to_one(akin.around(reach).bm25()) for reach in ROOT_WINDOWS}
    return {"kin": scale_to_one(akin.around(0).bm25()), **windows}


def _rarest(found: Matches) -> dict[str, Floats]:
    """Score each line by the rarest of the goal's words that it has."""
    rarest = ((found.counts > 0) * found.idf).max(axis=1, initial=0.0) / found.idf.max(initial=1e-9)
    near = rarest.copy()
    for distance in range(1, min(3, len(rarest) - 1) + 1):
        np.maximum(near[:-distance], rarest[distance:], out=near[:-distance])
        np.maximum(near[distance:], rarest[:-distance], out=near[distance:])
    return {"rarest": rarest, "rarest_near": near}


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


def _score_text_and_goal(found: Matches, goal: Goal, folded: str) -> dict[str, Floats]:
    """Return the signals shared by all lines: lengths of text and goal, their overlap, the kind of goal."""
    n = len(found.lengths)
    values = {
        "text_lines": math.log1p(n) / 8,
        "goal_words": len(goal.concepts()) / 40,
        "met": float((found.counts.sum(axis=1) > 0).mean()) if n else 0.0,
        **{name: float(words.search(folded) is not None) for name, words in _INTENTS.items()},
    }
    return {name: np.full(n, value) for name, value in values.items()}


# The blocks that a reader would name when asked where a line is; a paragraph or a comment is not one.
SCORED_BLOCKS = frozenset(
    (
        *("function", "method", "class", "type", "namespace", "file-header", "import", "section"),
        *("failure", "traceback", "diagnostic", "window"),
    )
)
CLASSES = frozenset({"class", "type", "namespace"})
CALLABLES = frozenset({"function", "method"})
STRETCH_LINES = 50  # a longer stretch is cut: far ends of it have little to do with each other
FAR_LINES = 60
TOP_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """Blocks as columns, and for each line the innermost that holds it and the one around; -1 where there is none."""

    starts: Rows
    ends: Rows
    owner: Rows
    parent: Rows

    @classmethod
    def of(cls, blocks: Sequence[Block], line_count: int) -> "BlockColumns":
        owner = np.full(line_count, -1)
        parent = np.full(line_count, -1)
        for i, block in enumerate(blocks):
            parent[block.start : block.end] = owner[block.start : block.end]
            owner[block.start : block.end] = i
        starts = np.array([b.start for b in blocks], dtype=np.int64)
        return cls(starts, np.array([b.end for b in blocks], dtype=np.int64), owner, parent)

    def here(self, values: Floats) -> Floats:
        """Return for each line the value of the block that holds it."""
        return _of_owner(values, self.owner)

    def around(self, values: Floats) -> Floats:
        """Return for each line the value of the block around the one that holds it."""
        return _of_owner(values, self.parent)

    def means(self, column: Floats) -> Floats:
        """Return the mean of each block's lines."""
        sums = np.concatenate([[0.0], column.cumsum()])
        means: Floats = (sums[self.ends] - sums[self.starts]) / np.maximum(1, self.ends - self.starts)
        return means

    def peaks(self, column: Floats) -> Floats:
        """Return the highest of each block's lines."""
        if not len(self.starts):
            return np.zeros(0)
        borders = np.stack([self.starts, self.ends], axis=1).ravel()
        highest: Floats = np.maximum.reduceat(np.append(column, 0.0), borders)[::2]
        return highest


def _of_owner(values: Floats, owner: Rows) -> Floats:
    return np.where(owner >= 0, values[owner], 0.0) if len(values) else np.zeros(len(owner))


def _positions(found: Matches, near: Floats) -> dict[str, Floats]:
    """The position of a line in the text, and its distance from the lines that match."""
    n = len(near)
    top = _quantile(near, 1 - TOP_SHARE) if n else 0.0
    return {
        "place": np.arange(n) / max(1, n - 1),
        "to_hit": nearness(found.counts.sum(axis=1) > 0),
        # What differs by a rounding error is the same.
        "to_best": nearness((near >= top - 1e-9) & (near > 0)),
    }


def _quantile(values: Floats, share: float) -> float:
    """Return what `numpy.quantile` does, which loads masked arrays for it: a tenth of the time of a command."""
    ordered = np.sort(values)
    place = (len(values) - 1) * share
    below = math.floor(place)
    low = float(ordered[below])
    high = float(ordered[min(below + 1, len(values) - 1)])
    part = place - below
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)  # as numpy rounds


def _blocks(found: Matches, akin: Matches, near: Floats, blocks: Sequence[Block]) -> dict[str, Floats]:
    """Score each line by the blocks that hold it."""
    n = len(near)
    columns = BlockColumns.of(blocks, n)
    here = columns.here
    around = columns.around
    headers = np.array([max(b.start + 1, min(b.body, b.end)) for b in blocks], dtype=np.int64)
    whole = found.over(columns.starts, columns.ends)
    scores = scale_to_one(whole.bm25())
    coverage = whole.coverage()
    named, precise = _names(found, blocks)
    since = np.arange(n) - here(columns.starts.astype(np.float64))
    until = here(columns.ends.astype(np.float64)) - np.arange(n)
    inside = columns.owner >= 0
    return {
        "block": here(scores),
        "block_coverage": here(coverage),
        "block_kin": here(scale_to_one(akin.over(columns.starts, columns.ends).bm25())),
        "block_exact": here(scale_to_one(columns.peaks(found.exact))),
        "block_best": here(columns.peaks(near)),
        "block_mean": here(scale_to_one(columns.means(near))),
        "block_rank": here(rank(scores)),
        "block_lines": here(np.log1p(columns.ends - columns.starts) / 8),
        "block_place": np.where(inside, since / np.maximum(1, since + until), 0.0),
        "block_since": np.where(inside, np.minimum(since, FAR_LINES) / FAR_LINES, 0.0),
        "block_until": np.where(inside, np.minimum(until, FAR_LINES) / FAR_LINES, 0.0),
        "header": here(found.over(columns.starts, headers).coverage()),
        "name": here(named),
        "name_precision": here(precise),
        "in_function": here(np.array([float(b.kind in CALLABLES) for b in blocks])),
        "in_class": here(np.array([float(b.kind in CLASSES) for b in blocks])),
        "parent": around(scores),
        "parent_coverage": around(coverage),
        "parent_precision": around(precise),
    }


def _names(found: Matches, blocks: Sequence[Block]) -> tuple[Floats, Floats]:
    """Return for each block which share of the goal is in its name, and which share of its name is in the goal."""
    weight = dict(zip(found.stems, found.idf.tolist(), strict=True))
    total = sum(weight.values()) or 1.0
    recall = np.zeros(len(blocks))
    precision = np.zeros(len(blocks))
    for i, block in enumerate(blocks):
        words = (parts(word) for word in WORD.findall(block.name))
        # Of a name of several parts, those alone.
        pieces = [piece for found_parts in words for piece in found_parts[1:] or found_parts]
        recall[i] = sum(weight.get(piece, 0.0) for piece in set(pieces)) / total
        precision[i] = sum(piece in weight for piece in pieces) / max(1, len(pieces))
    return recall, precision


def _stretches(found: Matches, blocks: Sequence[Block]) -> dict[str, Floats]:
    """Score the text between block borders: the stretch that a reader sees between two headings."""
    n = len(found.lengths)
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
        "stretch": np.repeat(scale_to_one(spans.bm25()), lengths),
        "stretch_coverage": np.repeat(spans.coverage(), lengths),
    }


BEST_SHARE, BEST_LINES = 0.02, 5
MOST_WORDS = 25
WORD_CHARS = 3
COMMON_SHARE = 0.15  # of the lines: a more frequent word carries no information


def _cooccurrence(words: TextWords, first_guess: Floats, blocks: Sequence[Block]) -> dict[str, Floats]:
    """Score words that co-occur with the goal's: if the goal says `retry`, lines with `backoff` may answer it too.

    Words that are more frequent in the lines that match the goal best than elsewhere are then searched in the whole
    text.
    """
    echo = words.per_line(_cooccurrence_weights(words, first_guess))
    columns = BlockColumns.of(blocks, words.line_count)
    return {
        "echo": scale_to_one(echo),
        "echo_near": scale_to_one(spread(echo, 2)),
        "echo_wide": scale_to_one(spread(echo, 8)),
        "echo_block": columns.here(scale_to_one(columns.means(echo))),
    }


def _cooccurrence_weights(words: TextWords, first_guess: Floats) -> Floats:
    """Return for each word how much more often it occurs in the best lines than elsewhere."""
    n = words.line_count
    size = len(words.vocabulary)
    best = np.argsort(-np.round(first_guess, 9), kind="stable")[: max(BEST_LINES, int(n * BEST_SHARE))]
    trust = np.zeros(n)
    trust[best] = first_guess[best]
    total = float(trust.sum())
    if not total or not size:
        return np.zeros(size)
    seen = np.bincount(words.ids, minlength=size)
    among_best = np.bincount(words.ids, weights=trust[words.rows], minlength=size) / total
    weights = np.maximum(among_best - seen / n, 0) * np.log(1 + (n - np.minimum(seen, n) + 0.5) / (seen + 0.5))
    is_word = np.array([len(word) >= WORD_CHARS and not word.isdigit() for word in words.vocabulary])
    weights = np.where(is_word & (seen > 1) & (seen <= COMMON_SHARE * n), weights, 0.0)
    weights[np.argsort(-np.round(weights, 9), kind="stable")[MOST_WORDS:]] = 0.0
    return weights


LEVEL_CHARS = 600
OF_LOGS = ("trouble", "alarm", "rare", "late", "system", *(f"is_{mark}" for mark in MARKS))


def log_signals(lines: Sequence[str], outline: Outline, check: Callable[[], None]) -> dict[str, Floats]:
    """`trouble` with its context, `rare` by template, `late` by position, `system` where nothing ends."""
    n = len(lines)
    shapes, alarm = _log_lines(lines, check)
    seen = Counter(shapes)
    rare = np.array([1 / (1 + math.log(seen[s])) if s else 0.0 for s in shapes])
    return {
        "trouble": fading(alarm * (0.4 + 0.6 * rare), before=0.6, after=0.8),
        "alarm": fading(alarm * rare, before=0.3, after=0.3),
        "rare": fading(rare, before=0.4, after=0.4),
        "late": np.linspace(0.0, 1.0, n) if n > 1 else np.ones(n),
        "system": np.full(n, 1.0 if outline.language == "system" else 0.0),
        **{f"is_{mark}": np.array([float(why == mark) for why in outline.protected]) for mark in MARKS},
    }


def _log_lines(lines: Sequence[str], check: Callable[[], None]) -> tuple[list[str], Floats]:
    """Return the template and the failure level of each line; those that differ in digits alone are read once."""
    known: dict[str, tuple[str, float]] = {}
    found: list[tuple[str, float]] = []
    for i, line in enumerate(lines):
        if i % CHECK_EVERY == 0:
            check()
        key = without_numbers(line)
        if key not in known:
            known[key] = (template(key), failure_level(line[:LEVEL_CHARS]))
        found.append(known[key])
    return [shape for shape, _ in found], np.array([level for _, level in found])


SHAPES = ("indent", "deeper", "length", "wordless", "comment", "calls", "digits", "repeats")
LINE_CHARS = 200
MOST_CALLS = 4
MOST_REPEATS = 10

_COMMENT = re.compile(r"#(?!include|define|if|endif)|//|/?\*|--|;;|<!--|\"\"\"|'''|\.\. ")
_COMMENT_SIGNS = frozenset("#/*-;<\"'.")
_LETTER = re.compile(r"[^\W_]")  # or a digit
_DIGIT = re.compile(r"\d")
_MARKED = {"import": "import", "signature": "signature", "signature+": "signature", "heading": "heading"}


def _line_shapes(lines: Sequence[str], words: TextWords) -> dict[str, Floats]:
    """Signals of a line that need no goal."""
    heads = [line[:LINE_CHARS] for line in lines]
    begun = [head.lstrip() for head in heads]
    bare = [head.rstrip() for head in begun]
    seen = Counter(bare)
    lengths = np.array([len(head) for head in heads], dtype=np.int64)
    indent = np.minimum(40, lengths - np.array([len(head) for head in begun], dtype=np.int64)) / 40
    comments = [head[:1] in _COMMENT_SIGNS and _COMMENT.match(head) is not None for head in begun]
    return {
        "indent": indent,
        "deeper": 0.5 + np.diff(indent, prepend=indent[:1]),
        "length": lengths / LINE_CHARS,
        "wordless": 1.0 - _lines_with(lines, words, _LETTER),
        "comment": np.array(comments, dtype=np.float64),
        "calls": np.minimum(MOST_CALLS, [head.count("(") for head in heads]) / MOST_CALLS,
        "digits": _lines_with(lines, words, _DIGIT),
        "repeats": np.minimum(MOST_REPEATS, [seen[head] for head in bare]) / MOST_REPEATS,
    }


def _lines_with(lines: Sequence[str], words: TextWords, sign: re.Pattern[str]) -> Floats:
    """Return 1 for each line with a match in its head; letters and digits stand in words, which are looked at once."""
    having = np.array([sign.search(word) is not None for word in words.vocabulary], dtype=bool)
    found = np.zeros(len(lines))
    if len(having):
        found[words.rows[having[words.ids]]] = 1.0
    for row, line in enumerate(lines):
        if len(line) > LINE_CHARS:
            found[row] = float(sign.search(line[:LINE_CHARS]) is not None)
    return found


OF_OUTLINES = ("is_import", "is_signature", "is_heading", "in_fence")


def _outline_marks(outline: Outline) -> dict[str, Floats]:
    """Signals of a line that come from the structure of the text."""
    in_fence = np.zeros(len(outline.protected))
    for block in outline.blocks:
        if block.kind in ("fence", "table"):
            in_fence[block.start : block.end] = 1.0
    marks = [_MARKED.get(why) for why in outline.protected]
    kinds = ("import", "signature", "heading")
    return {f"is_{kind}": np.array([float(mark == kind) for mark in marks]) for kind in kinds} | {"in_fence": in_fence}
