"""What an output is: told by what the tool was asked, else by how its lines look."""

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Literal, TypeAlias

from kimi_proxy.core import deepjson
from kimi_proxy.core.lines import split
from kimi_proxy.core.prune import SourceType
from kimi_proxy.features import source_type
from kimi_proxy.features.pruning.structure import language
from kimi_proxy.features.pruning.structure.logtext import bare
from kimi_proxy.features.pruning.structure.voice import voice
from kimi_proxy.features.sanitizer.output import Origin

Kind: TypeAlias = Literal["json", "listing", "logs", "code", "docs"]

SAMPLE_LINES = 400
LISTED = 0.7  # of the lines that are not empty
JUDGED = 0.2

_BRACKETS = {"{": "}", "[": "]"}
_HIT = re.compile(r"(?:[\w@~.+-]|[/\\ ](?=\S)|:(?=\\)){1,300}[:-]\d{1,7}[:-]|--$")
_JUDGED = re.compile(r":\d{1,7}(?::\d{1,7})?: *(?:- )?(?:(?:fatal )?error|warning|note|info|[A-Z]{1,4}\d{2,5})\b", re.I)
_READERS = re.compile(r"\s*(?:cat|bat|head|tail|less|more|nl|sed|awk)\b")
_SEARCHERS = re.compile(r"\s*(?:rg|grep|egrep|fgrep|ag|ack|git\s+grep|findstr)\b")
_DIFFS = re.compile(r"\s*(?:git\s+(?:diff|show|log\s+-p|format-patch)|diff)\b")
_CODE_FILE = re.compile(r"[\w./~-]+\.\w{1,5}\b")
_REPORT = re.compile(
    r"^(?:={3,} (?:FAILURES|ERRORS) |FAILED |Traceback \(most recent|error(?:\[E\d+\])?: |--- FAIL: |panic: "
    r"|npm (?:ERR!|error) |BUILD FAILED|FAILURE: )",
    re.M,
)
_RUNS = re.compile(r"bash|shell|exec|terminal|command|console|run|stdout|stderr|output", re.I)


def kind_of(origin: Origin, text: str) -> Kind:
    if is_json(text):
        return "json"
    lines = split(text)
    shape = _shape(lines)
    if shape is not None:
        return shape
    if origin.failed:
        return "logs"
    if origin.command:
        return _of_command(origin.command, text, lines)
    if PurePath(origin.path).suffix:
        return source_type.guess(origin.path, text)
    return _of_lines(text, lines, runs=_RUNS.search(origin.tool) is not None)


def is_json(text: str) -> bool:
    """Whether `text` is a JSON object or array: what is left of it has to be one too."""
    opening, closing = text[:64].lstrip()[:1], text[-64:].rstrip()[-1:]
    return _BRACKETS.get(opening) == closing and deepjson.is_json(text)


def _of_command(command: str, text: str, lines: Sequence[str]) -> Kind:
    """Most commands print a log; some print a file."""
    last = re.split(r"&&|;|\n", command.strip())[-1].split("|")[0]
    if _DIFFS.match(last):
        return "code"
    if _READERS.match(last):
        named = _CODE_FILE.findall(last)
        return source_type.guess(named[-1] if named else "", text)
    return _of_lines(text, lines, runs=True)


def _of_lines(text: str, lines: Sequence[str], runs: bool) -> Kind:
    """Whatever reports a failure is a log: only there are failures sure to stay."""
    guessed: SourceType = source_type.guess("", text)
    if guessed == "logs" or _REPORT.search(text):
        return "logs"
    if guessed == "docs":
        return "logs" if runs or _is_build(lines) else "docs"
    is_code = language.guess(lines) != ""
    return "code" if is_code or not (runs or _is_build(lines)) else "logs"


def _is_build(lines: Sequence[str]) -> bool:
    return voice([bare(line).lstrip() for line in lines], lines) == "ci"


def _shape(lines: Sequence[str]) -> Kind | None:
    """`path:line:content` is what ripgrep and its relatives print, and compilers say `path:line: error` alike."""
    step = max(1, len(lines) // SAMPLE_LINES)
    sample = [line for line in lines[::step] if line]
    if len(sample) <= 3 or sum(1 for line in sample if _HIT.match(line)) < LISTED * len(sample):
        return None
    judged = sum(1 for line in sample if _JUDGED.search(line[:400]))
    return "logs" if judged >= JUDGED * len(sample) else "listing"
