"""From the log of a command that failed to cases: each failure that it names asks, its report answers.

The engine has readers of its own for such reports. These know nothing of those, so that we do not judge
the engine by itself.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kimi_proxy.core import lines as text_lines
from kimi_proxy.features.evaluation.case import Case, is_fair, spoken

MIN_REPORT, MAX_REPORT = 2, 120  # a name alone on a line is a list, not a report
MAX_CASES = 40
TEST, BUILD = "why does {} fail?", "why does {} not compile?"

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Format(NamedTuple):
    """How a tool opens the report of a failure, what ends it, and how a person would ask."""

    opens: re.Pattern[str]
    ends: re.Pattern[str]
    question: str


FORMATS = (
    Format(re.compile(r"_{3,} (?:ERROR (?:at \w+ of|collecting) )?(\S+) _{3,}$"), re.compile(r"_{3,} |={3,} "), TEST),
    Format(re.compile(r"(?:FAIL|ERROR): (\w+) \("), re.compile(r"={10,}|Ran \d|(?:FAIL|ERROR): "), TEST),
    Format(re.compile(r"\s*--- FAIL: (\S+) \("), re.compile(r"\s*(?:---|===) |FAIL|ok |PASS|exit status"), TEST),
    Format(re.compile(r"---- (\S+) stdout ----"), re.compile(r"---- |failures:"), TEST),
    Format(re.compile(r"\s{0,4}● (\S.*\S)"), re.compile(r"\s{0,4}● |Test Suites:|Tests:|PASS |FAIL "), TEST),
    Format(re.compile(r"\s{1,4}\d+\) (\S.*\S)"), re.compile(r"\s{1,4}\d+\) |\S"), TEST),
    Format(re.compile(r"error(?:\[E\d+\])?: (.{8,100})"), re.compile(r"$|error|warning"), "what is wrong: {}?"),
    Format(re.compile(r"([\w./\\+-]+\.\w+)[:(]\d+[,:\d]*\)?:? (?:fatal )?error\b"), re.compile(r"\S|$"), BUILD),
)


def cases(command: str, log: str) -> Iterator[Case]:
    """One case for each failure, as far as their names differ."""
    lines = text_lines.split(log)
    asked: set[str] = set()
    for start, end, goal in _reports(lines):
        gold = spoken(lines, start, end)
        case = Case(f"{command}:{start + 1}", "failure", "logs", command, goal, log, gold)
        if goal not in asked and len(gold) >= MIN_REPORT and len(asked) < MAX_CASES and is_fair(case):
            asked.add(goal)
            yield case


def _reports(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    plain = [_COLOUR.sub("", line).rstrip() for line in lines]
    row = 0
    while row < len(plain):
        found = next((f for f in FORMATS if f.opens.match(plain[row])), None)
        if found is None:
            row += 1
            continue
        end = row + 1
        while end < len(plain) and end - row < MAX_REPORT and not found.ends.match(plain[end]):
            end += 1
        opened = found.opens.match(plain[row])
        assert opened is not None  # noqa: S101 - it was found by this
        yield row, end, found.question.format(opened[1])
        row = end
