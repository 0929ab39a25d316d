"""What test runners, compilers and build tools print when something fails."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from kimi_proxy.features.pruning.structure.blocks import Span

_DIAGNOSTIC = re.compile(r"\s*+(?:\.{0,2}/)?[\w./@+-]{1,200}\.[A-Za-z]\w{0,7}:\d{1,6}(?::\d{0,5})?:? ?\S")


def diagnostics(bare: Sequence[str], check: Callable[[], None]) -> list[Span]:
    """Runs of `path/file.ext:line:column: message`."""
    found: list[Span] = []
    for row, line in enumerate(bare):
        if row % 1000 == 0:
            check()
        if ":" in line and _DIAGNOSTIC.match(line):
            if found and row - found[-1].end <= 1:
                found[-1] = found[-1]._replace(end=row + 1)
            else:
                found.append(Span(row, row + 1, row, "diagnostic", line.strip()[:80]))
    return found


LONGEST = 400

_PYTHON = re.compile(r"(?P<margin>.*?)(?:\+ )?(?:Exception Group )?Traceback \(most recent call last\)")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_FRAME = re.compile(r"\s*(?:at\s+\S.*[(:)\]\d]|\.{3} \d+ (?:more|common)|\.{3} \d+ lines matching)")
_CAUSE = re.compile(r"\s*(?:\[ERROR\] )?(?:Caused by|Suppressed|Wrapped by|Caused:)\b|\s*---+>|\s*--- End of")
_THROWN = re.compile(
    r".*(?:\w(?:Error|Exception|Throwable|Failure)\b|\b(?:Error|Exception|Uncaught|Unhandled|error|AssertionError)\b)"
)
_PLACE = re.compile(r":\d+\s*$")
_GO_BODY = re.compile(r"\s*$|goroutine \d+ \[|\s|\S+\(.*\)$|created by |\[signal |exit status |panic: ")
_RUST_BODY = re.compile(r"\s*(?:note: |stack backtrace:|\d+: |at |left: |right: |\[\.\.\.)|\S.*[^.:]$")


def python(bare: Sequence[str], row: int) -> Span | None:
    """A Python traceback with the exceptions chained to it, whatever stands in the margin before it."""
    head = _PYTHON.match(bare[row])
    if head is None:
        return None
    end = row
    while True:
        end = _python_end(bare, end, len(head["margin"]))
        link = _next_text(bare, end)
        again = _next_text(bare, link + 1) if link < len(bare) and any(c in bare[link] for c in _CHAINED) else -1
        if not 0 <= again < len(bare) or not _PYTHON.match(bare[again]) or again - row > LONGEST:
            return Span(row, end, row + 1, "traceback", _name(bare[end - 1]))
        end = again


def _python_end(bare: Sequence[str], row: int, margin: int) -> int:
    """After the exception that ends the traceback whose header is `row`."""
    end = row + 1
    while end < len(bare) and end - row < LONGEST and bare[end][margin : margin + 1] in (" ", "\t", "|"):
        end += 1
    return end + 1 if end < len(bare) and bare[end].strip() and end > row + 1 else end


def _next_text(bare: Sequence[str], row: int) -> int:
    """The first row from `row` on that is not blank, if it is near."""
    return next((at for at in range(row, min(row + 3, len(bare))) if bare[at].strip()), len(bare))


def go(bare: Sequence[str], row: int) -> Span | None:
    if not bare[row].lstrip().startswith(("panic: ", "fatal error: ", "goroutine ", "[signal ")):
        return None
    end = row + 1
    while end < len(bare) and end - row < LONGEST and _GO_BODY.match(bare[end]):
        end += 1
    return trimmed(bare, row, end, "traceback")


def rust(bare: Sequence[str], row: int) -> Span | None:
    if "thread '" not in bare[row]:
        return None
    end = row + 1
    while end < len(bare) and end - row < LONGEST and bare[end].strip() and _RUST_BODY.match(bare[end]):
        end += 1
    return trimmed(bare, row, end, "traceback")


def framed(bare: Sequence[str], check: Callable[[], None]) -> list[Span]:
    """Runs of `at …` frames with their causes, and the exception above them."""
    found: list[Span] = []
    row = 0
    checked = 0
    while row < len(bare):
        if row - checked >= 1000:
            check()
            checked = row
        if not _is_frame(bare[row]):
            row += 1
            continue
        start = _thrown_above(bare, row)
        end = row + 1
        while end < len(bare) and _goes_on(bare, end):
            end += 1
        if found and start <= found[-1].end:
            found[-1] = found[-1]._replace(end=end)
        elif start < row or end - row > 1:
            found.append(Span(start, end, row, "traceback", _name(bare[start])))
        row = end
    return found


def _goes_on(bare: Sequence[str], row: int) -> bool:
    """Whether `row` belongs to the frames above it; some logs have a blank line after every line."""
    line = bare[row] if bare[row].strip() or row + 1 == len(bare) else bare[row + 1]
    return _is_frame(line) or _CAUSE.match(line) is not None


def _is_frame(line: str) -> bool:
    head = line.lstrip()[:4]
    return (head[:3] == "at " or head == "... ") and _FRAME.match(line) is not None


def _thrown_above(bare: Sequence[str], row: int) -> int:
    """The exception's own line, up to four lines above its first frame."""
    for at in range(row - 1, max(-1, row - 5), -1):
        if _is_frame(bare[at]):
            break
        if _THROWN.match(bare[at]) or _CAUSE.match(bare[at]):
            return _shown_above(bare, at)
    return row


def _shown_above(bare: Sequence[str], row: int) -> int:
    """Node shows the place before it names the error: a path with its line, the code, carets, a blank line."""
    if row < 3 or bare[row - 1].strip() or not bare[row - 2].strip() or bare[row - 2].strip(" ^"):
        return row
    return next((at for at in range(row - 3, max(-1, row - 7), -1) if _PLACE.search(bare[at])), row)


def trimmed(bare: Sequence[str], start: int, end: int, kind: str) -> Span:
    """The span from `start` to `end` without the blank lines at its end, named by its first line."""
    while end - 1 > start and not bare[end - 1].strip():
        end -= 1
    return Span(start, end, start + 1, kind, _name(bare[start]))


def _name(line: str) -> str:
    return line.strip()[:80]


LONGEST_FAILURE = 2000

_BANNER = re.compile(r"={3,} .* ={3,}\s*$")
_PYTEST = re.compile(r"={3,} (?:FAILURES|ERRORS|short test summary info) ={3,}")
_PYTEST_TEST = re.compile(r"_{3,} (?P<name>\S.*\S) _{3,}\s*$")
_UNITTEST = re.compile(r"(?:FAIL|ERROR): \S+ \(")
_RUSTC = re.compile(r"error(?:\[E\d+\])?: ")
_RUSTC_BODY = re.compile(r"\s*(?:-->|:::|\d*\s*\||= |\.\.\.|note:|help:)")
_LOCATED = re.compile(
    r"\[ERROR\] \S{1,200}:\[\d+,\d+\] |"
    r"\s*(?:\[\w+\] )?(?:[\w./\\@+-]|:(?=\\)){1,200}[:(]\[?\d+(?:[:,]\d+)?[\])]?:? *(?:- )?(?:fatal )?(?:error|Error)\b"
)
_LOCATED_BODY = re.compile(r"\s+\S|\[ERROR\]\s\s+|\d+\s*\||\^|~|\S+:\d+:\d+: note:")
_MINITEST = re.compile(r"\s*(?:\d+\) )?(?:Failure|Error):\s*$")
_GO_LOCATED = re.compile(r"\s*(?:\./|\w[\w/.-]*/)?[\w.-]+\.go:\d+(?::\d+)?: ")


def pytest(bare: Sequence[str], row: int) -> Span | None:
    if not _PYTEST.match(bare[row]):
        return None
    return _until(bare, row, lambda line: _BANNER.match(line) is not None)


def unittest(bare: Sequence[str], row: int) -> Span | None:
    if not _UNITTEST.match(bare[row]):
        return None
    return _until(bare, row, lambda line: line.startswith(("=====", "Ran ")))


def rustc(bare: Sequence[str], row: int) -> Span | None:
    span = _while(bare, row, _RUSTC_BODY, 200) if _RUSTC.match(bare[row]) else None
    return span if span is not None and span.end - span.start > 1 else None


def located(bare: Sequence[str], row: int) -> Span | None:
    """`file:line:column: error` of C compilers, javac, tsc and others, with the lines that show the place."""
    return _while(bare, row, _LOCATED_BODY, 40) if _LOCATED.match(bare[row]) else None


def go_test(bare: Sequence[str], row: int) -> Span | None:
    if not bare[row].lstrip().startswith("--- FAIL: "):
        return None
    indent = len(bare[row]) - len(bare[row].lstrip())
    end = row + 1
    while end < len(bare) and (_indent(bare[end]) > indent or _GO_LOCATED.match(bare[end])):
        end += 1
    return trimmed(bare, row, end, "failure")


def cargo_test(bare: Sequence[str], row: int) -> Span | None:
    if not bare[row].startswith("---- "):
        return None
    return _until(bare, row, lambda line: line.startswith(("---- ", "failures:")))


def jest(bare: Sequence[str], row: int) -> Span | None:
    if not bare[row].lstrip().startswith("● "):
        return None
    return _until(
        bare, row, lambda line: line.lstrip().startswith("● ") or line.startswith(("Test ", "Tests:", "PASS "))
    )


def mocha(bare: Sequence[str], row: int) -> Span | None:
    """`2 failing`, then each failure numbered and indented, to the next command."""
    if not re.match(r"\s+\d+ failing\s*$", bare[row]):
        return None
    return _until(bare, row, lambda line: line[:1] not in (" ", "\t", "") and not line.startswith(("+", "-", "@")))


def gradle(bare: Sequence[str], row: int) -> Span | None:
    if not bare[row].startswith(("FAILURE: ", "* What went wrong:", "Execution failed for task")):
        return None
    return _until(bare, row, lambda line: line.startswith(("* Try:", "BUILD ", "* Get more help")))


def surefire(bare: Sequence[str], row: int) -> Span | None:
    if "<<< " not in bare[row]:
        return None
    return _until(bare, row, lambda line: not line.strip() or "Tests run:" in line or "<<< " in line, longest=80)


def rspec(bare: Sequence[str], row: int) -> Span | None:
    if bare[row].strip() != "Failures:":
        return None
    return _until(bare, row, lambda line: line.startswith(("Finished in", "Failed examples:")))


def minitest(bare: Sequence[str], row: int) -> Span | None:
    """`Failure:` or `Error:` alone on a line, possibly numbered, and the lines that tell which test."""
    if not _MINITEST.match(bare[row]):
        return None
    return _until(bare, row, lambda line: line.startswith(("bin/rails test", "rails test", "Finished in")), longest=60)


def npm(bare: Sequence[str], row: int) -> Span | None:
    end = row
    while end < len(bare) and bare[end].lstrip().startswith(("npm ERR!", "npm error")):
        end += 1
    return trimmed(bare, row, end, "failure") if end > row else None


# What a line must hold, in lower case, for a reader to be tried on it. The first that reads it wins.
_READERS: tuple[tuple[Callable[[Sequence[str], int], Span | None], tuple[str, ...]], ...] = (
    (pytest, ("= failures =", "= errors =", "= short test summary info =")),
    (unittest, ("fail: ", "error: ")),
    (rustc, ("error[e", "error: ")),
    (located, (": error", ") error", ": fatal error", "- error ts", "[error]")),
    (go_test, ("--- fail: ",)),
    (cargo_test, (" stdout ----",)),
    (jest, ("● ",)),
    (mocha, (" failing",)),
    (gradle, ("failure: ", "* what went wrong", "execution failed for task")),
    (rspec, ("failures:",)),
    (minitest, ("failure:", "error:")),
    (surefire, ("<<< failure!", "<<< error!")),
    (npm, ("npm err!", "npm error")),
    (python, ("traceback (most recent call last)",)),
    (go, ("panic: ", "fatal error: ", "goroutine ")),
    (rust, ("panicked at",)),
)


def read(bare: Sequence[str], rows_with: Callable[..., set[int]], check: Callable[[], None]) -> list[Span]:
    """The failures and traces of a log. One inside another is not told, except a test in pytest's report."""
    tries: dict[int, list[Callable[[Sequence[str], int], Span | None]]] = {}
    for reader, signs in _READERS:
        for row in rows_with(*signs):
            tries.setdefault(row, []).append(reader)
    found: list[Span] = []
    done = 0
    for count, row in enumerate(sorted(tries)):
        if count % 1000 == 0:
            check()
        if row >= done:
            span = next((span for reader in tries[row] if (span := reader(bare, row)) is not None), None)
            if span is not None:
                found += [span, *_tests(bare, span)]
                done = span.end
    return found + framed(bare, check)


def _tests(bare: Sequence[str], span: Span) -> list[Span]:
    """The tests of pytest's report, one block each."""
    if not _PYTEST.match(bare[span.start]):
        return []
    heads = [row for row in range(span.start, span.end) if _PYTEST_TEST.match(bare[row])]
    return [
        Span(start, end, start + 1, "failure", bare[start].strip("_ ")[:80])
        for start, end in pairwise([*heads, span.end])
    ]


def _until(bare: Sequence[str], row: int, is_end: Callable[[str], bool], longest: int = LONGEST_FAILURE) -> Span:
    end = row + 1
    last = min(len(bare), row + longest)
    while end < last and not is_end(bare[end]):
        end += 1
    return trimmed(bare, row, end, "failure")


def _while(bare: Sequence[str], row: int, body: re.Pattern[str], longest: int) -> Span:
    """The lines that `body` matches; some logs have a blank line after every line, so one may stand between."""
    end = row + 1
    last = min(len(bare) - 1, row + longest)
    while end < last and body.match(bare[end] if bare[end].strip() else bare[end + 1]):
        end += 1
    if end == len(bare) - 1 and body.match(bare[end]):
        end += 1
    return trimmed(bare, row, end, "failure")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
