"""The markers that stand where something was cut: one grammar, written and read here."""

import re
from dataclasses import dataclass

REASON_MAX_CHARS = 80

_PRUNED = re.compile(
    r"^⟦PRUNÉ: prune_id=(?P<prune_id>\S+) "
    r"lignes (?P<start>\d+)-(?P<end>\d+) \((?P<count>\d+)\) raison=(?P<reason>.*)⟧$"
)
# Control characters, line separators and bidirectional overrides would let a reason break its line.
_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff⟦⟧]+"
)

NO_PRUNE_BEGIN = "⟦NO_PRUNE_BEGIN⟧"
NO_PRUNE_END = "⟦NO_PRUNE_END⟧"


@dataclass(frozen=True, slots=True)
class PruneMarker:
    prune_id: str
    start: int
    end: int
    reason: str

    @property
    def count(self) -> int:
        return self.end - self.start + 1

    def __str__(self) -> str:
        span = f"lignes {self.start}-{self.end} ({self.count})"
        return f"⟦PRUNÉ: prune_id={self.prune_id} {span} raison={self.reason}⟧"


def read(line: str) -> PruneMarker | None:
    """The marker that `line` spells, if it does. Anybody can spell one: it proves nothing."""
    found = _PRUNED.match(line)
    if found is None:
        return None
    start, end = int(found["start"]), int(found["end"])
    if int(found["count"]) != end - start + 1:
        return None
    return PruneMarker(found["prune_id"], start, end, found["reason"])


def clean_reason(text: str) -> str:
    """`text` made fit for a marker: one line, printable, without the brackets, at most 80 characters."""
    one_line = " ".join(_UNPRINTABLE.sub(" ", text).split())
    return one_line if len(one_line) <= REASON_MAX_CHARS else one_line[: REASON_MAX_CHARS - 1].rstrip() + "…"
