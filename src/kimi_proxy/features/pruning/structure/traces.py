"""Stack traces in logs: Python, Java, .NET, Node, Go and Rust."""

import re
from collections.abc import Callable, Sequence

from kimi_proxy.features.pruning.structure.blocks import Span

_PYTHON = re.compile(r"(?P<margin>.*?)Traceback \(most recent call last\)")
_CHAINED = re.compile(r"\W*(?:During handling of the above exception|The above exception was the direct cause)")
_FRAME = re.compile(r"\s*(?:at\s+[\w$.<>/\\~@\[\]`|*:-]+|at\s.*[(:].*\d+\)?$|\.{3} \d+ (?:more|common)|---\s?>)")
_CAUSE = re.compile(r"\s*(?:Caused by|Suppressed|Wrapped by|\[CIRCULAR)\b")
_THROWN = re.compile(r".*\w(?:Error|Exception|Throwable|Failure)\b|.*\b(?:Exception in thread|Uncaught|Unhandled)\b")
_GO = re.compile(r"\s*(?:panic: |fatal error: |goroutine \d+ \[)")
_GO_BODY = re.compile(r"\s*$|goroutine \d+ \[|\s+\S|\S+\(.*\)$|created by |\[signal |exit status |\s*panic: ")
_RUST = re.compile(r"\s*thread '.*' (?:\(\d+\) )?panicked at ")
_RUST_BODY = re.compile(r"\s*(?:note: |stack backtrace:|\d+: |at |left: |right: |\S.*)")


def traces(bare: Sequence[str], suspects: set[int], check: Callable[[], None]) -> list[Span]:
    """The stack traces of a log; `suspects` are rows that hold a word for trouble."""
    found: list[Span] = []
    done = 0
    for row in sorted(suspects):
        if row < done:
            continue
        span = _python(bare, row) or _go(bare, row) or _rust(bare, row)
        if span is not None:
            found.append(span)
            done = span.end
    check()
    return found + _framed(bare, check)


def _python(bare: Sequence[str], row: int) -> Span | None:
    head = _PYTHON.match(bare[row])
    if head is None:
        return None
    margin = len(head["margin"])
    end = row + 1
    while end < len(bare) and (bare[end][margin : margin + 1] in (" ", "\t") or _blank_inside(bare, end, margin)):
        end += 1
    last = end + 1 if end < len(bare) and bare[end].strip() else end
    chained = next((at for at in range(last, min(last + 3, len(bare))) if bare[at].strip()), None)
    if chained is not None and _CHAINED.match(bare[chained]):
        again = next((at for at in range(chained + 1, min(chained + 4, len(bare))) if bare[at].strip()), chained)
        following = _python(bare, again) if "Traceback" in bare[again] else None
        last = following.end if following else chained + 1
    return Span(row, last, row + 1, "traceback", _exception(bare[last - 1]))


def _blank_inside(bare: Sequence[str], row: int, margin: int) -> bool:
    return not bare[row].strip() and row + 1 < len(bare) and bare[row + 1][margin : margin + 2].isspace()


def _exception(line: str) -> str:
    return line.strip()[:80]


def _go(bare: Sequence[str], row: int) -> Span | None:
    if not _GO.match(bare[row]):
        return None
    end = row + 1
    while end < len(bare) and end - row < 400 and _GO_BODY.match(bare[end]):
        end += 1
    while not bare[end - 1].strip():
        end -= 1
    return Span(row, end, row + 1, "traceback", _exception(bare[row]))


def _rust(bare: Sequence[str], row: int) -> Span | None:
    if not _RUST.match(bare[row]):
        return None
    end = row + 1
    while end < len(bare) and end - row < 200 and _RUST_BODY.match(bare[end]) and bare[end].strip():
        end += 1
    return Span(row, end, row + 1, "traceback", _exception(bare[row]))


def _framed(bare: Sequence[str], check: Callable[[], None]) -> list[Span]:
    """Runs of `at …` frames with their causes, and the exception above them."""
    found: list[Span] = []
    row = 0
    while row < len(bare):
        if row % 1000 == 0:
            check()
        if not _is_frame(bare[row]):
            row += 1
            continue
        start = _thrown_above(bare, row)
        end = row + 1
        while end < len(bare) and (_is_frame(bare[end]) or _CAUSE.match(bare[end])):
            end += 1
        if found and start <= found[-1].end:
            found[-1] = found[-1]._replace(end=end)
        elif start < row or end - row > 1:
            found.append(Span(start, end, min(row, end), "traceback", _exception(bare[start])))
        row = end
    return found


def _is_frame(line: str) -> bool:
    head = line.lstrip()[:4]
    return (head[:3] == "at " or head[:3] == "at\t" or head == "... ") and _FRAME.match(line) is not None


def _thrown_above(bare: Sequence[str], row: int) -> int:
    """The exception's own line, up to four lines above its first frame."""
    for at in range(row - 1, max(-1, row - 5), -1):
        if not bare[at].strip() or _is_frame(bare[at]):
            break
        if _THROWN.match(bare[at]) or _CAUSE.match(bare[at]):
            return at
    return row
