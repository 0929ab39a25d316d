"""Rows as tools print them: which numbers and terminal codes nothing is lost without."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core.prune import Cut, Origin

# Tools that show files.
READERS = frozenset({"read", "view", "read_file", "readfile", "open", "notebookread"})

NUMBERED_EVERY = 10
MIN_NUMBERED_ROWS = 20  # below this the numbers cost less than a reader's second look

# How tools that show files number their rows: `    12→`, `12\t`, `12│`, `12|`, `12:`, the last three also with a space.
_NUMBER = re.compile(r" {0,8}L?(\d{1,7})([→\t│|:])")
_MAY_HAVE_SPACE = "│|:"
# Colours and cursor movements (CSI), window titles and links (OSC), and single-character escapes.
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|[@-Z\\-_])")


PADDED = " " * 8  # fewer spaces at the end of a line may be a file's own: an edit that quotes them must find them


def thin_numbers(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines with their row numbers left on every tenth row; the same object if they are not numbered.

    Only rows that count up by one lose theirs, so that every number follows from the one before it. A row without
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
    if f"{PADDED}\n" not in text and not text.endswith(PADDED):
        return text
    return "\n".join(line.rstrip(" ") if line.endswith(PADDED) else line for line in text.split("\n"))


def _last_written(line: str) -> str:
    """A carriage return goes back to the beginning of the line; one at its end belongs to the line break."""
    ending = "\r" if line.endswith("\r") else ""
    body = line.removesuffix("\r")
    return body[body.rfind("\r") + 1 :] + ending


def readable_rows(origin: Origin, lines: Sequence[str], cuts: Iterable[Cut] = ()) -> list[str]:
    """Return the rows without what is not read in them, one for each line; below a cut, a row keeps its number."""
    # Elsewhere numbers that count up may be the text's own: ids of a table, keys of a list.
    if origin.tool.lower() in READERS:
        rows = list(thin_numbers(lines))
        for cut in cuts:
            if cut.end < len(lines):
                rows[cut.end] = lines[cut.end]
        return rows
    return text_lines.split(strip_terminal(text_lines.join(lines))) if origin.command else list(lines)


NUMBERED_SAMPLE_LINES = 200
NUMBERED = 0.9  # of the lines that are not empty

_ANY_NUMBER = re.compile(r"\s{0,8}(?:L?(\d{1,7}))(?:→|\t|│ ?|\| ?|: ?)")


def strip_row_numbers(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines without their numbers, one for each; the same object if they have none."""
    sample = [line for line in lines[:NUMBERED_SAMPLE_LINES] if line.strip()]
    numbers = [int(found[1]) for line in sample if (found := _ANY_NUMBER.match(line))]
    if len(numbers) < max(2, NUMBERED * len(sample)) or numbers != sorted(set(numbers)):
        return lines
    return [line[found.end() :] if (found := _ANY_NUMBER.match(line)) else line for line in lines]
