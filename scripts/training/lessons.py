"""From a case to a lesson: the signals of lines that answer, and of some that don't."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from logbook import Entry
from numpy.typing import NDArray

from evaluation.cases import Case
from evaluation.mining import Repository
from kimi_proxy.core import lines as text_lines
from kimi_proxy.features.pruning.engine import outline
from kimi_proxy.features.pruning.model import to_steps
from kimi_proxy.features.pruning.signals import measure

WRONG_LINES = 200  # of a case; more of them teach the same again
UNANSWERED_WEIGHT = 0.5  # a question about what did not fail: its log teaches less than one with an answer


@dataclass(frozen=True, slots=True)
class Lesson:
    """Rows are lines, columns are signals in the order of `signals`; each row weighs `weight`."""

    forest: str  # a type of text, or what else is learned of it
    signals: Sequence[str]
    table: NDArray[np.uint16]
    answers: NDArray[np.bool_]
    weight: float = 1.0


def lessons(repository: Repository, cases: Iterable[Case], seed: int) -> Iterator[Lesson]:
    rng = np.random.default_rng(seed)
    for case in cases:
        yield lesson(case, rng)
        whole = _whole(repository, case)
        if whole is not None:
            yield lesson(whole, rng)


def of_logs(entries: Iterable[Entry], seed: int) -> list[Lesson]:
    rng = np.random.default_rng(seed)
    return [lesson(one.case, rng, 1.0 if one.answered else UNANSWERED_WEIGHT) for one in entries]


def _whole(repository: Repository, case: Case) -> Case | None:
    """The same question about the text as it is, the documentation that asks it not blanked.

    Else trees would learn that a section whose heading has the goal's words is never the right one.
    """
    text = repository.now(case.path) if case.kind in ("docstring", "section") else None
    if text is None:
        return None
    now, then = text_lines.split(text), text_lines.split(case.text)
    asking = {row for row, (line, blanked) in enumerate(zip(now, then, strict=True)) if line != blanked}
    return replace(case, text=text, gold=tuple(sorted({*case.gold, *asking})))


def lesson(case: Case, rng: np.random.Generator, weight: float = 1.0) -> Lesson:
    lines = text_lines.split(case.text)
    signals = measure(lines, case.goal, case.source_type, outline(lines, case.source_type), lambda: None)
    names = sorted(signals)
    answers = np.zeros(len(lines), dtype=bool)
    answers[list(case.gold)] = True
    spoken = np.array([bool(line.strip()) for line in lines])
    rows = sampled(answers & spoken, spoken, rng)
    table = np.stack([to_steps(signals[name][rows]) for name in names], axis=1).astype(np.uint16)
    # Every case counts the same, however many lines answer it: recall is measured so.
    return Lesson(case.source_type, names, table, answers[rows], weight / max(1, int(answers[rows].sum())))


def sampled(
    answers: NDArray[np.bool_], spoken: NDArray[np.bool_], rng: np.random.Generator, most_wrong: int = WRONG_LINES
) -> NDArray[np.int64]:
    """Return the rows that answer, and some of the others."""
    wrong = np.flatnonzero(spoken & ~answers)
    if len(wrong) > most_wrong:
        wrong = rng.choice(wrong, most_wrong, replace=False)
    return np.sort(np.concatenate([np.flatnonzero(answers), wrong]))
