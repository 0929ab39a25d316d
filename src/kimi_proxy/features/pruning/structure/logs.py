"""The structure of a log: reports of failures and traces, windows of the lines between, templates of lines, and
routine lines: those that look like many others, report nothing, and have no rare word of the goal.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from string import ascii_lowercase, digits

from kimi_proxy.core.lines import split
from kimi_proxy.features import failures
from kimi_proxy.features.failures import ALERT_WORDS, CONTRACT_WORDS, reports_failure, reports_server_error
from kimi_proxy.features.pruning.structure.blocks import Block, Outline, Span, nest

LINE_CHARS = 400
# Above this share of a log, alerts are nothing unusual in it: only the first and last of each template must stay.
FULL_OF_CONTRACT_WORDS = 0.15
FULL_OF_ALERTS = 0.04
WHOLE_LINES = 200  # of a longer block only the two ends must stay
ANNOUNCED_LINES = 12
WINDOW_LINES = 25
CHECKED_LINES = 2000  # a few milliseconds


class WordIndex:
    """Finds the rows that hold a word: a scan of the text per word, or per root that words share.

    Lines that differ in digits alone, as most lines of a long log do, are looked at once.
    """

    _ROOTS = ("error", "fail", "fatal", "panic", "exit", "summary")

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = [line.lower() for line in lines]
        same: dict[str, list[int]] = {}
        for row, line in enumerate("\n".join(self.lines).translate(_ZEROS).split("\n") if self.lines else ()):
            same.setdefault(line, []).append(row)
        self._rows_of = list(same.values())
        self._text = "\n".join(same)
        self._starts = list(accumulate((len(line) + 1 for line in same), initial=0))
        self._by_root = {root: list(self._scan(root)) for root in self._ROOTS}

    def rows(self, *words: str) -> set[int]:
        """Return the rows with any of `words`, which are lower case and have no digit."""
        return {row for word in words for place in self._places(word) for row in self._rows_of[place]}

    def _places(self, word: str) -> Iterable[int]:
        root = next((root for root in self._ROOTS if root in word), None)
        if root is None:
            return self._scan(word)
        places = self._by_root[root]
        return places if word == root else (at for at in places if word in self.lines[self._rows_of[at][0]])

    def _scan(self, word: str) -> Iterator[int]:
        starts = self._starts
        text = self._text
        place = 0
        at = text.find(word)
        while at >= 0:
            place = bisect_right(starts, at, place) - 1
            yield place
            at = text.find(word, starts[place + 1])


def outline(lines: Sequence[str], check: Callable[[], None]) -> Outline:
    messages: list[str] = []
    for start in range(0, len(lines), CHECKED_LINES):
        messages += messages_of(lines[start : start + CHECKED_LINES])
        check()
    index = WordIndex([line[:LINE_CHARS] for line in lines])
    check()
    spans = failures.reports(messages, index.rows, check)
    style = log_style(messages, lines)
    if style == "ci":
        found = failures.diagnostics(messages, check)
        # Unless the build printed them by the hundred.
        if sum(span.end - span.start for span in found) <= FULL_OF_ALERTS * len(lines):
            spans += found
    protected = [""] * len(lines)
    errors = _protect_alerts(index, protected, check)
    _protect_spans(messages, spans, protected)
    blocks = nest(spans, len(lines))
    check()
    return Outline(nest([*spans, *_windows(messages, blocks)], len(lines)), tuple(protected), style, errors)


def _protect_alerts(index: WordIndex, protected: list[str], check: Callable[[], None]) -> tuple[int, ...]:
    """Mark the lines with words of failure, and while those are few, the lines around them; return all that mean it."""
    count = len(protected)
    by_contract = index.rows(*CONTRACT_WORDS)
    check()
    alerts = index.rows(*ALERT_WORDS) - by_contract
    check()
    errors = _reporting(index.lines, sorted(by_contract | alerts), check)
    unanswered = {row for row in index.rows("http/", "status") if reports_server_error(index.lines[row])}
    errors |= unanswered
    alerts |= unanswered - by_contract
    check()
    by_contract = _few(index, by_contract, FULL_OF_CONTRACT_WORDS * count)
    alerts = errors & _few(index, alerts, FULL_OF_ALERTS * count)
    meant = alerts | (errors & by_contract)
    if len(meant) <= FULL_OF_ALERTS * count:
        around = {near for row in meant for near in (row - 1, row, row + 1) if 0 <= near < count}
        for row in around | _announced_rows(index.lines, meant):
            if index.lines[row].strip():
                protected[row] = "context"
    for row in by_contract | alerts:
        protected[row] = "error"
    return tuple(sorted(errors))


_ONES = str.maketrans("23456789", "11111111")


def _reporting(lines: Sequence[str], rows: Sequence[int], check: Callable[[], None]) -> set[int]:
    """Return those of `rows` that report a failure; lines that differ in digits other than 0 are judged once."""
    known: dict[str, bool] = {}
    found: set[int] = set()
    for at, row in enumerate(rows):
        if at % CHECKED_LINES == 0:
            check()
        key = lines[row].translate(_ONES)
        if key not in known:
            known[key] = reports_failure(lines[row])
        if known[key]:
            found.add(row)
    return found


def _announced_rows(lines: Sequence[str], rows: Iterable[int]) -> set[int]:
    """Return the rows of the paragraph after each line that ends with a colon."""
    found: set[int] = set()
    for row in rows:
        if lines[row].rstrip().endswith(":"):
            start = row + 1 if row + 1 < len(lines) and lines[row + 1].strip() else row + 2
            stop = min(start + ANNOUNCED_LINES, len(lines))
            end = next((at for at in range(start, stop) if not lines[at].strip()), stop)
            found.update(range(start, end))
    return found


def _few(index: WordIndex, rows: set[int], most: float) -> set[int]:
    """Return `rows`, or if they are more than `most` the first and the last of each template."""
    if len(rows) <= most:
        return rows
    ordered = sorted(rows)
    return _ends_of_templates(ordered, templates(index.lines[row] for row in ordered))


def _ends_of_templates(rows: Iterable[int], shapes: Iterable[str]) -> set[int]:
    """Return the first and the last row of each template."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for row, shape in zip(rows, shapes, strict=True):
        first.setdefault(shape, row)
        last[shape] = row
    return {*first.values(), *last.values()}


def _protect_spans(messages: Sequence[str], spans: Sequence[Span], protected: list[str]) -> None:
    """Protect whole blocks; of those that repeat, the first and the last."""
    kept = _ends_of_templates(range(len(spans)), templates(span.name for span in spans))
    for at in sorted(kept, reverse=True):
        span = spans[at]
        for row in range(span.start, span.end):
            near_an_end = row < span.start + WHOLE_LINES // 2 or row >= span.end - WHOLE_LINES // 2
            if near_an_end and messages[row].strip():
                protected[row] = span.kind


def _windows(messages: Sequence[str], blocks: Sequence[Block]) -> list[Span]:
    """Return the runs of lines between blank lines and blocks, none longer than a screen."""
    taken = [False] * len(messages)
    for block in blocks:
        if not block.depth:
            taken[block.start : block.end] = [True] * (block.end - block.start)
    found: list[Span] = []
    start = -1
    for row, line in enumerate([*messages, ""]):
        free = row < len(messages) and not taken[row] and bool(line.strip())
        if start >= 0 and (not free or row - start >= WINDOW_LINES):
            found.append(Span(start, row, start, "window"))
            start = -1
        if free and start < 0:
            start = row
    return found


_COLOUR = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]{0,200}\x07|\(B)")
# Prefixes before the message. Only one space after them is removed: indentation marks the frames of a trace.
_STAMP = re.compile(
    r"""
    \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[ ]?[+-]\d\d:?\d\d)?[ ]?
    | \[\d{4}-\d\d-\d\d[T ][^\]\n]{8,30}\][ ]?
    | \[?\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\]?[ ]
    """,
    re.VERBOSE,
)
# A newline in front instead of `^`: the search then leaps from line to line.
_STAMPS = re.compile(rf"\n(?:{_STAMP.pattern})", re.VERBOSE)


def messages_of(lines: Sequence[str]) -> list[str]:
    """Return `message_of` each line, most of them in one step: a pattern for each would take three times as long."""
    heads = [line[:LINE_CHARS] for line in lines]
    text = "\n".join(heads)
    if "\x1b" in text or "\r" in text:
        return [message_of(line) for line in heads]
    return _STAMPS.sub("\n", f"\n{text}")[1:].split("\n") if heads else []


def message_of(line: str) -> str:
    """Return `line` without colours, leading timestamp and overwritten progress, cut at 400 characters."""
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
# Words that every CI runner prints, however quiet the build.
_RUNNER = re.compile(
    r"\n(?:\$ |travis_|\#\#\[|::group|The command |Done\. Your build|\[Pipeline\]|Cloning into|git clone|remote: "
    r"|HEAD is now|Worker information|Build system information|Running on |Job succeeded|Job failed|\+ |> )"
)


def log_style(messages: Sequence[str], lines: Sequence[str]) -> str:
    """Return "ci" for the log of a run, "system" for that of a long-running program, "" if undecided.

    `messages` are the `lines` without their timestamps.
    """
    step = max(1, len(lines) // SAMPLE_LINES)
    rows = [row for row in range(0, len(lines), step) if messages[row].strip()]
    if not rows:
        return ""
    built = sum(1 for row in rows if _RUNNER_CLOCK.match(lines[row]) or _BUILD.match(messages[row])) / len(rows)
    clocked = sum(1 for row in rows if _CLOCK.match(lines[row])) / len(rows)
    if built >= 0.05 and built > clocked - 0.7:
        return "ci"
    if clocked >= 0.7:
        return "system"
    if len(list(islice(_RUNNER.finditer("\n".join(("", *messages))), 2))) == 2:
        return "ci"
    different = len(set(templates(messages[row][:120] for row in rows))) / len(rows)
    return "system" if different < 0.3 and len(rows) > 50 else ""


_ZEROS = str.maketrans("123456789", "000000000")
_RUN_OF_ZEROS = re.compile("00+")
_TEMPLATE_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_QUOTED = re.compile(r'"[^"]{0,200}"')
_APOSTROPHES = re.compile(r"'[^']{0,200}'(?!\w)")
_PATH = re.compile(r"(?<![\w.@+~-])(?:[A-Za-z]:)?(?:[\w.@+~-]*+[/\\]){2,}[\w.@+~-]*+")
_HEX = re.compile(r"\b(?:0x)?[0-9a-fA-F]{8,}(?:(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})?\b")
_DIGITS = re.compile(r"(?<!\w)\w*?0[\w.:,+-]*+")
_VALUE = re.compile(r"=[^,;)\]}&]+")


def template(line: str) -> str:
    """Return `line` with quoted strings, paths, ids, values and whatever holds a digit replaced by `*`."""
    return templates([line])[0]


def templates(lines: Iterable[str]) -> list[str]:
    """Return the template of each line; each different word is looked at once, so this takes microseconds a line."""
    # Translating costs the same for a line as for thousands.
    plain = [_unquote(line) for line in lines]
    shape = _WordShapes().__getitem__
    return [" ".join(map(shape, line.split())) for line in split("\n".join(plain).translate(_ZEROS))] or plain


def without_numbers(line: str) -> str:
    """Return `line` with every number read as 0: a cheap key that most lines of one template share."""
    return _with_zeros(line[:LINE_CHARS])


def without_numbers_of(lines: Iterable[str]) -> list[str]:
    """Return `without_numbers` of each line, in one step."""
    heads = [line[:LINE_CHARS] for line in lines]
    return _with_zeros("\n".join(heads)).split("\n") if heads else []


def count_without_numbers(lines: Iterable[str]) -> Counter[str]:
    """Return how many lines there are of each `without_numbers`; those of the same digits are looked at once."""
    found: Counter[str] = Counter()
    heads = [line[:LINE_CHARS] for line in lines]
    for line, times in Counter("\n".join(heads).translate(_ZEROS).split("\n") if heads else ()).items():
        found[_RUN_OF_ZEROS.sub("0", line)] += times
    return found


def _with_zeros(text: str) -> str:
    return _RUN_OF_ZEROS.sub("0", text.translate(_ZEROS))


def _unquote(line: str) -> str:
    """Return `line` on one line, without colours and quotations."""
    line = line[:LINE_CHARS]
    if "\x1b" in line:
        line = _TEMPLATE_COLOUR.sub("", line)
    if '"' in line:
        line = _QUOTED.sub("*", line)
    if "'" in line:
        line = _APOSTROPHES.sub("*", line)
    return line.replace("\n", " ")


class _WordShapes(dict[str, str]):
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


MIN_LINES = 200  # a shorter log is scored as a whole
ROUTINE_LINES = 12  # of one shape
SAMPLES = 2  # of each shape that are not routine: a reader sees what was repeated
RARE_SHARE = 0.05  # of the lines: a word that stands in more of them says nothing about one
MAX_WORDS = 24

# Words with a small letter or a digit differ from line to line; INFO, PASSED and punctuation make the shape.
_NAME = re.compile(r"\b(?=[A-Z]*+[a-z0-9_])\w++")
_SMALL = str.maketrans(dict.fromkeys(ascii_lowercase + digits + "_", "a"))
_WORD = re.compile(r"\w{3,40}")


def notable_rows(lines: Sequence[str], protected: Sequence[str], goal: str) -> list[int]:
    """Return the rows that are not routine, in their order; every protected one is among them."""
    if len(lines) < MIN_LINES:
        return list(range(len(lines)))
    shapes = _shapes("\n".join(line[:LINE_CHARS] for line in lines))
    counts = Counter(shapes)
    seen: Counter[str] = Counter()
    about = set(_rows_about(goal, lines))
    notable: list[int] = []
    for row, shape in enumerate(shapes):
        seen[shape] += 1
        is_sample = seen[shape] <= SAMPLES or seen[shape] == counts[shape]
        if is_sample or counts[shape] < ROUTINE_LINES or protected[row] or row in about:
            notable.append(row)
    return notable


def _shapes(text: str) -> list[str]:
    """Return the shape of each line."""
    if not text.isascii():
        return _NAME.sub("a", text).split("\n")
    # Lines that differ in letters and digits alone are looked at once, which takes a tenth of the time.
    plain = text.translate(_SMALL).split("\n")
    different = list(dict.fromkeys(plain))
    shape_of = dict(zip(different, _NAME.sub("a", "\n".join(different)).split("\n"), strict=True))
    return [shape_of[line] for line in plain]


def _rows_about(goal: str, lines: Sequence[str]) -> Iterator[int]:
    """Yield the rows with a word of the goal that few lines have."""
    words = list(dict.fromkeys(word.lower() for word in _WORD.findall(goal)))[:MAX_WORDS]
    lowered = [line[:LINE_CHARS].lower() for line in lines] if words else []
    text = "\n".join(lowered)
    ends = list(accumulate(len(line) + 1 for line in lowered))
    most = RARE_SHARE * len(lines)
    for word in words:
        rows: list[int] = []
        at = text.find(word)
        while at >= 0 and len(rows) <= most:
            rows.append(bisect_right(ends, at))
            at = text.find(word, ends[rows[-1]])
        if len(rows) <= most:
            yield from rows
