"""The kind of an output: from the text itself, helped by the file that it shows or the command that printed it."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Literal, TypeAlias

from kimi_proxy.core import json as jsontext
from kimi_proxy.core.lines import split
from kimi_proxy.core.prune import Origin, SourceType
from kimi_proxy.features.failures import VERDICT, begins_report
from kimi_proxy.features.pruning import source_type
from kimi_proxy.features.pruning.structure import languages
from kimi_proxy.features.pruning.structure.logs import log_style, message_of

Kind: TypeAlias = Literal["json", "listing", "logs", "code", "docs"]
SOURCE_TYPES: Mapping[Kind, SourceType] = {
    "json": "code",
    "listing": "logs",
    "logs": "logs",
    "code": "code",
    "docs": "docs",
}


def type_of(origin: Origin, text: str) -> SourceType:
    """Return as what an output is scored, by which limits of settings it falls too."""
    return SOURCE_TYPES[kind_of(origin, text)]


SAMPLE_LINES = 400
LISTED = 0.7  # of the lines that are not empty
JUDGED = 0.2

_HIT = re.compile(r"(?![A-Z][a-z]{2} [ \d]\d \d\d:\d\d:)(?:[\w@~.+-]|[/\\ ](?=\S)|:(?=\\)){1,300}[:-]\d{1,7}[:-]|--$")
_PLACED = re.compile(r"[:-]\d{1,7}[:-]")  # without it a line is no hit, and to try one may take long
_READERS = re.compile(r"\s*(?:cat|bat|head|tail|less|more|nl|sed|awk)\b")
_MANUALS = re.compile(r"\s*(?:man|info|pydoc|perldoc)\b|[^|;&\n]{0,200}\s--?help\b")  # they print pages
_DIFFS = re.compile(r"\s*(?:git\s+(?:diff|show|log\s+-p|format-patch)|diff)\b")
_CODE_FILE = re.compile(r"(?<![\w./~-])[\w./~-]+\.\w{1,5}\b")
_RUNS = re.compile(r"bash|shell|exec|terminal|command|console|run|stdout|stderr|output", re.I)


def kind_of(origin: Origin, text: str) -> Kind:
    if jsontext.is_container(text):  # what is left of it has to be one too
        return "json"
    lines = split(text)
    by_places = _kind_of_places(lines)
    if by_places is not None:
        return by_places
    if origin.failed:
        return "logs"
    if origin.command:
        return _kind_of_command(origin.command, text, lines)
    if PurePath(origin.path).suffix:
        return source_type.guess(origin.path, text)
    return _kind_of_lines(text, lines, runs=_RUNS.search(origin.tool) is not None)


def _kind_of_command(command: str, text: str, lines: Sequence[str]) -> Kind:
    """Most commands print a log; some print a file."""
    last = re.split(r"&&|;|\n", command.strip())[-1].split("|")[0]
    if _DIFFS.match(last):
        return "code"
    if _READERS.match(last):
        named = _CODE_FILE.findall(last)
        return source_type.guess(named[-1] if named else "", text)
    return _kind_of_lines(text, lines, runs=_MANUALS.match(command) is None)


def _kind_of_lines(text: str, lines: Sequence[str], runs: bool) -> Kind:
    """Whatever reports a failure is a log: only there are failures sure to stay."""
    guessed = source_type.guess("", text)
    if guessed == "logs" or begins_report(text):
        return "logs"
    if guessed == "code" and languages.guess(lines) != "":
        return "code"
    return "logs" if runs or log_style([message_of(line).lstrip() for line in lines], lines) == "ci" else guessed


def _kind_of_places(lines: Sequence[str]) -> Kind | None:
    """`path:line:content` is what ripgrep and its relatives print, and compilers say `path:line: error` alike."""
    step = max(1, len(lines) // SAMPLE_LINES)
    sample = [message for line in lines[::step] if (message := message_of(line))]  # a clock is not a place
    if len(sample) <= 3 or sum(map(_is_hit, sample)) < LISTED * len(sample):
        return None
    judged = sum(1 for line in sample if VERDICT.search(line[:400]))
    return "logs" if judged >= JUDGED * len(sample) else "listing"


def _is_hit(line: str) -> bool:
    return (_PLACED.search(line) is not None or line.startswith("--")) and _HIT.match(line) is not None
