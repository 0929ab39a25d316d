"""What tools put into the text of a user: elements, `@file` sections, blocks of code named after a file."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

MAX_QUESTION_CHARS = 2000

# What a client wraps outputs in. A tag such as <system-reminder> holds instructions, and stays as it is.
_ELEMENT = re.compile(
    r"<((?:file|tool|console|command|terminal|bash|local-command)[-_](?:contents?|output|result|stdout|stderr)"
    r"|file|codebase|tool|console|output|stdout|stderr)(\s[^<>]{0,300})?>"
)
_NAMED = re.compile(r"(?:path|name|src|source|file)\s*=\s*[\"']?([^\"'\s>]{1,300})")
_HEADER = re.compile(r"@(file|codebase|tool|console|output)\b:?[ \t]*(\S*)[^\n]*(?:\n|\Z)")
_FENCE = re.compile(r"(`{3,}|~{3,})([^\n`]*)\n")
# An editor's context: ```src/app.py (10-80)
_FILE_NAMED = re.compile(r"[ \t]*(?:\w+[ \t]+)?([\w@~./\\ -]{0,250}[\w-]+\.\w{1,10})(?:[ \t]*\(\d+-\d+\))?[ \t]*")


@dataclass(frozen=True, slots=True)
class Section:
    """`text[start:end]` is the output of `tool`, about the file of that `name` if it has one."""

    start: int
    end: int
    tool: str
    name: str


def sections(text: str, min_chars: int) -> list[Section]:
    """The sections of at least `min_chars`, in their order; none overlaps another."""
    found = sorted((*_elements(text), *_headed(text), *_fenced(text)), key=lambda s: (s.start, -s.end))
    apart: list[Section] = []
    for section in found:
        if section.end - section.start >= min_chars and (not apart or section.start >= apart[-1].end):
            apart.append(section)
    return apart


def _elements(text: str) -> Iterator[Section]:
    at = 0 if "<" in text else len(text)
    endless: set[str] = set()  # nothing closes them any more: looking again and again would take its time
    while opening := _ELEMENT.search(text, at):
        at = opening.end()
        end = -1 if opening[1] in endless else text.find(f"</{opening[1]}>", at)
        if end < 0:
            endless.add(opening[1])
        else:
            named = _NAMED.search(opening[2] or "")
            yield Section(at, end, opening[1], named[1] if named else "")
            at = end


def _headed(text: str) -> Iterator[Section]:
    headers = [header for at in _lines_with(text, "@") if (header := _HEADER.match(text, at))]
    for header, following in zip_longest(headers, headers[1:]):
        start, end = header.end(), following.start() if following else len(text)
        fence = _FENCE.match(text, start)
        if fence is not None:
            start, end = fence.end(), _end_of_fence(text, fence)
        elif following is None:
            end = _before_question(text, start)
        yield Section(start, end, header[1], header[2])


def _fenced(text: str) -> Iterator[Section]:
    after = 0
    for at in sorted((*_lines_with(text, "```"), *_lines_with(text, "~~~"))):
        fence = _FENCE.match(text, at) if at >= after else None
        if fence is None:
            continue
        end = _end_of_fence(text, fence)
        named = _FILE_NAMED.fullmatch(fence[2])
        if named is not None:
            yield Section(fence.end(), end, "file", named[1].strip())
        after = end + len(fence[1]) + 1


def _lines_with(text: str, beginning: str) -> Iterator[int]:
    """Where the lines begin that begin so; a plain search, since texts are long and such lines are few."""
    if beginning[0] not in text:  # one character is found ten times as fast as two
        return
    if text.startswith(beginning):
        yield 0
    at = text.find(f"\n{beginning}")
    while at >= 0:
        yield at + 1
        at = text.find(f"\n{beginning}", at + 1)


def _end_of_fence(text: str, fence: re.Match[str]) -> int:
    """Where the line begins that closes a block, or the end of the text."""
    end = text.find(f"\n{fence[1]}", fence.end() - 1)
    return len(text) if end < 0 else end + 1


def _before_question(text: str, start: int) -> int:
    """Nothing ends a last section, and people ask below what they paste: the last paragraph is theirs."""
    end = text.rstrip().rfind("\n\n", start)
    return end + 1 if end >= 0 and len(text) - end <= MAX_QUESTION_CHARS else len(text)
