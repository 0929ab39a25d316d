"""Lessons from agents' sessions: which rows of a tool's output were used, and of which outputs any were."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from lessons import Lesson, sampled

from evaluation.used_cases import UsedOutput, outputs
from kimi_proxy.core.lines import split
from kimi_proxy.core.prune import CallContext
from kimi_proxy.features.pruning.call_signals import output_signals
from kimi_proxy.features.pruning.engine import outline
from kimi_proxy.features.pruning.model import to_steps
from kimi_proxy.features.pruning.score import USED, USED_OUTPUT
from kimi_proxy.features.pruning.signals import measure, wider_goal
from kimi_proxy.lab.transcripts import places

MIN_TOKENS = 400  # shorter outputs than those that are cut teach the same
MAX_LINES = 8000
UNUSED_ROWS = 80
OF_SESSIONS = frozenset({"goal_words", "known", "met", "said_words"})
UNUSED_WEIGHT = 0.4  # of a row of an output that was not used; those of used ones weigh 1 / √ of how many were


def lessons(folders: Iterable[Path], seed: int) -> Iterator[Lesson]:
    """Yield two lessons for each output: of its rows, and of it as a whole."""
    rng = np.random.default_rng(seed)
    for folder in folders:
        for place in sorted(places.find([(folder.name, folder)]), key=lambda one: (one.path, one.name)):
            for transcript in places.load(place):
                for output in outputs(transcript, MIN_TOKENS):
                    yield from _of_output(output, rng)


def _of_output(output: UsedOutput, rng: np.random.Generator) -> Iterator[Lesson]:
    case, lines = output.case, split(output.case.text)
    if len(lines) > MAX_LINES or not output.countable:
        return
    found = outline(lines, case.source_type)
    goal = wider_goal(case.goal, output.context)
    signals = measure(lines, goal, case.source_type, found, lambda: None, output.context)
    answers = np.zeros(len(lines), dtype=bool)
    answers[list(case.gold)] = True
    # Rows too short to count are learned as not used: left out, they would get any score, and cuts would be crumbs.
    spoken = np.array([bool(line.strip()) for line in lines])
    rows = sampled(answers, spoken, rng) if case.gold else sampled(answers, spoken, rng, UNUSED_ROWS)
    nothing = np.zeros(len(lines))
    table = np.stack([to_steps(signals.get(name, nothing)[rows]) for name in SIGNALS], axis=1).astype(np.uint16)
    weight = 1 / np.sqrt(len(case.gold)) if case.gold else UNUSED_WEIGHT
    yield Lesson(USED, SIGNALS, table, answers[rows], float(weight))
    whole = output_signals(lines, output.context)
    names = sorted(whole)
    row = np.array([to_steps(np.array([whole[name] for name in names]))], dtype=np.uint16)
    yield Lesson(USED_OUTPUT, names, row, np.array([bool(case.gold)]))


def _signals() -> list[str]:
    """Return the names of the signals that any type of text has, but for those that only tell sessions apart."""
    every = measure([""], "", "logs", outline([""], "logs"), lambda: None, CallContext(""))
    return sorted(name for name in every if not name.startswith("wants_") and name not in OF_SESSIONS)


SIGNALS = _signals()
