"""From a page to cases: a heading asks, and is blanked; the text under it answers."""

import random
from collections.abc import Iterator

from kimi_proxy.core import lines as text_lines
from kimi_proxy.features.evaluation import goals
from kimi_proxy.features.evaluation.case import Case, blanked, is_fair, spoken
from kimi_proxy.features.pruning.outline import outline

MIN_SECTIONS = 5
MIN_LINES, MAX_LINES = 2, 60


def cases(path: str, text: str, rng: random.Random) -> Iterator[Case]:
    lines = text_lines.split(text)
    sections = [block for block in outline(lines, "docs").blocks if block.kind == "section"]
    if len(sections) < MIN_SECTIONS:
        return
    starts = [section.start for section in sections]
    for section in sections[1:]:
        end = min((start for start in starts if start > section.start), default=len(lines))
        gold = spoken(lines, section.body, end)
        goal = goals.of_heading(section.name, rng)
        asked = blanked(lines, section.start, section.body)
        case = Case(f"{path}:{section.start + 1}", "section", "docs", path, goal, asked, gold)
        if goal and MIN_LINES <= len(gold) <= MAX_LINES and is_fair(case):
            yield case
