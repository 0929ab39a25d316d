"""One way to fit a text into a budget: the pruner, the sanitizer, the gateway, the tools and the hooks all use it.

It chooses records if the text has any, otherwise lines. The head and the tail are used only if there is nothing to
choose by.
"""

from collections.abc import Callable, Sequence

from kimi_proxy.core.markers import MaskMarker, PruneMarker
from kimi_proxy.features.pruning import source_type
from kimi_proxy.features.records.choose import Ranking
from kimi_proxy.features.records.prune import gap_reason
from kimi_proxy.features.records.read import read, read_rows
from kimi_proxy.features.records.tree import PIECE, RecordGap, fills_lines, write

TIGHTER = 0.85  # of the characters tried before, while the rest has too many tokens
TRIES = 6


def no_deadline() -> None:
    pass


def rank(text: str, goal: str, max_chars: int, check: Callable[[], None] = no_deadline) -> Ranking | None:
    """Return the records of a text, else its lines, in the order in which they stay; None if it has neither.

    None also for lines among which nothing answers the goal and nothing failed.
    """
    root = read(text)
    if root is not None:
        ranking = Ranking(text, root, goal, max_chars, check)
        return ranking if ranking.has_choice or root.children[0].key != PIECE else None
    rows = read_rows(text)
    if rows is None:
        return None
    is_log = source_type.guess("", text) == "logs"
    ranking = Ranking(text, rows, goal, max_chars, check, by_oddness=is_log, is_by_lines=True)
    return ranking if ranking.has_choice else None


def within_tokens(
    ranking: Ranking,
    text: str,
    max_tokens: int,
    tokens_before: int,
    count: Callable[[Sequence[RecordGap]], int],
    floor_share: float,
) -> list[RecordGap] | None:
    """Return the gaps that reduce the rest to at most `max_tokens`, counted by `count`; None if that is impossible.

    Ordinary records stay until `floor_share` of that is left.
    """
    chars = max_tokens * len(text) / max(1, tokens_before)
    for _ in range(TRIES):
        found = ranking.pick(int(chars), int(floor_share * chars))
        if not found:
            return None
        if count(found) <= max_tokens:
            return found
        chars *= TIGHTER
    return None


def fills_all_lines(text: str, gaps: Sequence[RecordGap]) -> bool:
    """Return whether each gap is made of whole lines: then markers name them by their numbers."""
    return "\n" in text and all(fills_lines(text, gap.start, gap.end) for gap in gaps)


def write_by_lines(text: str, gaps: Sequence[RecordGap], prune_id: str, hint: str = "") -> str:
    """Return `text` with gaps of whole lines, each marked with its line numbers; `hint` is in the first marker."""

    def marker(gap: RecordGap) -> str:
        first = text.count("\n", 0, gap.start) + 1
        last = first + text.count("\n", gap.start, gap.end)
        return _with_hint(str(PruneMarker(prune_id, first, last, gap_reason(gap))), hint, gap is gaps[0])

    return write(text, gaps, marker)


def write_by_chars(text: str, gaps: Sequence[RecordGap], mask_id: str, hint: str = "") -> str:
    """Return `text` with gaps marked by character counts: `head` before a gap, `tail` after it."""

    def marker(gap: RecordGap) -> str:
        said = str(MaskMarker(mask_id, len(text), gap.start, len(text) - gap.end)).strip()
        return _with_hint(said, hint, gap is gaps[0])

    return write(text, gaps, marker)


def _with_hint(marker: str, hint: str, is_first: bool) -> str:
    # Two hyphens would end a comment of XML.
    return f"{marker} {hint.replace('--', '—')}" if hint and is_first else marker
