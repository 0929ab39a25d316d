"""What a log is made of: failures and traces, and windows of the lines between."""

import re
from collections.abc import Callable, Iterable, Sequence

from kimi_proxy.features.pruning.structure import failures
from kimi_proxy.features.pruning.structure.blocks import Block, Outline, Span, nest
from kimi_proxy.features.pruning.structure.failures import diagnostics
from kimi_proxy.features.pruning.structure.log_lines import LINE_CHARS, Words, bare, spread, templates, voice

# The contract keeps every line with one of these.
ALWAYS = ("error", "exception", "traceback")
# Words that a line about trouble has; others have them too, so they weigh less.
TROUBLE = (
    "fatal", "panic", "fail", "critical", "segfault", "segmentation fault",
    "core dumped", "abort", "killed", "not ok ", "err!", "could not", "couldn't", "unable to", "cannot ",
    "undefined reference", "no such file", "permission denied", "timed out", "exit code", "exit status",
    "exited with", "out of memory", "assertion", "unhandled", "deadlock", "corrupt", "short test summary",
    "✗", "✕", "✖", "✘",
)  # fmt: skip

# Names that hold a word for trouble.
_NAMES = (
    "stderr", "-werror", "error_log", "error.log", "errorlog", "error_handler", "errorhandler", "error-handler",
    "error_page", "error_reporting", "error_level", "errorlevel", "onerror", "on_error", "on-error", "error-prone",
    "errorprone", "error_prone", "ignore_errors", "ignore-errors", "if error", "continue-on-error", "failsafe",
    "fail-safe", "fail-fast", "failfast", "failover", "fail2ban", "failure_domain", "--fail", "no-fail", "lasterror",
    "nothrow",
    "uncaughtexception handler", "set -e", "error rate", "error budget",
)  # fmt: skip
_NOTHING = re.compile(
    r"\b(?:0|no|zero|without|any)\s+(?:\w+\s+)?(?:errors?|failures?|failed|exceptions?|failing|fatal)\b"
    r"|\b(?:errors?|failures?|failed|exceptions?|failing|fatal)\s*[:=]\s*(?:0\b(?!\.)|\[\]|none\b|null\b|false\b)"
    r"|\bexit(?:ed)?\s(?:code|status|with)(?:\s(?:code|status))?\s?[:=]?\s?0\b"
)
_NOTHING_SIGNS = ("0", "no ", "zero", "without", "none", "null", "[]", "false", "any ")


def means_trouble(low: str) -> bool:
    """Whether a line in lower case with a word for trouble still has one once names and zeros are taken out."""
    if any(sign in low for sign in _NOTHING_SIGNS):
        low = _NOTHING.sub("", low)
    for name in _NAMES:
        if name in low:
            low = low.replace(name, "")
    return any(word in low for word in ALWAYS) or any(word in low for word in TROUBLE)


# Above this share of a log, alerts are its normal voice: only the first and last of each template must stay.
FULL_OF_ALWAYS = 0.15
FULL_OF_TROUBLE = 0.04
# Of a longer block the two ends must stay.
WHOLE_LINES = 200
ANNOUNCED_LINES = 12
WINDOW_LINES = 25


def outline(lines: Sequence[str], check: Callable[[], None]) -> Outline:
    plain = [bare(line) for line in lines]
    words = Words([line[:LINE_CHARS] for line in lines])
    check()
    spans = failures.read(plain, words, check)
    who = voice(plain, lines)
    if who == "ci":
        spans += _few_diagnostics(plain, check)
    protected = [""] * len(lines)
    _protect_alerts(words, protected, check)
    _protect_spans(plain, spans, protected)
    blocks = nest(spans, len(lines))
    check()
    return Outline(nest([*spans, *_windows(plain, blocks)], len(lines)), tuple(protected), who)


def _few_diagnostics(plain: Sequence[str], check: Callable[[], None]) -> list[Span]:
    """The diagnostics of a build, unless it printed them by the hundred."""
    found = diagnostics(plain, check)
    return found if sum(span.end - span.start for span in found) <= FULL_OF_TROUBLE * len(plain) else []


def _protect_alerts(words: Words, protected: list[str], check: Callable[[], None]) -> None:
    """Mark the lines that speak of trouble, and while those are few, the lines around them."""
    count = len(protected)
    always = words.rows(*ALWAYS)
    check()
    loud = words.rows(*TROUBLE) - always
    check()
    always = _few(words, always, FULL_OF_ALWAYS * count)
    loud = {row for row in _few(words, loud, FULL_OF_TROUBLE * count) if means_trouble(words.lines[row])}
    meant = loud | {row for row in always if means_trouble(words.lines[row])}
    if len(meant) <= FULL_OF_TROUBLE * count:
        for row in spread(meant, count) | _announced(words.lines, meant):
            if words.lines[row].strip():
                protected[row] = "context"
    for row in always | loud:
        protected[row] = "error"


def _announced(lines: Sequence[str], rows: Iterable[int]) -> set[int]:
    """The paragraph after a line that ends with a colon."""
    found: set[int] = set()
    for row in rows:
        if lines[row].rstrip().endswith(":"):
            start = row + 1 if row + 1 < len(lines) and lines[row + 1].strip() else row + 2
            stop = min(start + ANNOUNCED_LINES, len(lines))
            end = next((at for at in range(start, stop) if not lines[at].strip()), stop)
            found.update(range(start, end))
    return found


def _few(words: Words, rows: set[int], most: float) -> set[int]:
    """`rows`, or if they are more than `most` the first and the last of each template."""
    if len(rows) <= most:
        return rows
    ordered = sorted(rows)
    return _ends_of_kinds(ordered, templates(words.lines[row] for row in ordered))


def _ends_of_kinds(rows: Iterable[int], kinds: Iterable[str]) -> set[int]:
    """The first and the last row of each kind."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for row, kind in zip(rows, kinds, strict=True):
        first.setdefault(kind, row)
        last[kind] = row
    return {*first.values(), *last.values()}


def _protect_spans(plain: Sequence[str], spans: Sequence[Span], protected: list[str]) -> None:
    """Protect whole blocks; of those that repeat, the first and the last."""
    kept = _ends_of_kinds(range(len(spans)), templates(span.name for span in spans))
    for at in sorted(kept, reverse=True):
        span = spans[at]
        for row in range(span.start, span.end):
            near_an_end = row < span.start + WHOLE_LINES // 2 or row >= span.end - WHOLE_LINES // 2
            if near_an_end and plain[row].strip():
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
