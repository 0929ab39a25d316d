"""A prune of records: whole lines of a text with lines, parts of a text of one line, within the contract's limits; and
why each of them stayed or went, in words that a person can check.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.markers import NO_PRUNE_BEGIN, PruneMarker, clean_reason
from kimi_proxy.core.prune import Annotation, Cut, Question
from kimi_proxy.features.pruning.explain import LineWhy
from kimi_proxy.features.records import tree
from kimi_proxy.features.records.choose import ODD_WEIGHT, WORTH_KEEPING, JudgedUnit, Ranking
from kimi_proxy.features.records.read import read
from kimi_proxy.features.records.tree import PLAIN, RecordGap, has_long_lines, part_starts, pin_broken_lines, write

TRIES_TO_FIT = 8
TIGHTER, MOST_TIGHTER = 0.98, 0.3
NEARLY_NOTHING = 0.15  # of the room
ORDINARY_SHARE = 0.6  # of the room: until then ordinary records stay
SAMPLE_MARKER = str(PruneMarker("prn_" + "0" * 16, 1000, 1999, "100 éléments semblables"))
LARGER = 1.15  # the share of the text that stays grows so until few enough lines go
TRIES = 24


def line_starts(text: str) -> list[int]:
    """Return where each line begins."""
    return list(accumulate((len(line) + 1 for line in text_lines.split(text)[:-1]), initial=0))


@dataclass(frozen=True, slots=True)
class RecordCuts:
    """The cuts in a text of records, and the same as gaps; `part_starts` is where parts begin, if those are counted."""

    gaps: tuple[tree.RecordGap, ...] = ()
    cuts: tuple[Cut, ...] = ()
    part_starts: tuple[int, ...] = ()
    has_choice: bool = True  # something in it answers the question, or is odd


def fit_records(question: Question, tokens_before: int, check: Callable[[], None]) -> RecordCuts | None:
    """Return the records that matter less; None if the text is not made of records, or holds a directive."""
    text = question.text
    options = question.options
    root = read(text) if NO_PRUNE_BEGIN not in text else None
    if root is None:
        return None
    by_parts = has_long_lines(text)
    has_pieces = bool(root.children) and root.children[0].key == tree.PIECE
    if not by_parts:
        pin_broken_lines(text, root)
    starts = part_starts(root) if by_parts else line_starts(text)
    most_rows = min(math.floor(len(starts) * options.max_prune_ratio), len(starts) - options.min_keep_lines)
    if most_rows <= 0:
        return None
    chars = (1 - options.max_prune_ratio) * len(text)
    if question.room:
        chars = question.room * len(text) / max(1, tokens_before)
    ranking = Ranking(text, root, question.goal, max(1, int(chars)), check)
    found = _within(question, ranking, chars, root.style is PLAIN and not by_parts, check) if question.room else ()
    if found is None:
        return None
    if not question.room or _rows_of(starts, found) > most_rows:
        found = _few_enough(text, ranking, chars, starts, most_rows, check)
    cuts = tuple(cut_of(starts, gap) for gap in found)
    return RecordCuts(tuple(found), cuts, tuple(starts) if by_parts else (), ranking.has_choice or not has_pieces)


def _rows_of(starts: Sequence[int], found: Sequence[RecordGap]) -> int:
    return sum(cut_of(starts, gap).count for gap in found)


def _few_enough(
    text: str, ranking: Ranking, chars: float, starts: Sequence[int], most_rows: int, check: Callable[[], None]
) -> Sequence[RecordGap]:
    """Return the gaps that leave about so many characters, or more until few enough rows go."""
    for _ in range(TRIES):
        check()
        found = ranking.pick(len(text), int(chars)) or []
        if _rows_of(starts, found) <= most_rows:
            return found
        chars *= LARGER
    return ()


def _within(
    question: Question, ranking: Ranking, chars: float, may_be_lines: bool, check: Callable[[], None]
) -> Sequence[RecordGap] | None:
    """Return the gaps that leave what fits into the room; None if that is too little, and lines may be chosen instead.

    Where only records keep the format valid, as little is left as can be.
    """
    best: Sequence[RecordGap] = ()
    for _ in range(TRIES_TO_FIT):
        check()
        found = ranking.pick(int(chars), int(ORDINARY_SHARE * chars))
        if found is None:
            break
        best = found
        left = tokens.count(write(question.text, found, lambda gap: SAMPLE_MARKER))
        if left <= question.room:
            return None if may_be_lines and left < NEARLY_NOTHING * question.room else found
        chars *= max(MOST_TIGHTER, TIGHTER * question.room / left)
    return None if may_be_lines else best


def cut_of(starts: Sequence[int], gap: RecordGap) -> Cut:
    """Return a gap as the rows that it takes, which begin at `starts`."""
    first = bisect_right(starts, gap.start)
    last = bisect_right(starts, gap.end - 1)
    return Cut(first, last, gap_reason(gap))


ONE, MANY = "un élément semblable", "éléments semblables"


def gap_reason(gap: RecordGap) -> str:
    """Return why records went; if some of them report errors, how many do."""
    errors = f"dont {gap.errors} erreur{'s' if gap.errors > 1 else ''}, " if gap.errors else ""
    return clean_reason(errors + (f"{gap.count} {MANY}" if gap.count > 1 else ONE))


def is_of_records(cut: Cut) -> bool:
    """Return whether a cut was made by choosing among records."""
    return cut.reason.endswith((ONE, MANY))


def annotate_records(text: str, found: RecordCuts, prune_id: str, hint: str = "") -> tuple[Annotation, ...]:
    """Return each cut with what replaces it: a line, or a marker among parts. `hint` is in the first marker."""
    markers = [str(PruneMarker(prune_id, cut.start, cut.end, cut.reason)) for cut in found.cuts]
    if hint and markers:
        markers[0] = with_hint(markers[0], hint)
    if not found.part_starts:
        markers = [_line_around(text, gap, marker) for gap, marker in zip(found.gaps, markers, strict=True)]
    return tuple(map(Annotation, found.cuts, markers))


def with_hint(marker: str, hint: str) -> str:
    """Return a marker that says how to read what it replaces."""
    # Two hyphens would end a comment of XML.
    return f"{marker} {hint.replace('--', '—')}"


def show_parts(text: str, found: RecordCuts, annotations: Sequence[Annotation], include_markers: bool) -> str:
    """Return what is left of a text that is counted in parts."""
    said = dict(zip((gap.start for gap in found.gaps), (one.marker for one in annotations), strict=True))
    if include_markers:
        return write(text, found.gaps, lambda gap: said[gap.start])
    return write(text, [replace(gap, style=PLAIN) for gap in found.gaps], lambda gap: "")


def _line_around(text: str, gap: RecordGap, marker: str) -> str:
    """Return the line that replaces a gap's lines, with their indentation and comma."""
    line = text.rfind("\n", 0, gap.start) + 1
    end = text.find("\n", gap.end)
    return f"{text[line : gap.start]}{gap.style.wrap(marker)}{text[gap.end : len(text) if end < 0 else end]}"


FRAME = "an example of the records, or the surroundings of kept ones"


def explain_records(
    question: Question, cuts: Sequence[Cut], part_starts: Sequence[int], check: Callable[[], None]
) -> list[LineWhy] | None:
    """Return a row for each line, or each part that begins at `part_starts`; None if it was not cut by its records."""
    text = question.text
    if NO_PRUNE_BEGIN in text or not cuts or not all(map(is_of_records, cuts)):
        return None
    root = read(text)
    if root is None:
        return None
    budget = max(1, int((1 - question.options.max_prune_ratio) * len(text)))
    judged = list(Ranking(text, root, question.goal, budget, check).judge())
    starts = part_starts or line_starts(text)
    reason_of = {row: cut.reason for cut in cuts for row in range(cut.start, cut.end + 1)}
    rows: list[LineWhy] = []
    at = 0
    for row, (start, end) in enumerate(zip(starts, (*starts[1:], len(text) + 1), strict=True), 1):
        while at < len(judged) and judged[at].end <= start:
            at += 1
        inside = at
        found: list[JudgedUnit] = []
        while inside < len(judged) and judged[inside].start < end:
            found.append(judged[inside])
            inside += 1
        rows.append(_why(row, found, reason_of.get(row)))
    return rows


def _why(row: int, units: Sequence[JudgedUnit], cut_because: str | None) -> LineWhy:
    best = max(units, key=_worth, default=None)
    speaks = _speaks(best) if best is not None else ""
    score = round(min(1.0, _worth(best)), 3) if best is not None else 0.0
    if cut_because is None:
        return LineWhy(row, True, score, speaks or FRAME)
    outweighed = f"outweighed: {speaks}" if speaks else "like the records next to it"
    return LineWhy(row, False, score, f"cut, {cut_because}; {outweighed}")


def _worth(unit: JudgedUnit) -> float:
    return unit.goal + ODD_WEIGHT * unit.odd


def _speaks(unit: JudgedUnit) -> str:
    """Return the reasons to keep a unit; empty if there are none."""
    if _worth(unit) < WORTH_KEEPING:
        return ""
    failed = "reports a failure" if unit.failed else "differs from the records beside it"
    said = ((unit.goal, "matches the goal"), (ODD_WEIGHT * unit.odd, failed))
    return ", ".join(words for weight, words in sorted(said, reverse=True) if weight >= WORTH_KEEPING / 2)
