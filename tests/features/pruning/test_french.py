"""Goals in French about English code and logs, beside the same goals in English."""

import json
import statistics
from pathlib import Path

from tests.support.deep import IS_DEEP

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core.prune import Options, Question, SourceType
from kimi_proxy.features.pruning import engine

HERE = Path(__file__).parent / "bilingual"
GOALS = json.loads((HERE / "goals.json").read_text("utf-8"))
RATIOS = (0.6, 0.75, 0.9)


def rows_of(gold: str | list[str], lines: list[str]) -> list[int]:
    """The rows with these words, or of the definition that begins so."""
    if isinstance(gold, list):
        return [row for row, line in enumerate(lines) if any(words in line for words in gold)]
    start = next(row for row, line in enumerate(lines) if line.startswith(gold))
    indent = len(lines[start]) - len(lines[start].lstrip())
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent):
        end += 1
    return [row for row in range(start, end) if lines[row].strip()]


def recall(case: dict[str, str], language: str) -> float:
    text = (HERE / case["text"]).read_text("utf-8")
    source_type: SourceType = "logs" if ".log" in case["text"] else "code"
    gold = rows_of(case["gold"], text_lines.split(text))
    found = []
    for ratio in RATIOS:
        question = Question(text, case[language], source_type, Options(ratio, 1, 5000, False, True))
        cuts = [a.cut for a in engine.prune(question, "prn_0123456789abcdef").annotations]
        found.append(sum(not any(c.start <= row + 1 <= c.end for c in cuts) for row in gold) / len(gold))
    return statistics.fmean(found)


def test_goals_in_french_find_nearly_what_their_english_twins_find() -> None:
    cases = GOALS if IS_DEEP else GOALS[::4]
    english = [recall(case, "en") for case in cases]
    french = [recall(case, "fr") for case in cases]

    assert len(GOALS) == 40
    assert statistics.fmean(english) > 0.8
    assert statistics.fmean(french) >= statistics.fmean(english) - 0.05
