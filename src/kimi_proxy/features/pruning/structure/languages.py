"""The language of a text, by the hints in languages.toml and, in doubt, by which grammar has fewer errors."""

import math
import re
from collections.abc import Sequence
from functools import cache

from kimi_proxy.features.pruning.structure import syntax

SAMPLE_LINES = 400
TRIAL_LINES = 200
LINE_CHARS = 160
# Under this a text may be any language, or prose.
ENOUGH = 4
# Above this share of the best one's worth, the second best language gets a trial.
DOUBT = 0.6
# Strings are weaker hints than the shape of lines, and must not outweigh them by number.
STRINGS_MOST = 20

_FIRST_WORD = re.compile(r"\w+|#\s?\w+|#!?\[|///|[@<$\[]")
_SHEBANG = re.compile(
    r"#!\s*\S*?(?:/|env\s+(?:-S\s+)?)(python|node|deno|bun|ruby|php|bash|sh|zsh|dash|ksh)[\d.]*(?:\s|$)"
)
_INTERPRETERS = {
    "node": "javascript", "deno": "typescript", "bun": "typescript",
    "sh": "bash", "zsh": "bash", "dash": "bash", "ksh": "bash",
}  # fmt: skip
_PACKAGE = re.compile(r"package +\w+(?:(?:\.\w+)*(?P<java>;)|$)")
_COMMENT = ("//", "/*", "*", "#")
_DIALECTS = {"javascript": "typescript", "c": "cpp"}
_MARKUP = re.compile(r"^ *</[A-Za-z]|/> *$|(?:return|=>|[=(?]) *+(?:\( *+)?<[A-Za-z>][^\n;]{0,300}> *$", re.MULTILINE)


def guess(lines: Sequence[str]) -> str:
    """Return the language of `lines`, or "" when none of ours fits."""
    shebang = _SHEBANG.match(lines[0][:LINE_CHARS]) if lines else None
    if shebang is not None:
        return _INTERPRETERS.get(shebang[1], shebang[1])
    sample = [line[:LINE_CHARS].strip() for line in _sample(lines)]
    opening = _opening(sample)
    if opening:
        return opening
    worth = _worth(sample)
    more = {family: worth.pop(dialect) for family, dialect in _DIALECTS.items()}
    for family, points in more.items():
        worth[family] += points
    best, second = sorted(worth, key=lambda name: (-worth[name], name))[:2]
    if worth[best] < ENOUGH:
        return ""
    if worth[second] >= DOUBT * worth[best]:
        trial = [line[:2000] for line in lines[:TRIAL_LINES]]
        best = min((best, second), key=lambda name: _errors(trial, name))
    return _dialect(best, sample, more.get(best, 0), worth[best])


def _errors(trial: Sequence[str], language: str) -> float:
    found = syntax.count_errors(trial, language)
    return math.inf if found is None else found


def _opening(sample: Sequence[str]) -> str:
    """Return the language that the first line of code names beyond doubt."""
    if any(line.startswith("<?php") for line in sample):
        return "php"
    first = next((line for line in sample if line and not line.startswith(_COMMENT)), "")
    package = _PACKAGE.match(first)
    return ("java" if package["java"] else "go") if package else ""


def _sample(lines: Sequence[str]) -> Sequence[str]:
    """Return the head, where imports are, and as much again from the middle, past any licence."""
    if len(lines) <= SAMPLE_LINES:
        return lines
    half = SAMPLE_LINES // 2
    middle = len(lines) // 2
    return [*lines[:half], *lines[middle : middle + half]]


def _worth(sample: Sequence[str]) -> dict[str, int]:
    """Return the total weight of the hints for each language."""
    text = "\n".join(sample)
    worth = {
        language: min(
            STRINGS_MOST,
            sum(points * text.count(string) for points, group in table.strings.items() for string in group),
        )
        for language, table in syntax.languages().items()
        if table.openers
    }
    hints = openers()
    for line in sample:
        word = _FIRST_WORD.match(line)
        if word is None:
            continue
        for language, points, pattern in hints.get(word[0].replace(" ", ""), ()):
            if pattern.match(line):
                worth[language] += points
    return worth


def _dialect(language: str, sample: Sequence[str], own: int, worth: int) -> str:
    """Return `language`, or the richer one that holds it when enough hints are that one's `own`."""
    if own < ENOUGH or own * 40 < worth:
        return language
    if language == "javascript" and _MARKUP.search("\n".join(sample)):
        return "tsx"
    return _DIALECTS[language]


@cache
def openers() -> dict[str, list[tuple[str, int, re.Pattern[str]]]]:
    """Return for each opening word its languages, the weight of a match, and its pattern."""
    found: dict[str, list[tuple[str, int, re.Pattern[str]]]] = {}
    for language, table in syntax.languages().items():
        for points, words, pattern in table.openers:
            for word in words.split():
                found.setdefault(word, []).append((language, points, re.compile(pattern)))
    return found
