"""Shortens an output without losing anything that the conversation does not show elsewhere.

Three ways: rows that an earlier output shows in the same order become a pointer to it, the numbers that a reader puts
before every row stay on every tenth, and rows too long to read keep their beginning and end. All can be read back.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kimi_proxy.lab.used_lines import NUMBER, bare_line

MIN_RUN = 6  # rows in a row that are worth a pointer
MIN_RUN_CHARS = 240
LONG_ROW_CHARS = 1000
HEAD_CHARS, TAIL_CHARS = 300, 100
NUMBERED_SHARE = 0.9
EVERY = 10

_ESCAPE_CODE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(slots=True)
class ShownRows:
    """The rows that the conversation shows, as hashes, by output; and where a row was shown last."""

    outputs: dict[int, list[int]] = field(default_factory=dict)
    places: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, rows: list[int], output: int) -> None:
        self.outputs[output] = rows
        for place, row in enumerate(rows):
            self.places[row] = (output, place)

    def run(self, rows: Sequence[int], at: int) -> tuple[int, int]:
        """Return the output that shows the row `at` and those after it, and how many of them."""
        output, place = self.places.get(rows[at], (-1, 0))
        if output < 0:
            return -1, 0
        there = self.outputs[output]
        most = min(len(rows) - at, len(there) - place)
        return output, next((step for step in range(most) if rows[at + step] != there[place + step]), most)

    def forget(self) -> None:
        self.outputs.clear()
        self.places.clear()


@dataclass(frozen=True, slots=True)
class LosslessText:
    text: str
    targets: frozenset[int]  # the outputs that its pointers lead to
    cut_rows: frozenset[str]  # bare rows that were shortened


def shorten(text: str, output: int, shown: ShownRows, may_point: bool = True) -> LosslessText:
    """Return `text` in fewer characters, and note its rows as shown."""
    lines = _ESCAPE_CODE.sub("", text).split("\n") if "\x1b" in text else text.split("\n")
    rows = [hash(bare_line(line)) for line in lines]
    runs = _repeated(lines, rows, shown) if may_point else []
    shown.add(rows, output)
    is_numbered = _is_numbered(lines)
    out: list[str] = []
    cut: set[str] = set()
    after = 0
    for start, end, target in runs:
        out += _shortened(lines[after:start], is_numbered, after, cut)
        out.append(f"[{end - start} lines as in result {target + 1} above]")
        after = end
    out += _shortened(lines[after:], is_numbered, after, cut)
    return LosslessText("\n".join(out), frozenset(target for _, _, target in runs), frozenset(cut))


def _repeated(lines: Sequence[str], rows: Sequence[int], shown: ShownRows) -> list[tuple[int, int, int]]:
    """Return the runs of rows that one earlier output shows in the same order: start, end, that output."""
    runs: list[tuple[int, int, int]] = []
    at = 0
    while at < len(rows):
        output, length = shown.run(rows, at)
        end = at + max(length, 1)
        if length >= MIN_RUN and sum(map(len, lines[at:end])) >= MIN_RUN_CHARS:
            runs.append((at, end, output))
        elif length:
            end = at + 1
        at = end
    return runs


def _is_numbered(lines: Sequence[str]) -> bool:
    sample = [line for line in lines[:200] if line.strip()]
    return len(sample) > EVERY and sum(1 for line in sample if NUMBER.match(line)) >= NUMBERED_SHARE * len(sample)


def _shortened(lines: Sequence[str], is_numbered: bool, first: int, cut: set[str]) -> list[str]:
    out: list[str] = []
    for place, line in enumerate(lines):
        # The first row after a gap keeps its number, so that the others can be counted from it.
        if is_numbered and place and (first + place) % EVERY and (found := NUMBER.match(line)):
            line = line[found.end() :]
        if len(line) > LONG_ROW_CHARS:
            cut.add(bare_line(line))
            line = f"{line[:HEAD_CHARS]}[… {len(line) - HEAD_CHARS - TAIL_CHARS} characters …]{line[-TAIL_CHARS:]}"
        out.append(line.rstrip())
    return out
