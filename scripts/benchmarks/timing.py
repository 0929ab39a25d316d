"""How a figure is taken: repeated, sorted, told as a median with its 95th percentile."""

import statistics
import time
from collections.abc import Callable, Sequence


def timed(work: Callable[[], object], times: int) -> list[float]:
    """Milliseconds of each run, after one that is not counted."""
    work()
    out: list[float] = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        out.append((time.perf_counter() - start) * 1000)
    return out


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def p95(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, round(0.95 * (len(values) - 1)))]


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n## {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |")
