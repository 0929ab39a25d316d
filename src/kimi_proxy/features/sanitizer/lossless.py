"""Shorter forms of a tool result that lose nothing: numbers on every tenth row, no escape codes, repeats named once."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kimi_proxy.core.markers import clean_reason
from kimi_proxy.core.prune import Cut

NUMBERED_EVERY = 10
MIN_NUMBERED_ROWS = 20  # below this the numbers cost less than a reader's second look
MIN_REPEATED_LINES = 6
MIN_REPEATED_CHARS = 400  # a marker costs about 40 tokens, and a gap has to save more than that
MAX_ROW_CHARS = 2000
ROW_HEAD_CHARS, ROW_TAIL_CHARS = 600, 200

# How tools that show files number their rows: `    12→`, `12\t`, `12│`, `12|`, `12:`, the last three also with a space.
_NUMBER = re.compile(r" {0,8}L?(\d{1,7})([→\t│|:])")
_MAY_HAVE_SPACE = "│|:"
# Colours and cursor movements (CSI), window titles and links (OSC), and single-character escapes.
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|[@-Z\\-_])")


PADDED = " " * 8  # fewer spaces at the end of a line may be a file's own: an edit that quotes them must find them
_PADDING = re.compile(r"(?<! ) {8,}$", re.M)


def thin_numbers(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines with their row numbers left on every tenth row; the same object if they are not numbered.

    Only rows that count up by one lose theirs, so that every number can be told from the one before it. A row without
    its number is the file's own text, byte for byte: an edit that quotes it finds it.
    """
    found = [_NUMBER.match(line) for line in lines]
    numbers = [int(match[1]) if match else -1 for match in found]
    consecutive = [False, *(here == before + 1 and before >= 0 for before, here in pairwise(numbers))]
    if sum(consecutive) < MIN_NUMBERED_ROWS:
        return lines
    runs = (follows or leads for follows, leads in zip(consecutive, [*consecutive[1:], False], strict=True))
    counted = (match for match, is_counted in zip(found, runs, strict=True) if match and is_counted)
    space = _space_after([match.string[match.end() :] for match in counted if match[2] in _MAY_HAVE_SPACE])
    if space is None:
        return lines
    thinned: list[str] = []
    for line, match, number, follows in zip(lines, found, numbers, consecutive, strict=True):
        bare = line if match is None else line[match.end() :]
        if match is not None and match[2] in _MAY_HAVE_SPACE:
            bare = bare.removeprefix(space)
        # A row that reads as numbered without its number would be taken for another row.
        keeps = match is None or not follows or number % NUMBERED_EVERY == 0 or _NUMBER.match(bare) is not None
        thinned.append(line if keeps else bare)
    return thinned


def _space_after(rows: Sequence[str]) -> str | None:
    """Return the space that a tool writes after its numbers; None if it may as well be the file's own indentation."""
    rows = [row for row in rows if row.strip()]
    if not all(row.startswith(" ") for row in rows):
        return ""
    return " " if not rows or any(not row.startswith("  ") for row in rows) else None


def strip_terminal(text: str) -> str:
    """Return what a terminal would show in the end: no escape codes, no padding, no progress that was overwritten."""
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "\r" in text:
        text = "\n".join(_last_written(line) for line in text.split("\n"))
    return _PADDING.sub("", text) if PADDED in text else text


def _last_written(line: str) -> str:
    """A carriage return goes back to the beginning of the line; one at its end belongs to the line break."""
    ending = "\r" if line.endswith("\r") else ""
    body = line.removesuffix("\r")
    return body[body.rfind("\r") + 1 :] + ending


@dataclass(frozen=True, slots=True)
class CharSpan:
    start: int
    end: int


def long_rows(text: str) -> list[CharSpan]:
    """Return the middles of rows that are too long to have been written by hand."""
    if len(text) <= MAX_ROW_CHARS:
        return []
    spans: list[CharSpan] = []
    start = 0
    while start <= len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if end - start > MAX_ROW_CHARS:
            spans.append(CharSpan(start + ROW_HEAD_CHARS, end - ROW_TAIL_CHARS))
        start = end + 1
    return spans


def repeats(lines: Sequence[str], earlier: Sequence[str], source: str) -> tuple[Cut, ...]:
    """Return the runs of `lines` that `earlier` shows as well, in the same order; `source` names where.

    Linear in both: lines that stand once in `earlier` are anchors, and runs grow from them in both directions.
    """
    anchors = _single(earlier)
    reason = clean_reason(f"déjà montré plus haut : {source}" if source else "déjà montré plus haut")
    return tuple(Cut(start + 1, end, reason) for start, end in _common_runs(lines, earlier, anchors))


def _single(lines: Sequence[str]) -> dict[str, int]:
    """Return where each line stands that stands there once."""
    at: dict[str, int] = {}
    twice: set[str] = set()
    for row, line in enumerate(lines):
        if line in at:
            twice.add(line)
        at[line] = row
    return {line: row for line, row in at.items() if line.strip() and line not in twice}


def _common_runs(lines: Sequence[str], earlier: Sequence[str], anchors: dict[str, int]) -> Iterator[tuple[int, int]]:
    row = done = 0
    while row < len(lines):
        there = anchors.get(lines[row])
        if there is None:
            row += 1
            continue
        start, end = row, row + 1
        while start > done and there - (row - start) > 0 and lines[start - 1] == earlier[there - (row - start) - 1]:
            start -= 1
        while end < len(lines) and there + end - row < len(earlier) and lines[end] == earlier[there + end - row]:
            end += 1
        if end - start >= MIN_REPEATED_LINES and sum(map(len, lines[start:end])) >= MIN_REPEATED_CHARS:
            yield start, end
        row = done = end
