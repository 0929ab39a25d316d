"""What test runners, compilers and build tools print when something fails."""

import re
from collections.abc import Callable, Sequence

from kimi_proxy.features.pruning.structure.blocks import Span

BLOCK_MAX_LINES = 2000

_BANNER = re.compile(r"(=|_|-|\*){3,}\s*(?P<title>[^=_*-].*?)\s*\1{3,}\s*$")
_PYTEST = re.compile(r"={3,} (?:FAILURES|ERRORS) ={3,}")
_PYTEST_END = re.compile(r"={3,} .* ={3,}\s*$")
_UNITTEST = re.compile(r"(?:FAIL|ERROR): \S+")
_RUSTC = re.compile(r"(?:error(?:\[E\d+\])?): ")
_RUSTC_BODY = re.compile(r"\s*(?:-->|:::|\d*\s*\||=\s|\.\.\.|note:|help:)")
_LOCATED = re.compile(r"\s*(?:\[\w+\]\s+)?[^\s:(]{1,200}[:(]\[?\d+(?:[:,]\d+)?[\])]?:?\s*(?:-\s*)?(?:fatal )?error\b")
_LOCATED_BODY = re.compile(r"\s*(?:\d*\s*\||\^|~|symbol:|location:|required:|found:|reason:|note:)|\s.*")
_GO_FAIL = re.compile(r"\s*--- FAIL: ")
_CARGO = re.compile(r"---- .* stdout ----")
_JEST = re.compile(r"\s*● ")
_MOCHA = re.compile(r"\s+\d+ failing\b")
_GRADLE = re.compile(r"FAILURE: Build failed|\* What went wrong:|\d+\) Error|Execution failed for task")
_SUREFIRE = re.compile(r".*<<< (?:FAILURE|ERROR)!")
SUMMARY = re.compile(
    r"""\s*(?:
    =+\ short\ test\ summary | FAILED\b | ERROR\ \S+::| FAILED\ \( | BUILD\ FAILED | BUILD\ FAILURE
    | npm\ ERR! | yarn\ error | make(?:\[\d+\])?:\ \*\*\* | ninja:\ build\ stopped | test\ result:\ FAILED
    | Tests?\ run:.*(?:Failures|Errors):\ [1-9] | Tests:\s+\d+\ failed | Test\ Suites:\s+\d+\ failed
    | \d+\ (?:failed|failing|failures?)\b(?!\w) | =+.*\b[1-9]\d*\ (?:failed|errors?)\b.*=+ | FAIL\b | ✗ | ✕ | ✖
    | The\ command\ .*\ exited\ with\ [1-9] | .*\bexit(?:ed)?\ (?:code|status|with\ code)\ ?:?\ [1-9]
    | \#\#\[error\] | ::error | error\ Command\ failed | Build\ step\ .*\ failed | ERROR:\ Job\ failed
    | Done\.\ Your\ build\ exited\ with\ [1-9] | \d+\ problems?\ \([1-9] | Found\ [1-9]\d*\ errors?
    )""",
    re.VERBOSE,
)


def failures(bare: Sequence[str], suspects: set[int], check: Callable[[], None]) -> list[Span]:
    """Failure blocks that begin at a row of `suspects`, none inside another."""
    found: list[Span] = []
    done = 0
    for row in sorted(suspects):
        if row < done:
            continue
        span = _failure(bare, row)
        if span is not None:
            found.append(span)
            done = span.end
    check()
    return found


def _failure(bare: Sequence[str], row: int) -> Span | None:
    line = bare[row]
    if _PYTEST.match(line):
        return _until(bare, row, lambda text: _PYTEST_END.match(text) is not None)
    if _UNITTEST.match(line):
        return _until(bare, row, lambda text: text.startswith(("=====", "Ran ")))
    if _RUSTC.match(line):
        return _while(bare, row, _RUSTC_BODY)
    if _LOCATED.match(line):
        return _while(bare, row, _LOCATED_BODY, longest=8)
    if _GO_FAIL.match(line):
        return _deeper(bare, row)
    if _JEST.match(line) or _SUREFIRE.match(line) or _GRADLE.match(line) or _CARGO.match(line):
        return _paragraphs(bare, row)
    if _MOCHA.match(line):
        return _until(bare, row, lambda text: text.startswith(("npm ", "$ ", "error ")))
    return None


def _until(bare: Sequence[str], row: int, is_end: Callable[[str], bool]) -> Span:
    end = row + 1
    last = min(len(bare), row + BLOCK_MAX_LINES)
    while end < last and not is_end(bare[end]):
        end += 1
    return _trimmed(bare, row, end)


def _while(bare: Sequence[str], row: int, body: re.Pattern[str], longest: int = 200) -> Span:
    end = row + 1
    last = min(len(bare), row + longest)
    while end < last and bare[end].strip() and body.match(bare[end]):
        end += 1
    return _trimmed(bare, row, end)


def _deeper(bare: Sequence[str], row: int) -> Span:
    indent = len(bare[row]) - len(bare[row].lstrip())
    end = row + 1
    while end < len(bare) and len(bare[end]) - len(bare[end].lstrip()) > indent:
        end += 1
    return _trimmed(bare, row, end)


def _paragraphs(bare: Sequence[str], row: int, longest: int = 60) -> Span:
    """To the first blank line that no indented line follows."""
    end = row + 1
    last = min(len(bare), row + longest)
    while end < last:
        if not bare[end].strip() and not (end + 1 < last and bare[end + 1][:1].isspace() and bare[end + 1].strip()):
            break
        end += 1
    return _trimmed(bare, row, end)


def _trimmed(bare: Sequence[str], start: int, end: int) -> Span:
    while end - 1 > start and not bare[end - 1].strip():
        end -= 1
    return Span(start, end, start + 1, "failure", bare[start].strip()[:80])
