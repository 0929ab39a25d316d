"""The signs of failure in the output of commands: its words, and the report format of each log tool.

The engine, the sanitizer and the evaluation all read it here. A new log tool is one row of `TOOLS`, and one
recogniser: `_until`, `_while_matching` and `_with_gaps` make most of them from two patterns."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from sys import maxsize
from typing import NamedTuple, TypeAlias

from kimi_proxy.features.pruning.structure.blocks import Span

# How the outline of a log marks a line that must stay. Three sets, because not every mark is about a failure itself.
MARKS = ("error", "context", "failure", "traceback", "diagnostic")
REPORT_MARKS = frozenset(
    {"failure", "traceback"}
)  # whole reports: the engine keeps them at any ratio while they are few
FAILURE_MARKS = REPORT_MARKS | {"error", "diagnostic"}  # what the sanitizer never cuts; "context" only stands beside

# Words come in two sets as well. `reports_failure` decides which lines must stay, and follows the contract.
# `failure_level` is a signal that the learned scorer was trained on: another word there needs another model.

CONTRACT_WORDS = ("error", "exception", "traceback")  # the contract keeps every line with one of these
# Words that a line about a failure has; others have them too, so they weigh less.
ALERT_WORDS = (
    "fatal", "panic", "fail", "critical", "segfault", "segmentation fault",
    "core dumped", "abort", "killed", "not ok ", "err!", "could not", "couldn't", "unable to", "cannot ",
    "undefined reference", "no such file", "permission denied", "timed out", "exit code", "exit status",
    "exited with", "out of memory", "assertion", "unhandled", "deadlock", "corrupt", "short test summary",
    "✗", "✕", "✖", "✘",
)  # fmt: skip
# Names that hold such a word and report nothing.
_HARMLESS_NAMES = (
    "stderr", "-werror", "error_log", "error.log", "errorlog", "error_handler", "errorhandler", "error-handler",
    "error_page", "error_reporting", "error_level", "errorlevel", "onerror", "on_error", "on-error", "error-prone",
    "errorprone", "error_prone", "ignore_errors", "ignore-errors", "if error", "continue-on-error", "failsafe",
    "fail-safe", "fail-fast", "failfast", "failover", "fail2ban", "failure_domain", "--fail", "no-fail", "lasterror",
    "nothrow", "uncaughtexception handler", "set -e", "error rate", "error budget",
)  # fmt: skip
_NO_FAILURES = re.compile(
    r"\b(?:0|no|zero|without|any)\s+(?:\w+\s+)?(?:errors?|failures?|failed|exceptions?|failing|fatal)\b"
    r"|\b(?:errors?|failures?|failed|exceptions?|failing|fatal)\s*[:=]\s*(?:0\b(?!\.)|\[\]|none\b|null\b|false\b)"
    r"|\bexit(?:ed)?\s(?:code|status|with)(?:\s(?:code|status))?\s?[:=]?\s?0\b"
)
_NO_FAILURES_SIGNS = ("0", "no ", "zero", "without", "none", "null", "[]", "false", "any ")


# What access logs of web servers write behind the request; 4xx is the caller's mistake, and there are many.
_SERVER_ERROR = re.compile(r'http/[\d.]{1,4}" 5\d\d\b|\bstatus["\']?[=:] ?"?5\d\d\b')


def reports_server_error(low: str) -> bool:
    """Return whether a lower-case line of an access log reports a server error."""
    return _SERVER_ERROR.search(low) is not None


def reports_failure(low: str) -> bool:
    """Return whether a line in lower case has a word of failure once harmless names and zero counts are taken out."""
    if any(sign in low for sign in _NO_FAILURES_SIGNS):
        low = _NO_FAILURES.sub("", low)
    for name in _HARMLESS_NAMES:
        if name in low:
            low = low.replace(name, "")
    return any(word in low for word in CONTRACT_WORDS) or any(word in low for word in ALERT_WORDS)


WARNING_LEVEL = 0.55

_FAILURE = re.compile(
    r"\b(?:errors?|exception|traceback|fatal|panic(?:ked)?|fail(?:s|ed|ure|ures|ing)?|abort(?:ed|ing)?"
    r"|assert\w*|segfault|segmentation|crash\w*|killed|err!)(?!\w)|[a-z](?:error|exception|failure)\b|[✖✗✘●×]"
)
# A line without one of these cannot match above, and most lines have none: plain search is far cheaper.
_FAILURE_ROOTS = ("err", "excep", "trace", "fatal", "panic", "fail", "abort", "assert", "seg", "crash", "killed")
_HARMLESS = re.compile(
    r"\b(?:0|no|zero) (?:errors?|failures?|failed|warnings?)|(?:errors?|failures?|failed)\W{0,3}0\b"
    r"|without errors?|if error|error[-_]?(?:log|handler|page|codes?)|ignor\w{1,9} error|--(?:fail|error)"
    r"|-w?error|set -e"
)
_WARNING_WORDS = (
    "warn", "denied", "not found", "cannot", "can't", "could not", "couldn't", "unable", "undefined", "missing",
    "invalid", "refused", "timed out", "timeout", "time out", "expected", "actual", "not ok", "no such",
    "unresolved", "mismatch", "differ", "lost", "broken", "illegal", "exceed", "bad ", "reset by", "unavailable",
    "conflict", "rejected", "terminated", "too long", "no output", "not a", "not be", "not supported", "not valid",
    "not served", "not receive", "échec", "échoué", "erreur",
)  # fmt: skip
_BAD_EXIT = re.compile(r"(?:exit(?:ed)?(?: with)?(?: code| status)?|returned?) [1-9]")


def failure_level(line: str) -> float:
    """Return 1 for a line with a word of failure, `WARNING_LEVEL` for one with a word of warning, else 0."""
    low = line.lower()
    if _fails(low, line.isascii()):
        return 1.0
    warns = any(map(low.__contains__, _WARNING_WORDS)) or _BAD_EXIT.search(low) is not None
    return WARNING_LEVEL if warns else 0.0


def _fails(low: str, is_ascii: bool) -> bool:
    may_fail = not is_ascii or any(map(low.__contains__, _FAILURE_ROOTS))
    return may_fail and _FAILURE.search(low) is not None and _HARMLESS.search(low) is None


# From here on: reports. A recogniser returns the span of the report that begins at a row, or None.

Recogniser: TypeAlias = Callable[[Sequence[str], int], Span | None]

LONGEST_TRACE, LONGEST_REPORT = 400, 2000  # lines


def _until(opens: str, ends: str, longest: int = LONGEST_REPORT) -> Recogniser:
    """Recognise reports from a line that matches `opens` to the one before the next that matches `ends`."""
    first = re.compile(opens)
    stop = re.compile(ends)

    def report(lines: Sequence[str], row: int) -> Span | None:
        if not first.match(lines[row]):
            return None
        last = min(len(lines), row + longest)
        return _trim_span(lines, row, next((at for at in range(row + 1, last) if stop.match(lines[at])), last))

    return report


def _while_matching(opens: str, body: str, longest: int = LONGEST_TRACE, kind: str = "traceback") -> Recogniser:
    """Recognise a line that matches `opens`, with the lines below it that match `body`."""
    first = re.compile(opens)
    goes_on = re.compile(body)

    def report(lines: Sequence[str], row: int) -> Span | None:
        if not first.match(lines[row]):
            return None
        last = min(len(lines), row + longest)
        end = next((at for at in range(row + 1, last) if not goes_on.match(lines[at])), last)
        return _trim_span(lines, row, end, kind)

    return report


def _with_gaps(opens: str, body: str, longest: int, fewest: int = 1) -> Recogniser:
    """The same of at least `fewest` lines; some logs have a blank line after every line, so one may stand between."""
    first = re.compile(opens)
    goes_on = re.compile(body)

    def report(lines: Sequence[str], row: int) -> Span | None:
        if not first.match(lines[row]):
            return None
        end = row + 1
        last = min(len(lines) - 1, row + longest)
        while end < last and goes_on.match(lines[end] if lines[end].strip() else lines[end + 1]):
            end += 1
        if end == len(lines) - 1 and goes_on.match(lines[end]):
            end += 1
        span = _trim_span(lines, row, end)
        return span if span.end - span.start >= fewest else None

    return report


def _trim_span(lines: Sequence[str], start: int, end: int, kind: str = "failure") -> Span:
    """Return the span without the blank lines at its end, named by its first line."""
    while end - 1 > start and not lines[end - 1].strip():
        end -= 1
    return Span(start, end, start + 1, kind, _name(lines[start]))


def _name(line: str) -> str:
    return line.strip()[:80]


_GO_PLACE = re.compile(r"\s*(?:\./|\w[\w/.-]*/)?[\w.-]+\.go:\d+(?::\d+)?: ")


def _go_test(lines: Sequence[str], row: int) -> Span | None:
    if not lines[row].lstrip().startswith("--- FAIL: "):
        return None
    indent = _indent(lines[row])
    end = row + 1
    while end < len(lines) and (_indent(lines[end]) > indent or _GO_PLACE.match(lines[end])):
        end += 1
    return _trim_span(lines, row, end)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


_TRACEBACK = re.compile(r"(?P<margin>.*?)(?:\+ )?(?:Exception Group )?Traceback \(most recent call last\)")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


def _python(lines: Sequence[str], row: int) -> Span | None:
    """Recognise a traceback with its chained exceptions, whatever is in the margin before it."""
    head = _TRACEBACK.match(lines[row])
    if head is None:
        return None
    end = row
    while True:
        end = _traceback_end(lines, end, len(head["margin"]))
        link = _next_text(lines, end)
        again = _next_text(lines, link + 1) if link < len(lines) and any(c in lines[link] for c in _CHAINED) else -1
        if not 0 <= again < len(lines) or not _TRACEBACK.match(lines[again]) or again - row > LONGEST_TRACE:
            return Span(row, end, row + 1, "traceback", _name(lines[end - 1]))
        end = again


def _traceback_end(lines: Sequence[str], row: int, margin: int) -> int:
    """Return the row after the exception that ends the traceback whose header is `row`."""
    end = row + 1
    while end < len(lines) and end - row < LONGEST_TRACE and lines[end][margin : margin + 1] in (" ", "\t", "|"):
        end += 1
    return end + 1 if end < len(lines) and lines[end].strip() and end > row + 1 else end


def _next_text(lines: Sequence[str], row: int) -> int:
    """Return the first of three rows from `row` on that is not blank, or the number of lines."""
    return next((at for at in range(row, min(row + 3, len(lines))) if lines[at].strip()), len(lines))


class ReportFormat(NamedTuple):
    """The line that opens a tool's failure report, the line that ends it, and a person's question about it."""

    opens: re.Pattern[str]
    ends: re.Pattern[str]
    question: str


def _format(opens: str, ends: str, question: str = "why does {} fail?") -> ReportFormat:
    return ReportFormat(re.compile(opens), re.compile(ends), question)


@dataclass(frozen=True, slots=True)
class LogTool:
    """The failure reports of one tool; an empty column does not apply to it."""

    name: str
    signs: tuple[str, ...] = ()  # in lower case: `report` is tried on lines that hold one
    report: Recogniser | None = None
    head: str = ""  # how a line begins that proves a text to be a log of this tool
    failed_case: str = ""  # a line that names its test or place: of many that read alike, each is another failure
    # For the evaluation, and deliberately separate from `report`: otherwise the engine would be its own judge.
    format: ReportFormat | None = None


_PYTEST = r"={3,} (?:FAILURES|ERRORS|short test summary info) ={3,}"

# Of the tools whose signs a line holds, the first that recognises a report there wins.
TOOLS = (
    LogTool(
        "pytest",
        ("= failures =", "= errors =", "= short test summary info ="),
        _until(_PYTEST, r"={3,} .* ={3,}\s*$"),
        head=r"={3,} (?:FAILURES|ERRORS) |FAILED ",
        failed_case=r"\s*FAILED\s+\S",
        format=_format(r"_{3,} (?:ERROR (?:at \w+ of|collecting) )?(\S+) _{3,}$", r"_{3,} |={3,} "),
    ),
    LogTool(
        "unittest",
        ("fail: ", "error: "),
        _until(r"(?:FAIL|ERROR): \S+ \(", "=====|Ran "),
        format=_format(r"(?:FAIL|ERROR): (\w+) \(", r"={10,}|Ran \d|(?:FAIL|ERROR): "),
    ),
    LogTool(
        "rustc",
        ("error[e", "error: "),
        _with_gaps(r"error(?:\[E\d+\])?: ", r"\s*+(?:-->|:::|(?:\d++\s*+)?\||= |\.\.\.|note:|help:)", 200, fewest=2),
        head=r"error(?:\[E\d+\])?: ",
        format=_format(r"error(?:\[E\d+\])?: (.{8,100})", r"$|error|warning", "what is wrong: {}?"),
    ),
    # `file:line:column: error` of C compilers, javac, tsc and others, with the lines that show the place.
    LogTool(
        "compilers",
        (": error", ") error", ": fatal error", "- error ts", "[error]"),
        _with_gaps(
            r"\[ERROR\] \S{1,200}:\[\d+,\d+\] |\s*(?:\[\w+\] )?(?:[\w./\\@+-]|:(?=\\)){1,200}"
            r"[:(]\[?\d+(?:[:,]\d+)?[\])]?:? *(?:- )?(?:fatal )?(?:error|Error)\b",
            r"\s+\S|\[ERROR\]\s\s+|\d+\s*\||\^|~|\S+:\d+:\d+: note:",
            40,
        ),
        failed_case=r"[^\s:(]{1,300}(?::\d{1,7}){1,2}:? *(?:- )?(?:fatal )?(?:error|Error)\b"
        r"|[^\s(]{1,300}\(\d+,\d+\): error ",
        format=_format(
            r"([\w./\\+-]+\.\w+)[:(]\d[,:\d]*+\)?:? (?:fatal )?error\b", r"\S|$", "why does {} not compile?"
        ),
    ),
    LogTool(
        "go test",
        ("--- fail: ",),
        _go_test,
        head="--- FAIL: ",
        failed_case=r"\s*--- FAIL:\s+\S",
        format=_format(r"\s*--- FAIL: (\S+) \(", r"\s*(?:---|===) |FAIL|ok |PASS|exit status"),
    ),
    LogTool(
        "cargo test",
        (" stdout ----",),
        _until("---- ", "---- |failures:"),
        format=_format(r"---- (\S+) stdout ----", "---- |failures:"),
    ),
    LogTool(
        "jest",
        ("● ",),
        _until(r"\s*● ", r"\s*● |Test |Tests:|PASS "),
        failed_case=r"\s*FAIL\s+\S",
        format=_format(r"\s{0,4}● (\S.*\S)", r"\s{0,4}● |Test Suites:|Tests:|PASS |FAIL "),
    ),
    # `2 failing`, then each failure numbered and indented, to the next command.
    LogTool(
        "mocha",
        (" failing",),
        _until(r"\s+\d+ failing\s*$", r"[^ \t+@-]"),
        format=_format(r"\s{1,4}\d+\) (\S.*\S)", r"\s{1,4}\d+\) |\S"),
    ),
    LogTool(
        "gradle",
        ("failure: ", "* what went wrong", "execution failed for task"),
        _until(r"FAILURE: |\* What went wrong:|Execution failed for task", r"\* Try:|BUILD |\* Get more help"),
        head="BUILD FAILED|FAILURE: ",
    ),
    LogTool("rspec", ("failures:",), _until(r"\s*Failures:\s*$", "Finished in|Failed examples:")),
    # `Failure:` or `Error:` alone on a line, possibly numbered, then the lines that name the test.
    LogTool(
        "minitest",
        ("failure:", "error:"),
        _until(r"\s*(?:\d+\) )?(?:Failure|Error):\s*$", "bin/rails test|rails test|Finished in", 60),
    ),
    LogTool("surefire", ("<<< failure!", "<<< error!"), _until(".*<<< ", r"\s*$|.*(?:Tests run:|<<< )", 80)),
    LogTool(
        "npm",
        ("npm err!", "npm error"),
        _while_matching(r"\s*npm (?:ERR!|error)", r"\s*npm (?:ERR!|error)", maxsize, "failure"),
        head="npm (?:ERR!|error) ",
    ),
    LogTool("python", ("traceback (most recent call last)",), _python, head=r"Traceback \(most recent"),
    LogTool(
        "go",
        ("panic: ", "fatal error: ", "goroutine "),
        _while_matching(
            r"\s*(?:panic: |fatal error: |goroutine |\[signal )",
            r"\s*$|goroutine \d+ \[|\s|\S[^\s(]*+\(.*\)$|created by |\[signal |exit status |panic: ",
        ),
        head="panic: ",
    ),
    LogTool(
        "rust",
        ("panicked at",),
        _while_matching(".*thread '", r"\s*(?:note: |stack backtrace:|\d+: |at |left: |right: |\[\.\.\.)|\S.*[^.:]$"),
    ),
    LogTool("tap", failed_case=r"\s*not ok\s+\S"),
)

# A newline in front instead of `^`: the search then leaps from line to line, in a tenth of the time.
_FAILURE_HEAD = re.compile(f"\n(?:{'|'.join(tool.head for tool in TOOLS if tool.head)})")
_FAILED_CASE = re.compile("|".join(tool.failed_case for tool in TOOLS if tool.failed_case))
_FAILED_CASE_ROOTS = ("FAIL", "rror", "not ok")  # a line without one of these is none of them
# A diagnostic of a compiler or linter; a search hit is `path:line:` without it.
VERDICT = re.compile(r":\d{1,7}(?::\d{1,7})?: *(?:- )?(?:(?:fatal )?error|warning|note|info|[A-Z]{1,4}\d{2,5})\b", re.I)


def begins_report(text: str) -> bool:
    """Return whether a line of `text` begins as only a tool that reports a failure begins one."""
    return _FAILURE_HEAD.search(f"\n{text}") is not None


def failed_cases(lines: Sequence[str]) -> set[int]:
    """Return the rows that name a test or a place that failed: of many that read alike, each is another failure."""
    fail, error, not_ok = _FAILED_CASE_ROOTS
    return {
        row
        for row, line in enumerate(lines)
        if (fail in line or error in line or not_ok in line) and _FAILED_CASE.match(line)
    }


def reports(lines: Sequence[str], rows_with: Callable[..., set[int]], check: Callable[[], None]) -> list[Span]:
    """Return the reports and traces of a log; one inside another is left out, except a test in pytest's report.

    `rows_with` returns the rows that hold one of some strings in lower case.
    """
    tries: dict[int, list[Recogniser]] = {}
    for signs, report in ((tool.signs, tool.report) for tool in TOOLS if tool.report):
        for row in rows_with(*signs):
            tries.setdefault(row, []).append(report)
    found: list[Span] = []
    done = 0
    for count, row in enumerate(sorted(tries)):
        if count % 1000 == 0:
            check()
        span = next((span for report in tries[row] if (span := report(lines, row))), None) if row >= done else None
        if span is not None:
            found += [span, *_pytest_tests(lines, span)]
            done = span.end
    return found + _stack_traces(lines, check)


def _pytest_tests(lines: Sequence[str], span: Span) -> Iterator[Span]:
    """The tests of pytest's report, one block each."""
    if not re.match(_PYTEST, lines[span.start]):
        return
    heads = [row for row in range(span.start, span.end) if re.match(r"_{3,} \S.*\S _{3,}\s*$", lines[row])]
    for start, end in pairwise([*heads, span.end]):
        yield Span(start, end, start + 1, "failure", lines[start].strip("_ ")[:80])


_FRAME_HEAD = re.compile(r"\n[^\S\n]*+(?:at |\.{3} )")
_FRAME = re.compile(r"\s*(?:at\s+\S.*[(:)\]\d]|\.{3} \d+ (?:more|common)|\.{3} \d+ lines matching)")
_CAUSE = re.compile(r"\s*(?:\[ERROR\] )?(?:Caused by|Suppressed|Wrapped by|Caused:)\b|\s*---+>|\s*--- End of")
_THROWN = re.compile(
    r".*(?:\w(?:Error|Exception|Throwable|Failure)\b|\b(?:Error|Exception|Uncaught|Unhandled|error|AssertionError)\b)"
)
_PLACE = re.compile(r":\d+\s*$")


def _stack_traces(lines: Sequence[str], check: Callable[[], None]) -> list[Span]:
    """Return runs of `at …` frames with their causes, and the exception above them."""
    if _FRAME_HEAD.search("\n".join(("", *lines))) is None:  # most logs have none: one look instead of one at each line
        return []
    found: list[Span] = []
    row = checked = 0
    while row < len(lines):
        if row - checked >= 1000:
            check()
            checked = row
        if not _is_frame(lines[row]):
            row += 1
            continue
        start = _thrown_above(lines, row)
        end = row + 1
        while end < len(lines) and _is_traced(lines, end):
            end += 1
        if found and start <= found[-1].end:
            found[-1] = found[-1]._replace(end=end)
        elif start < row or end - row > 1:
            found.append(Span(start, end, row, "traceback", _name(lines[start])))
        row = end
    return found


def _is_traced(lines: Sequence[str], row: int) -> bool:
    """Return whether `row` belongs to the frames above it; some logs have a blank line after every line."""
    line = lines[row] if lines[row].strip() or row + 1 == len(lines) else lines[row + 1]
    return _is_frame(line) or _CAUSE.match(line) is not None


def _is_frame(line: str) -> bool:
    head = line.lstrip()[:4]
    return (head[:3] == "at " or head == "... ") and _FRAME.match(line) is not None


def _thrown_above(lines: Sequence[str], row: int) -> int:
    """Return the row of the exception itself, up to four lines above its first frame, or else `row`."""
    for at in range(row - 1, max(-1, row - 5), -1):
        if _is_frame(lines[at]):
            break
        if _THROWN.match(lines[at]) or _CAUSE.match(lines[at]):
            return _start_of_place(lines, at)
    return row


def _start_of_place(lines: Sequence[str], row: int) -> int:
    """Node shows the place before it names the error: a path with its line, the code, carets, a blank line."""
    if row < 3 or lines[row - 1].strip() or not lines[row - 2].strip() or lines[row - 2].strip(" ^"):
        return row
    return next((at for at in range(row - 3, max(-1, row - 7), -1) if _PLACE.search(lines[at])), row)


_DIAGNOSTIC = re.compile(r"\s*+(?:\.{0,2}/)?[\w./@+-]{1,200}\.[A-Za-z]\w{0,7}:\d{1,6}(?::\d{0,5})?:? ?\S")


def diagnostics(lines: Sequence[str], check: Callable[[], None]) -> list[Span]:
    """Return runs of `path/file.ext:line:column: message`."""
    found: list[Span] = []
    for row, line in enumerate(lines):
        if row % 1000 == 0:
            check()
        if ":" in line and _DIAGNOSTIC.match(line):
            if found and row - found[-1].end <= 1:
                found[-1] = found[-1]._replace(end=row + 1)
            else:
                found.append(Span(row, row + 1, row, "diagnostic", _name(line)))
    return found
