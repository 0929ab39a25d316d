"""How well the scorer does on repositories that it has not seen, for the model card."""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath

from evaluation import judging
from evaluation.cases import Case
from evaluation.judging import BUDGETS, Judged, Kept, bm25_block
from kimi_proxy.core import tokens
from kimi_proxy.core.prune import Question
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.model import Scorers

PRUNE_ID = "prn_0123456789abcdef"
LEARNED, BY_HAND, BM25 = "learned", "set by hand", "BM25 block, then line"
LANGUAGES = {
    "Python": (".py", ".pyi"),
    "JavaScript, TypeScript": (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".tsx"),
    "Go": (".go",),
    "Rust": (".rs",),
    "Java": (".java",),
    "C, C++": (".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh"),
}


def judged(cases: Sequence[Case], scorers: Scorers) -> list[Judged]:
    tokens.count("")
    return [one for case in cases for one in _judged(case, scorers)]


def tell(judged: Sequence[Judged]) -> None:
    if not judged:
        return
    print(f"\nRecall at {', '.join(f'{b:.0%}' for b in BUDGETS)} of the tokens, markers included:\n")
    print(f"| text | cases | {LEARNED} | {BY_HAND} | {BM25} |\n|---|---|---|---|---|")
    for name, own in _groups(judged):
        row = [_told([j for j in own if j.contestant == who]) for who in (LEARNED, BY_HAND, BM25)]
        print(f"| {name} | {len(own) // 3} | {' | '.join(row)} |", flush=True)


def _judged(case: Case, scorers: Scorers) -> Iterable[Judged]:
    yield judging.pruning(LEARNED, case, _pruner(scorers))
    yield judging.pruning(BY_HAND, case, _pruner(Scorers()))
    yield judging.ranking(BM25, case, bm25_block, time.perf_counter)


def _pruner(scorers: Scorers) -> Callable[[Question], Kept]:
    return lambda question: judging.kept_of(engine.prune(question, PRUNE_ID, scorers=scorers), 0.0)


def _groups(judged: Sequence[Judged]) -> Iterable[tuple[str, list[Judged]]]:
    """By kind of text, by language and by kind of question, logs by tool; those that are there."""
    groups: dict[str, list[Judged]] = {}
    for one in judged:
        case = one.case
        names = [case.source_type, f"{case.source_type}: {case.path if case.kind == 'failure' else case.kind}"]
        if case.source_type == "code":
            names.append(f"code: {_language(case.path)}")
        for name in names:
            groups.setdefault(name, []).append(one)
    return sorted(groups.items())


def _language(path: str) -> str:
    suffix = PurePath(path).suffix.lower()
    return next((name for name, suffixes in LANGUAGES.items() if suffix in suffixes), "others")


def _told(judged: Sequence[Judged]) -> str:
    return told(statistics.fmean(one.figures[b].recall for one in judged) for b in range(len(BUDGETS)))


def told(shares: Iterable[float]) -> str:
    return " / ".join(f"{share:.3f}".removeprefix("0") for share in shares)
