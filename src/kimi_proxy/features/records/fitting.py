"""The forms of a text with gaps: markers that name its lines, or its characters."""

from collections.abc import Sequence

from kimi_proxy.core.markers import MaskMarker, PruneMarker
from kimi_proxy.features.records.prune import gap_reason, with_hint
from kimi_proxy.features.records.tree import RecordGap, write


def no_deadline() -> None:
    pass


def write_by_lines(text: str, gaps: Sequence[RecordGap], prune_id: str, hint: str = "") -> str:
    """Return `text` with gaps of whole lines, each marked with its line numbers; `hint` is in the first marker."""

    def marker(gap: RecordGap) -> str:
        first = text.count("\n", 0, gap.start) + 1
        last = first + text.count("\n", gap.start, gap.end)
        said = str(PruneMarker(prune_id, first, last, gap_reason(gap)))
        return with_hint(said, hint) if hint and gap is gaps[0] else said

    return write(text, gaps, marker)


def write_by_chars(text: str, gaps: Sequence[RecordGap], mask_id: str, hint: str = "") -> str:
    """Return `text` with gaps marked by character counts: `head` before a gap, `tail` after it."""

    def marker(gap: RecordGap) -> str:
        said = str(MaskMarker(mask_id, len(text), gap.start, len(text) - gap.end)).strip()
        return with_hint(said, hint) if hint and gap is gaps[0] else said

    return write(text, gaps, marker)
