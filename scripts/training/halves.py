"""How well logs of tools are judged by what was learned from others: each half of the tools by the other half."""

from collections.abc import Sequence

import figures
import fitting
from lessons import of_logs
from logbook import HALVES, Entry

from kimi_proxy.features.evaluation.judging import Judged
from kimi_proxy.features.pruning.model import file, installed


def tell(entries: Sequence[Entry], seed: int) -> None:
    judged: list[Judged] = []
    for half in HALVES:
        others = [entry for entry in entries if not entry.tools & half]
        scorers = installed.load(file.write(fitting.fit(of_logs(others, seed), seed)))
        judged += figures.judged([one.case for one in entries if one.tools <= half and one.answered], scorers)
    figures.tell(judged)
