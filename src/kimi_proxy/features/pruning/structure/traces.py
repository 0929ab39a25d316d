"""Stack traces in logs: Python, Java, .NET, Node, Go and Rust."""

import re
from collections.abc import Callable, Sequence

from kimi_proxy.features.pruning.structure.blocks import Span

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
