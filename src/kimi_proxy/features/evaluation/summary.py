"""Figures of many cases: a table for each type of text, a row for each contestant."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kimi_proxy.core.prune import SOURCE_TYPES, SourceType
from kimi_proxy.features.evaluation.judging import Judged
from kimi_proxy.features.evaluation.measures import BUDGETS, Estimate, estimate

HARDEST = 10
TELLING = 1  # the budget by whose recall cases are called hard


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant over all cases of a type. Lists have one entry for each budget."""

    name: str
    recall: tuple[Estimate, ...]
    complete: tuple[float, ...]
    parses: tuple[float | None, ...]
    ahead: tuple[Estimate, ...]  # the first contestant's recall minus this one's, case by case
    ms: float


@dataclass(frozen=True, slots=True)
class Table:
    source_type: SourceType
    kinds: Mapping[str, int]
    rows: tuple[Row, ...]

    @property
    def cases(self) -> int:
        return sum(self.kinds.values())


def tables(judged: Sequence[Judged], seed: int) -> list[Table]:
    """The first contestant met is the one that all others are compared with."""
    found: list[Table] = []
    for source_type in SOURCE_TYPES:
        own = [j for j in judged if j.case.source_type == source_type]
        if own:
            kinds = Counter(j.case.kind for j in own if j.contestant == own[0].contestant)
            found.append(Table(source_type, dict(sorted(kinds.items())), tuple(_rows(own, seed))))
    return found


def _rows(judged: Sequence[Judged], seed: int) -> Iterable[Row]:
    by_name: dict[str, list[Judged]] = {}
    for j in judged:
        by_name.setdefault(j.contestant, []).append(j)
    first = next(iter(by_name.values()))
    for name, own in by_name.items():
        at = range(len(BUDGETS))
        recalls = [[j.figures[b].recall for j in own] for b in at]
        leads = [[f.figures[b].recall - j.figures[b].recall for f, j in zip(first, own, strict=True)] for b in at]
        yield Row(
            name,
            tuple(estimate(values, seed) for values in recalls),
            tuple(statistics.fmean(j.figures[b].complete for j in own) for b in at),
            tuple(_mean([j.figures[b].parses for j in own]) for b in at),
            tuple(estimate(values, seed) for values in leads),
            statistics.median(j.ms for j in own),
        )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def hardest(judged: Sequence[Judged]) -> list[Judged]:
    """Where the first contestant kept least of the answer."""
    if not judged:
        return []
    own = [j for j in judged if j.contestant == judged[0].contestant]
    return sorted(own, key=lambda j: (j.figures[TELLING].recall, j.case.id))[:HARDEST]
