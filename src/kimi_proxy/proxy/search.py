"""Regular expressions over files, searched by a child: ripgrep, or the system's grep where there is none.

No pattern is ever matched in this process, because it might never finish: both programs take linear time, and are
killed on timeout. They report positions only; lines are then read from a file that was opened safely.

For `grep -E`, a pattern in ripgrep's syntax is translated so that it matches the same lines: anything that only one of
the programs supports is refused, such as a back-reference.
"""

import os
import re
import shutil
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kimi_proxy.core.errors import ToolFailed
from kimi_proxy.proxy.commands import CommandOutcome, run_plain
from kimi_proxy.proxy.process import Command

# In brackets and outside of them.
_CLASSES = {
    "d": "0-9",
    "w": "[:alnum:]_",
    "s": "[:space:]",
}
_LITERALS = {"t": "\t", "f": "\f", "v": "\v", "r": "\r", "a": "\a", "0": ""}
_SPECIAL = frozenset(".[]{}()\\*+?^$|")
_LAZY = re.compile(r"(?:[*+?]|\{\d*+(?:,\d*+)?\})\?")
_GROUP = re.compile(r"\(\?(?::|P?<[A-Za-z_]\w*>)")
_BRACKET = re.compile(r"\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\\[])*\]", re.DOTALL)


def is_caseless(patterns: tuple[str, ...]) -> bool:
    """Return whether all patterns begin with `(?i)`. Raise ToolFailed if only some do."""
    flagged = [pattern.startswith("(?i)") for pattern in patterns]
    if any(flagged) and not all(flagged):
        raise _refusal("(?i) in some of several patterns")
    return any(flagged)


def to_extended(pattern: str) -> str:
    """Return what `grep -E` has to be given for `pattern`. Raise ToolFailed if it cannot say the same."""
    return "".join(_pieces(pattern.removeprefix("(?i)")))


def _pieces(pattern: str) -> Iterator[str]:
    at = 0
    while at < len(pattern):
        char = pattern[at]
        lazy, group, bracket = (form.match(pattern, at) for form in (_LAZY, _GROUP, _BRACKET))
        if char == "\\":
            yield _escape(pattern[at + 1 : at + 2])
            at += 2
        elif char == "[":
            if bracket is None:
                raise _refusal("a class inside of a class")
            yield _bracket(bracket[0])
            at = bracket.end()
        elif lazy:  # which lines match is the same with and without
            yield lazy[0][:-1]
            at = lazy.end()
        elif pattern.startswith("(?", at):
            if group is None:
                raise _refusal(pattern[at : at + 4])
            yield "("
            at = group.end()
        else:
            yield char
            at += 1


def _escape(char: str) -> str:
    """Return the replacement of an escaped character outside brackets."""
    if char.lower() in _CLASSES:
        return f"[{'^' if char.isupper() else ''}{_CLASSES[char.lower()]}]"
    if char in ("b", "B") or char in _SPECIAL:
        return f"\\{char}"
    if _LITERALS.get(char):
        return _LITERALS[char]
    if not char or char.isalnum():
        raise _refusal(f"\\{char}")
    return char


def _bracket(text: str) -> str:
    """Return a class in brackets; grep takes a backslash in one for itself."""
    inside = text[1:-1]
    if "&&" in inside or "--" in inside or "~~" in inside:
        raise _refusal(text)
    negated = inside.startswith("^")
    members = inside[negated:]
    first = ""
    last = ""
    out: list[str] = []
    for found in re.finditer(r"\\(.)|(\[:\^?[a-z]+:\])|(.)", members, re.DOTALL):
        escaped, named, plain = found.groups()
        if named and "^" in named:
            raise _refusal(text)
        if escaped in ("D", "W", "S") or (escaped and escaped.isalnum() and escaped not in _CLASSES | _LITERALS):
            raise _refusal(text)
        piece = named or plain or _CLASSES.get(escaped) or _LITERALS.get(escaped) or escaped
        # The positions in which they are literal: `]` first, `-` last, `^` not first.
        if piece == "]":
            first = "]"
        elif piece in ("-", "^") and escaped:
            last += piece
        else:
            out.append(piece)
    order = "".join((first, *out, "".join(sorted(last, reverse=True))))
    return f"[{'^' if negated else ''}{order}]"


def _refusal(what: str) -> ToolFailed:
    return ToolFailed("no_search_program", f"{what!r} in a pattern needs ripgrep (rg), which is not installed")


# Up to here all hits are collected, in whatever order they come, and sorted: the same search gives
# the same answer. Beyond it, the search is made again in the order of the paths.
MANY_MATCHES = 50_000

# A file that was deleted before its turn, or a link to itself: neither contains a line to find.
_NO_FILE = ("No such file or directory", "Too many levels of symbolic links", "recursive directory loop")
_HEAD_MAX_BYTES = 16 * 1024  # a path, and three numbers


@dataclass(frozen=True, slots=True, order=True)
class Hit:
    """A matching line, or one near it. `offset` and `column` are in bytes."""

    path: bytes
    line: int
    offset: int
    column: int = 1
    matches: bool = True


@dataclass(frozen=True, slots=True)
class Query:
    patterns: tuple[str, ...]
    glob: str | None
    context_lines: int
    max_matches: int


@dataclass(frozen=True, slots=True)
class Place:
    """A directory, or one file in it."""

    directory: Path
    name: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """`total` counts all lines that match; None if there were too many to count."""

    hits: list[Hit]
    total: int | None
    outcome: CommandOutcome


@dataclass(frozen=True, slots=True)
class SearchProgram:
    """The command line of a search program, and the form of its answer."""

    argv: Callable[[Query, Place, bool], tuple[str, ...]]
    head: re.Pattern[bytes]
    shows_hidden: bool = True  # all that it finds may be shown: it left hidden files out, or was given one


def ripgrep(path: str | None = None) -> str | None:
    """Return the path of ripgrep: next to this Python, as its wheel installs it, or on the PATH."""
    beside = os.pathsep.join((sysconfig.get_path("scripts"), str(Path(sys.executable).parent)))
    return shutil.which("rg", path=beside) or shutil.which("rg", path=path)


def search(
    query: Query, place: Place, env: Mapping[str, str], timeout_s: float, stop: threading.Event, rg: str | None
) -> Found:
    """Search with ripgrep at `rg`, or with grep if there is none."""
    program = _ripgrep(rg) if rg else _system_grep(place)

    def run(in_order: bool, max_matches: int) -> tuple[list[Hit], CommandOutcome]:
        collector = _Collector(program, max_matches)
        command = Command(program.argv(query, place, in_order), env, place.directory)
        outcome = run_plain(command, timeout_s, collector.write, stop)
        return collector.hits, replace(outcome, errors=_problems(outcome.errors))

    hits, outcome = run(False, MANY_MATCHES)
    if outcome.ending == "enough":
        hits, outcome = run(True, query.max_matches)
        return Found(_first(hits, query), None, outcome)
    hits.sort()
    return Found(_first(hits, query), sum(hit.matches for hit in hits), outcome)


def _problems(errors: str) -> str:
    """Return the errors, without those about missing files."""
    return "\n".join(line for line in errors.split("\n") if not any(reason in line for reason in _NO_FILE))


def _first(hits: list[Hit], query: Query) -> list[Hit]:
    """Return the first matches, with the lines around them."""
    matches = [at for at, hit in enumerate(hits) if hit.matches]
    if len(matches) <= query.max_matches:
        return hits
    last = hits[matches[query.max_matches - 1]]
    near = (last.path, last.line + query.context_lines)
    return [hit for hit in hits[: matches[query.max_matches]] if (hit.path, hit.line) <= near]


class _Collector:
    """Hits out of a stream of records, cut into slices of any size; one match more than wanted is enough."""

    def __init__(self, program: SearchProgram, max_matches: int) -> None:
        self.hits: list[Hit] = []
        self._program = program
        self._left = max_matches
        self._begun = bytearray()

    def write(self, piece: bytes) -> bool:
        for record in self._records(piece):
            hit = self._hit(record)
            if hit is not None:
                self.hits.append(hit)
                self._left -= hit.matches
                if self._left < 0:
                    return False
        return True

    def _records(self, piece: bytes) -> Iterator[bytes]:
        *ended, begun = piece.split(b"\n")
        for part in ended:
            self._add(part)
            yield bytes(self._begun)
            self._begun.clear()
        self._add(begun)

    def _add(self, part: bytes) -> None:
        # grep prints whole lines, and a line may be longer than memory: its beginning is all we need.
        self._begun += part[: _HEAD_MAX_BYTES - len(self._begun)]

    def _hit(self, record: bytes) -> Hit | None:
        path, found, rest = record.partition(b"\0")
        head = self._program.head.match(rest) if found else None
        if head is None or (not self._program.shows_hidden and _is_hidden(path)):
            return None
        groups = head.groupdict()
        if groups["near"] is not None:
            return Hit(path, int(head["line"]), int(head["near"]), matches=False)
        return Hit(path, int(head["line"]), int(head["offset"]), int(groups.get("column") or 1))


def _ripgrep(rg: str) -> SearchProgram:
    def argv(query: Query, place: Place, in_order: bool) -> tuple[str, ...]:
        return (
            rg,
            "--no-config",
            "--no-heading",
            "--color=never",
            "--with-filename",
            "--null",
            # One byte of each line: its place is enough. Marks of byte order are bytes too.
            "--line-number",
            "--column",
            "--byte-offset",
            "--max-columns=1",
            "--encoding=none",
            f"--context={query.context_lines}",
            *((f"--glob={query.glob}",) if query.glob else ()),
            *(("--sort=path",) if in_order else ()),
            *(part for pattern in query.patterns for part in ("-e", pattern)),
            "--",
            f"./{place.name}",
        )

    head = rb"(?P<line>\d+)(?::(?P<column>\d+):(?P<offset>\d+):|-(?P<near>\d+)-)"
    return SearchProgram(argv, re.compile(head))


def _system_grep(place: Place) -> SearchProgram:
    """grep itself knows no ignore rules; in a repository, git lists the files that they leave."""
    listed = not place.name and _in_repository(place.directory) and shutil.which("git") is not None
    if shutil.which("grep") is None:
        raise ToolFailed("no_search_program", "neither ripgrep (rg) nor grep is installed: install ripgrep")

    def argv(query: Query, place: Place, in_order: bool) -> tuple[str, ...]:
        if query.glob and "/" in query.glob:
            raise ToolFailed("no_search_program", "a glob with / needs ripgrep (rg), which is not installed")
        options = (
            "-E",
            "-n",
            "-b",
            "-H",
            "-I",
            "--null",
            f"-C{query.context_lines}",
            *((f"--include={query.glob}",) if query.glob else ()),
            *(("-i",) if is_caseless(query.patterns) else ()),
            *(part for pattern in query.patterns for part in ("-e", to_extended(pattern))),
        )
        if not listed:
            return ("grep", "-r", "--exclude-dir=.[!./]*", *options, "--", f"./{place.name}")
        # A repository's own settings must not choose a program for us to run.
        files = "git -c core.fsmonitor=false ls-files -z --cached --others --exclude-standard"
        # Among them are links to directories and submodules, which grep would complain of.
        skipped = "--directories=skip --devices=skip"
        return ("sh", "-c", f'{files} | xargs -0 grep {skipped} "$@" -- /dev/null', "sh", *options)

    head = rb"(?P<line>\d+)(?::(?P<offset>\d+):|-(?P<near>\d+)-)"
    return SearchProgram(argv, re.compile(head), shows_hidden=bool(place.name))


def _in_repository(directory: Path) -> bool:
    return any((parent / ".git").exists() for parent in (directory, *directory.parents))


def _is_hidden(path: bytes) -> bool:
    return any(part.startswith(b".") and part not in (b".", b"..") for part in path.split(b"/"))
