"""Up to a ratio of 0.6 imports, signatures and headings stay; a fence of up to 60 lines is never cut inside."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.checkout import ROOT
from tests.support.deep import IS_DEEP, too

from kimi_proxy.core.lines import split
from kimi_proxy.core.prune import Options, Question, SourceType
from kimi_proxy.features.pruning import engine

GOAL = "how are timeouts handled?"
UP_TO_GENEROUS = (0.6, too(0.3), too(0.5))
SOURCES = sorted(ROOT.glob("src/**/*.py"))[:: 1 if IS_DEEP else 8]
PAGES = [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"]
FENCE = re.compile(r"[\s>]*(?:[-*+]\s+|\d+[.)]\s+)?(`{3,}|~{3,})")
WHOLE_LINES = 60


def kept(text: str, source_type: SourceType, ratio: float) -> list[bool]:
    options = Options(ratio, 0, 0, annotate_lines=False, include_markers=True)
    pruned = engine.prune(Question(text, GOAL, source_type, options), "prn_0123456789abcdef")
    keep = [True] * pruned.original_lines
    for annotation in pruned.annotations:
        cut = annotation.cut
        keep[cut.start - 1 : cut.end] = [False] * cut.count
    return keep


def imports_and_signatures(text: str) -> Iterator[int]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from range(node.lineno - 1, node.end_lineno or node.lineno)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno - 1


def fences(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    opened, sign = -1, ""
    for row, line in enumerate(lines):
        found = FENCE.match(line)
        if opened < 0 and found:
            opened, sign = row, found[1]
        elif opened >= 0 and line.strip(" \t>").startswith(sign) and not line.strip(" \t>").strip(sign[0]):
            yield opened, row + 1
            opened = -1


@pytest.mark.parametrize("ratio", UP_TO_GENEROUS)
def test_no_file_of_ours_loses_an_import_or_a_signature(ratio: float) -> None:
    lost = {}
    for path in SOURCES:
        text = path.read_text("utf-8")
        keep = kept(text, "code", ratio)
        if gone := [split(text)[row] for row in imports_and_signatures(text) if not keep[row]]:
            lost[path.name] = gone
    assert lost == {}


@pytest.mark.parametrize("ratio", UP_TO_GENEROUS)
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_page_of_ours_loses_a_heading(path: Path, ratio: float) -> None:
    lines = split(path.read_text("utf-8"))
    keep = kept("\n".join(lines), "docs", ratio)
    fenced = {row for start, end in fences(lines) for row in range(start, end)}
    headings = [row for row, line in enumerate(lines) if re.match(r"#{1,6} ", line) and row not in fenced]
    assert [lines[row] for row in headings if not keep[row]] == []


LIST = """# Steps

1. Start the server, whose timeout is thirty seconds unless another is configured for it:

   ```sh
   start --timeout 30

   # wait until it answers
   curl localhost:8000/health
   ```

2. Stop it.
- A list may hold a fence that begins with its item:
- ```yaml
  timeout: 30
- an item inside of the fence, at the margin
  retries: 3
  ```
- And go on after it with words about the weather in the north, which nobody has asked about.

.. note::

   A directive may hold one too.

   ```python
   client = Client(timeout=30)

   client.get("/")
   ```

"""
FILLER = "\n".join(f"Sentence {at} speaks of the weather in the north and of nothing else at all." for at in range(60))


@pytest.mark.parametrize("ratio", [0.5, 0.7, 0.8, 0.9, 0.95])
def test_a_fence_in_a_list_or_a_directive_is_not_cut_inside(ratio: float) -> None:
    text = f"{FILLER}\n\n{LIST}\n{FILLER}\n"
    lines, keep = split(text), kept(text, "docs", ratio)
    assert not all(keep)
    cut = ["\n".join(lines[a:b]) for a, b in fences(lines) if b - a <= WHOLE_LINES and len(set(keep[a:b])) > 1]
    assert cut == []


@pytest.mark.parametrize("ratio", [0.7, too(0.5), too(0.8), too(0.9)])
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_fence_of_a_page_of_ours_is_cut_inside(path: Path, ratio: float) -> None:
    text = path.read_text("utf-8")
    lines, keep = split(text), kept(text, "docs", ratio)
    assert [(a, b) for a, b in fences(lines) if b - a <= WHOLE_LINES and len(set(keep[a:b])) > 1] == []
