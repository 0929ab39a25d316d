"""What a log is made of: failures and traces, and windows of the lines between."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from kimi_proxy.core.lines import split
from kimi_proxy.features import failures
from kimi_proxy.features.failures import diagnostics
from kimi_proxy.features.pruning.structure.blocks import Block, Outline, Span, nest

LINE_CHARS = 400

_ROOTS = ("error", "fail", "fatal", "panic", "exit", "summary")
_COLOUR = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]{0,200}\x07|\(B)")
# What may stand before the message. Only one space after it goes: indentation tells frames from what they belong to.
_STAMP = re.compile(
    r"""(?:
    \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[ ]?[+-]\d\d:?\d\d)?[ ]?
    | \[\d{4}-\d\d-\d\d[T ][^\]]{8,30}\][ ]?
    | \[?\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\]?[ ]
    )""",
    re.VERBOSE,
)


def bare(line: str) -> str:
    """`line` without colours and leading timestamp, cut at 400 characters."""
    line = line[:LINE_CHARS]
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    if "\r" in line:
        line = line.rstrip("\r").rsplit("\r", 1)[-1]
    if line[:1].isdigit() or line[:1] == "[":
        stamp = _STAMP.match(line)
        if stamp is not None:
            return line[stamp.end() :]
    return line


class Words:
    """Finds the rows that hold a word: a scan of the whole text per word, or per root that words share."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = [line.lower() for line in lines]
        self._text = "\n".join(self.lines)
        self._starts = list(accumulate((len(line) + 1 for line in self.lines), initial=0))
        self._by_root = {root: list(self._scan(root)) for root in _ROOTS}

    def rows(self, *words: str) -> set[int]:
        """Rows with any of `words`, which are lower case."""
        return {row for word in words for row in self._rows(word)}

    def _rows(self, word: str) -> Iterable[int]:
        root = next((root for root in _ROOTS if root in word), None)
        if root is None:
            return self._scan(word)
        rows = self._by_root[root]
        return rows if word == root else (row for row in rows if word in self.lines[row])

    def _scan(self, word: str) -> Iterator[int]:
        starts, text = self._starts, self._text
        row = 0
        at = text.find(word)
        while at >= 0:
            row = bisect_right(starts, at, row) - 1
            yield row
            at = text.find(word, starts[row + 1])


def spread(rows: Iterable[int], count: int) -> set[int]:
    """`rows` with the row before and the row after each."""
    return {near for row in rows for near in (row - 1, row, row + 1) if 0 <= near < count}


SAMPLE_LINES = 300

_CLOCK = re.compile(
    r"""(?:
    [A-Z][a-z]{2}\ +\d{1,2}\ \d\d:\d\d:\d\d\ | \d{4}[-/.]\d\d[-/.]\d\d[ T,-]\d?\d:\d\d
    | \d{2,4}[-/]\d\d[-/]\d\d\ \d\d:\d\d | \d\d-\d\d\ \d\d:\d\d:\d\d | \[\w{3}\ \w{3}\ \d\d\ | \d{6}\ \d{6}\
    | \d{8}-\d | -?\ ?\d{9,13}\ | \[\d\d\.\d\d\ \d\d:\d\d | [\d.]{7,15}\ -
    )""",
    re.VERBOSE,
)
# Runners stamp every line of a build to a ten-millionth of a second.
_RUNNER_CLOCK = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6,7}Z ")
_BUILD = re.compile(
    r"""(?:\$\ |travis_|\#\#\[|::group|\[INFO\]|\[ERROR\]|\[WARNING\]|Run\ |Step\ \d|Collecting\ |Get:\d|npm\ |yarn\
    |gem\ |Cloning\ |HEAD\ is\ now|Building\ |\[\s*\d+%\]|test_?\w*[\ :(]|Compiling\ |Download|=====|collected\ \d
    |go:\ |ok\s+\t?\S+\s|Receiving\ |remote:\ |Unpacking\ |Setting\ up\ |Preparing\ |Using\ |Installing\ |[✓✔✗]|\s+[✓✔✗]
    |g?make(?:\[|:)|\s*(?:CC|CXX|LD)\ |gcc\ |g\+\+\ |--\ |checking\ |configure:)""",
    re.VERBOSE,
)


# What every runner says at least once or twice, however quiet the build.
_RUNNER = (
    "$ ", "travis_", "##[", "::group", "The command ", "Done. Your build", "[Pipeline]", "Cloning into", "git clone",
    "remote: ", "HEAD is now", "Worker information", "Build system information", "Running on ", "Job succeeded",
    "Job failed", "+ ", "> ",
)  # fmt: skip


def voice(plain: Sequence[str], lines: Sequence[str]) -> str:
    """ "ci", "system", or "" when there is no telling. `plain` are the `lines` without their stamps."""
    step = max(1, len(lines) // SAMPLE_LINES)
    rows = [row for row in range(0, len(lines), step) if plain[row].strip()]
    if not rows:
        return ""
    built = sum(1 for row in rows if _RUNNER_CLOCK.match(lines[row]) or _BUILD.match(plain[row])) / len(rows)
    clocked = sum(1 for row in rows if _CLOCK.match(lines[row])) / len(rows)
    if built >= 0.05 and built > clocked - 0.7:
        return "ci"
    if clocked >= 0.7:
        return "system"
    if sum(1 for line in plain if line.startswith(_RUNNER)) >= 2:
        return "ci"
    kinds = len(set(templates(plain[row][:120] for row in rows))) / len(rows)
    return "system" if kinds < 0.3 and len(rows) > 50 else ""


_ZEROS = str.maketrans("123456789", "000000000")
_RUN_OF_ZEROS = re.compile("00+")
_TEMPLATE_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_QUOTED = re.compile(r'"[^"]{0,200}"')
_APOSTROPHES = re.compile(r"'[^']{0,200}'(?!\w)")
_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[\w.@+~-]*[/\\]){2,}[\w.@+~-]*")
_HEX = re.compile(r"\b(?:0x)?[0-9a-fA-F]{8,}(?:(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})?\b")
_DIGITS = re.compile(r"\w*0[\w.:,+-]*")
_VALUE = re.compile(r"=[^,;)\]}&]+")


def template(line: str) -> str:
    """`line` with quoted strings, paths, ids, values and whatever holds a digit replaced by `*`."""
    return templates([line])[0]


def templates(lines: Iterable[str]) -> list[str]:
    """The template of each line: each different word is looked at once, so this takes microseconds a line."""
    # Translating costs the same for a line as for thousands.
    plain = [_plain(line) for line in lines]
    shape = _Shapes().__getitem__
    return [" ".join(map(shape, line.split())) for line in split("\n".join(plain).translate(_ZEROS))] or plain


def rough(line: str) -> str:
    """`line` with every number read as 0: a cheap key under which most lines of one template meet."""
    return _RUN_OF_ZEROS.sub("0", line[:LINE_CHARS].translate(_ZEROS))


def _plain(line: str) -> str:
    """`line` on one line, without colours and quotations."""
    line = line[:LINE_CHARS]
    if "\x1b" in line:
        line = _TEMPLATE_COLOUR.sub("", line)
    if '"' in line:
        line = _QUOTED.sub("*", line)
    if "'" in line:
        line = _APOSTROPHES.sub("*", line)
    return line.replace("\n", " ")


class _Shapes(dict[str, str]):
    """From a word whose digits are all 0 to its shape."""

    def __missing__(self, word: str) -> str:
        shape = word
        if "=" in shape:
            shape = _VALUE.sub("=*", shape)
        if "/" in shape or "\\" in shape:
            shape = _PATH.sub("*", shape)
        if len(shape) >= 8:
            shape = _HEX.sub("*", shape)
        if "0" in shape:
            shape = _DIGITS.sub("*", shape)
        self[word] = shape
        return shape


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
    spans = failures.read(plain, words.rows, check)
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
