"""A prune of records: whole lines of a text with lines, parts of a text of one line, within the contract's limits; and
why each of them stayed or went, in words that a person can check.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core.markers import NO_PRUNE_BEGIN, PruneMarker, clean_reason
from kimi_proxy.core.prune import Annotation, Cut, Question
from kimi_proxy.features.pruning.explain import LineWhy
from kimi_proxy.features.records.choose import ODD_WEIGHT, WORTH_KEEPING, JudgedUnit, Ranking
from kimi_proxy.features.records.read import read
from kimi_proxy.features.records.tree import PLAIN, RecordGap, is_in_few_lines, part_starts, pin_broken_lines, write

LARGER = 1.15  # the share of the text that stays grows so until few enough lines go
TRIES = 24


def line_starts(text: str) -> list[int]:
    """Return where each line begins."""
    return list(accumulate((len(line) + 1 for line in text_lines.split(text)[:-1]), initial=0))


@dataclass(frozen=True, slots=True)
class RecordCuts:
    """The cuts in a text of records. Where they count parts, `shown` is the remaining text."""

    annotations: tuple[Annotation, ...]
    part_starts: tuple[int, ...] = ()
    shown: str | None = None


def prune_records(question: Question, prune_id: str, check: Callable[[], None]) -> RecordCuts | None:
    """Return the records that matter less; None if the text is not made of records, or holds a directive."""
    text, options = question.text, question.options
    root = read(text) if NO_PRUNE_BEGIN not in text else None
    if root is None:
        return None
    by_parts = is_in_few_lines(text)
    if not by_parts:
        pin_broken_lines(text, root)
    starts = part_starts(root) if by_parts else line_starts(text)
    room = min(math.floor(len(starts) * options.max_prune_ratio), len(starts) - options.min_keep_lines)
    if room <= 0:
        return None
    floor = (1 - options.max_prune_ratio) * len(text)
    ranking = Ranking(text, root, question.goal, max(1, int(floor)), check)
    for _ in range(TRIES):
        check()
        found = ranking.pick(len(text), int(floor)) or []
        cuts = [cut_of(starts, gap) for gap in found]
        if sum(cut.count for cut in cuts) <= room:
            return _record_cuts(question, prune_id, found, cuts, starts if by_parts else ())
        floor *= LARGER
    return RecordCuts(())


def cut_of(starts: Sequence[int], gap: RecordGap) -> Cut:
    """Return a gap as the rows that it takes, which begin at `starts`."""
    first, last = bisect_right(starts, gap.start), bisect_right(starts, gap.end - 1)
    return Cut(first, last, gap_reason(gap))


ONE, MANY = "un élément semblable", "éléments semblables"


def gap_reason(gap: RecordGap) -> str:
    """Return why records went; if some of them report errors, how many do."""
    errors = f"dont {gap.errors} erreur{'s' if gap.errors > 1 else ''}, " if gap.errors else ""
    return clean_reason(errors + (f"{gap.count} {MANY}" if gap.count > 1 else ONE))


def is_of_records(cut: Cut) -> bool:
    """Return whether a cut was made by choosing among records."""
    return cut.reason.endswith((ONE, MANY))


def _record_cuts(
    question: Question, prune_id: str, found: Sequence[RecordGap], cuts: Sequence[Cut], starts: Sequence[int]
) -> RecordCuts:
    """Return the cuts, which count parts where `starts` says where those begin."""
    text = question.text
    markers = [str(PruneMarker(prune_id, cut.start, cut.end, cut.reason)) for cut in cuts]
    if not starts:
        lines = (_line_around(text, gap, marker) for gap, marker in zip(found, markers, strict=True))
        return RecordCuts(tuple(map(Annotation, cuts, lines)))
    said = dict(zip((gap.start for gap in found), markers, strict=True))
    if not question.options.include_markers:
        found, said = [replace(gap, style=PLAIN) for gap in found], dict.fromkeys(said, "")
    shown = write(text, found, lambda gap: said[gap.start])
    return RecordCuts(tuple(map(Annotation, cuts, markers)), tuple(starts), shown)


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
