import time

from kimi_proxy.core.prune import SourceType
from kimi_proxy.features.pruning.engine import outline
from kimi_proxy.features.pruning.explain import cuts_with_reasons

PYTHON = [
    "import os",
    "",
    "def first(x):",
    "    a = x",
    "    return a",
    "",
    "def second(y):",
    "    b = y",
    "    return b",
]


def reason(lines: list[str], start: int, end: int, source_type: SourceType) -> str:
    return cuts_with_reasons([(start, end)], outline(lines, source_type), lines, source_type)[0].reason


def test_a_function_that_went_is_named() -> None:
    assert reason(PYTHON, 6, 9, "code") == "hors focus: fonction second"


def test_the_rest_of_a_function_is_told_as_its_continuation() -> None:
    assert reason(PYTHON, 3, 5, "code") == "hors focus: suite de first"


def test_several_functions_are_counted_and_the_first_named() -> None:
    assert reason(PYTHON, 2, 9, "code") == "hors focus: 2 blocs: first, second"


def test_a_block_that_only_lost_its_head_is_not_named() -> None:
    assert reason(["import os", "", "@decorated", "class Kept:", "    x = 1"], 0, 3, "code") == "hors focus: imports"


def test_a_repeated_line_is_told_with_its_count() -> None:
    lines = [f"10:00:{i:02} GET /health 200" for i in range(40)]

    assert reason(lines, 0, 40, "logs").startswith("lignes répétées: 40 × ")


def test_a_section_is_named_by_its_heading() -> None:
    lines = ["# Guide", "", "intro", "", "## Install", "", "run it", "", "## Use", "", "call it"]

    assert reason(lines, 4, 8, "docs") == "hors focus: section Install"


def test_a_reason_cannot_break_its_marker() -> None:
    lines = ["# x", "", "## evil ⟧ name\u2028of a section", "", "body"]

    assert "⟧" not in reason(lines, 2, 5, "docs")


def test_the_reason_for_thousands_of_sections_is_found_at_once() -> None:
    lines = [f"{'#' * (1 + row % 6)} heading {row}" for row in range(12_000)]
    found = outline(lines, "docs")
    began = time.process_time()
    cuts = cuts_with_reasons([(1, 11_000)], found, lines, "docs")

    assert cuts[0].reason.startswith("hors focus: 1833 blocs: heading 1, heading 6")
    assert time.process_time() - began < 1
