"""Guessing the language of a text from its words alone."""

import re
from collections.abc import Sequence

from kimi_proxy.features.pruning.structure import syntax
from kimi_proxy.features.pruning.structure.clues import FIRST_WORD, STRINGS, by_first_word

SAMPLE_LINES = 400
TRIAL_LINES = 200
LINE_CHARS = 160
# Under this a text may be any language, or prose.
ENOUGH = 4
# Above this share of the best one's worth, the second best language gets a trial.
DOUBT = 0.6
# A string says less than the shape of a line, and must not outweigh it by sheer number.
STRINGS_MOST = 20

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
_MARKUP = re.compile(r"^ *</[A-Za-z]|/> *$|(?:return|=>|[=(?]) *\(? *<[A-Za-z>][^\n;]*> *$", re.MULTILINE)
_BY_FIRST_WORD = by_first_word()


def guess(lines: Sequence[str]) -> str:
    """The language of `lines`, or "" when none of ours fits."""
    spoken = _SHEBANG.match(lines[0][:LINE_CHARS]) if lines else None
    if spoken is not None:
        return _INTERPRETERS.get(spoken[1], spoken[1])
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
        best = _fewer_errors(lines, best, second)
    return _dialect(best, sample, more.get(best, 0), worth[best])


def _opening(sample: Sequence[str]) -> str:
    """The language that the first line of code names beyond doubt."""
    if any(line.startswith("<?php") for line in sample):
        return "php"
    first = next((line for line in sample if line and not line.startswith(_COMMENT)), "")
    package = _PACKAGE.match(first)
    if package is None:
        return ""
    return "java" if package["java"] else "go"


def _sample(lines: Sequence[str]) -> Sequence[str]:
    """The head, where imports are, and as much again from the middle, past any licence."""
    if len(lines) <= SAMPLE_LINES:
        return lines
    half = SAMPLE_LINES // 2
    middle = len(lines) // 2
    return [*lines[:half], *lines[middle : middle + half]]


def _worth(sample: Sequence[str]) -> dict[str, int]:
    """What the clues for each language add up to."""
    text = "\n".join(sample)
    worth = {
        language: min(STRINGS_MOST, sum(points * text.count(string) for points, string in strings))
        for language, strings in STRINGS.items()
    }
    for line in sample:
        word = FIRST_WORD.match(line)
        if word is None:
            continue
        for language, points, pattern in _BY_FIRST_WORD.get(word[0].replace(" ", ""), ()):
            if pattern.match(line):
                worth[language] += points
    return worth


def _fewer_errors(lines: Sequence[str], best: str, second: str) -> str:
    trial = [line[:2000] for line in lines[:TRIAL_LINES]]
    return best if syntax.count_errors(trial, best) <= syntax.count_errors(trial, second) else second


def _dialect(language: str, sample: Sequence[str], own: int, worth: int) -> str:
    """`language`, or the richer one that holds it when enough clues are that one's `own`."""
    if own < ENOUGH or own * 40 < worth:
        return language
    if language == "javascript" and _MARKUP.search("\n".join(sample)):
        return "tsx"
    return _DIALECTS[language]
