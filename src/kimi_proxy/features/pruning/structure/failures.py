"""What test runners, compilers and build tools print when something fails."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from kimi_proxy.features.pruning.structure import traces
from kimi_proxy.features.pruning.structure.blocks import Span
from kimi_proxy.features.pruning.structure.logtext import Words
from kimi_proxy.features.pruning.structure.traces import trimmed

LONGEST = 2000

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
    (traces.python, ("traceback (most recent call last)",)),
    (traces.go, ("panic: ", "fatal error: ", "goroutine ")),
    (traces.rust, ("panicked at",)),
)


def read(bare: Sequence[str], words: Words, check: Callable[[], None]) -> list[Span]:
    """The failures and traces of a log. One inside another is not told, except a test in pytest's report."""
    tries: dict[int, list[Callable[[Sequence[str], int], Span | None]]] = {}
    for reader, signs in _READERS:
        for row in words.rows(*signs):
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
    return found + traces.framed(bare, check)


def _tests(bare: Sequence[str], span: Span) -> list[Span]:
    """The tests of pytest's report, one block each."""
    if not _PYTEST.match(bare[span.start]):
        return []
    heads = [row for row in range(span.start, span.end) if _PYTEST_TEST.match(bare[row])]
    return [
        Span(start, end, start + 1, "failure", bare[start].strip("_ ")[:80])
        for start, end in pairwise([*heads, span.end])
    ]


def _until(bare: Sequence[str], row: int, is_end: Callable[[str], bool], longest: int = LONGEST) -> Span:
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
