"""An evaluation from end to end: contestants are asked about every case, and what they keep is judged."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.prune import Question
from kimi_proxy.features.evaluation import judging
from kimi_proxy.features.evaluation.case import Case
from kimi_proxy.features.evaluation.judging import Judged
from kimi_proxy.features.evaluation.measures import Kept
from kimi_proxy.features.evaluation.rankers import RANKERS
from kimi_proxy.features.pruning import engine
from kimi_proxy.proxy.pruner_endpoint import PrunerEndpoint, kept_rows

OURS = "kimi-proxy"
PRUNE_ID = "prn_0123456789abcdef"  # nothing is stored, but its marker is paid for


@dataclass(frozen=True, slots=True)
class Contestant:
    """A name, and what it reaches on a case."""

    name: str
    judge: Callable[[Case], Judged]


def contestants(endpoints: Sequence[PrunerEndpoint], addresses: Sequence[str]) -> list[Contestant]:
    """Ours first: the others are compared with it."""
    return [
        Contestant(OURS, lambda case: judging.pruning(OURS, case, _engine)),
        *(_remote(address, endpoint) for address, endpoint in zip(addresses, endpoints, strict=True)),
        *(_plain(name) for name in RANKERS),
    ]


def evaluate(cases: Sequence[Case], against: Sequence[Contestant]) -> Iterator[Judged]:
    """Case by case, so that whoever watches sees it go on."""
    tokens.count("")  # loads the vocabulary before anything is timed
    for case in cases:
        for contestant in against:
            yield contestant.judge(case)


def _plain(name: str) -> Contestant:
    ranker = RANKERS[name]
    return Contestant(name, lambda case: judging.ranking(name, case, ranker, time.perf_counter))


def _engine(question: Question) -> Kept:
    began = time.perf_counter()
    pruned = engine.prune(question, PRUNE_ID)
    return judging.kept_of(pruned, 1000 * (time.perf_counter() - began))


def _remote(name: str, endpoint: PrunerEndpoint) -> Contestant:
    def prune(question: Question) -> Kept:
        began = time.perf_counter()
        text = endpoint.prune(question)
        ms = 1000 * (time.perf_counter() - began)
        if text == question.text:
            return Kept([True] * len(text_lines.split(text)), 1.0, ms)
        share = tokens.count(text) / max(1, tokens.count(question.text))
        return Kept(kept_rows(question.text, text), min(1.0, share), ms)

    return Contestant(name, lambda case: judging.pruning(name, case, prune))
