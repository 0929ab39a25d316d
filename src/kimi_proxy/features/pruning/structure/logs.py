"""What a log is made of: traces, failures, and windows of the lines between."""

import re
from collections.abc import Callable, Iterable, Sequence

from kimi_proxy.features.pruning.structure import alerts
from kimi_proxy.features.pruning.structure.blocks import Block, Outline, Span, nest
from kimi_proxy.features.pruning.structure.failures import SUMMARY, failures
from kimi_proxy.features.pruning.structure.logtext import Words, bare
from kimi_proxy.features.pruning.structure.traces import traces
from kimi_proxy.features.pruning.template import template

# Above this share of a log, alerts are its normal voice: only the first and last of each kind must stay.
FULL_OF_ALERTS = 0.15
WINDOW_LINES = 25

_BLOCK_WORDS = ("traceback", "panic", "goroutine", "failures", "error", "fail", "● ", "went wrong", "stdout ----")
_SYSTEM = re.compile(
    r"""(?:
    [A-Z][a-z]{2}\ +\d{1,2}\ \d\d:\d\d:\d\d\ | \d{4}[-/.]\d\d[-/.]\d\d[ T,-]\d?\d:\d\d | \d{2,4}[-/]\d\d[-/]\d\d\ \d\d:\d\d
    | \d\d-\d\d\ \d\d:\d\d:\d\d | \[\w{3}\ \w{3}\ \d\d\ | \d{6}\ \d{6}\ | \d{8}-\d | \d{9,13}\ | -\ \d{9,10}\ | \[?\d\d\.\d\d\ \d\d:\d\d
    | \d+\.\d+\.\d+\.\d+\ -
    )""",
    re.VERBOSE,
)
_CI = re.compile(
    r"""(?:\$\ |travis_|\#\#\[|::group|\[INFO\]|Run\ |Step\ \d+|Collecting\ |Get:\d|npm\ |yarn\ |gem\ |Cloning\ |HEAD\ is\ now
    |Building\ |\[\s*\d+%\]|test_?\w*|Compiling\ |Downloading|Download\ |=====|collected\ \d|\#\d+\ |go:\ |ok\s+\t?\S+\s)""",
    re.VERBOSE,
)


def outline(lines: Sequence[str], check: Callable[[], None]) -> Outline:
    words = Words(lines)
    plain = [bare(line) for line in lines]
    check()
    spans = _troubles(words, plain, check)
    alerted = _alerts(words, plain, check)
    protected = [""] * len(lines)
    _protect_alerts(plain, alerted, protected)
    _protect_spans(plain, spans, protected)
    blocks = nest(spans, len(lines))
    return Outline(nest([*spans, *_windows(plain, blocks)], len(lines)), tuple(protected), _voice(lines))


def _troubles(words: Words, plain: Sequence[str], check: Callable[[], None]) -> list[Span]:
    suspects = words.rows(_BLOCK_WORDS)
    found = failures(plain, suspects, check)
    return [*found, *traces(plain, suspects, check)]


def _alerts(words: Words, plain: Sequence[str], check: Callable[[], None]) -> dict[int, bool]:
    """Rows with a word for trouble, and whether they mean it."""
    always = words.rows(alerts.ALWAYS)
    found = {row: alerts.is_alert(plain[row]) for row in always}
    check()
    for row in words.rows(alerts.TROUBLE) - always:
        if SUMMARY.match(plain[row]) or alerts.is_alert(plain[row]):
            found[row] = True
    return found


def _protect_alerts(plain: Sequence[str], alerted: dict[int, bool], protected: list[str]) -> None:
    kept: Iterable[int] = alerted
    if len(alerted) > FULL_OF_ALERTS * len(plain):
        kept = _ends_of_kinds(plain, alerted)
    for row in kept:
        protected[row] = "error"
    for row in kept:
        if alerted[row]:
            for near in (row - 1, row + 1):
                if 0 <= near < len(plain) and not protected[near] and plain[near].strip():
                    protected[near] = "context"


def _ends_of_kinds(plain: Sequence[str], rows: Iterable[int]) -> set[int]:
    """The first and the last row of each template."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for row in sorted(rows):
        kind = template(plain[row])
        first.setdefault(kind, row)
        last[kind] = row
    return {*first.values(), *last.values()}


def _protect_spans(plain: Sequence[str], spans: Sequence[Span], protected: list[str]) -> None:
    by_start = {span.start: span for span in spans}
    names = {span.start: span.name for span in spans}
    kept = _ends_of_kinds([names.get(row, "") for row in range(len(plain))], names) if spans else set()
    for start in kept:
        span = by_start[start]
        for row in range(span.start, span.end):
            if plain[row].strip():
                protected[row] = span.kind


def _windows(plain: Sequence[str], blocks: Sequence[Block]) -> list[Span]:
    """Runs of lines between blank lines and blocks, none longer than a screen."""
    taken = [False] * len(plain)
    for block in blocks:
        if not block.depth:
            taken[block.start : block.end] = [True] * (block.end - block.start)
    found: list[Span] = []
    start = -1
    for row, line in enumerate(plain):
        free = not taken[row] and bool(line.strip())
        if start >= 0 and (not free or row - start >= WINDOW_LINES):
            found.append(Span(start, row, start, "window"))
            start = -1
        if free and start < 0:
            start = row
    if start >= 0:
        found.append(Span(start, len(plain), start, "window"))
    return found


def _voice(lines: Sequence[str]) -> str:
    """Whether a machine kept this log over time, or a build wrote it once."""
    step = max(1, len(lines) // 200)
    sample = [line[:80] for line in lines[::step] if line.strip()]
    stamped = sum(1 for line in sample if _SYSTEM.match(line))
    built = sum(1 for line in sample if _CI.match(bare(line)))
    if stamped * 10 >= len(sample) * 7 and built * 20 < len(sample):
        return "system" if sample else ""
    return "ci" if built * 50 >= len(sample) and sample else ""
