from tests.features.pruning.structure.pictures import block, expected, lines_of, redrawn

from kimi_proxy.features.pruning.engine import outline
from kimi_proxy.features.pruning.frames import framing

MARKDOWN = r"""
H|# Meter
 |
 |Reads meters.
 |#hashtag is no heading, nor is
 |    # indented code
 |
H|Install
H|-------
 |
 |```bash
 |# not a heading
 |pip install meter
 |
 |Title
 |=====
 |```
 |
 |~~~
 |``` still inside
 |# still inside
 |~~~
 |
H|## Options ##
 |
 || name | use |
 ||------|-----|
 || -v   | say more |
 |
 |- first
 |  goes on
 |
 |- second
 |  ```
 |  # in a list
 |  ```
 |1. third
 |
H|### Deep
 |
 |Text that ends
 |over a rule
 |---
 |
H|<h2>Tagged</h2>
 |
H|<h3 name="x">
H|Over three lines
H|</h3>
 |text
"""

RESTRUCTURED = r"""
 |.. _top:
 |
H|=====
H|Meter
H|=====
 |
 |Reads meters, see :ref:`more`.  Like this::
 |
 |    Not a title
 |    -----------
 |
H|Install
H|-------
 |
 |.. code-block:: python
 |
 |    import meter
 |
 |    Title
 |    =====
 |
H|Options
H|~~~~~~~
 |
 |====  ====
 |name  use
 |====  ====
 |-v    more
 |====  ====
 |
 |+---+---+
 || a | b |
 |+---+---+
 |
 |>>> if x:
 |...     pass
 |...
 |
H|Licence
H|-------
 |None.
"""

ASCIIDOC = r"""
H|= Meter
 |
H|== Install
 |
 |[source,bash]
 |----
 |== not a heading
 |----
 |
 |=== "A tab of another tool"
"""


def test_headings_of_markdown_stay_and_comments_in_fences_are_none() -> None:
    assert redrawn(MARKDOWN, "docs") == expected(MARKDOWN)


def test_headings_of_restructured_text_stay_and_literal_blocks_have_none() -> None:
    assert redrawn(RESTRUCTURED, "docs") == expected(RESTRUCTURED)


def test_headings_of_asciidoc_stay() -> None:
    assert redrawn(ASCIIDOC, "docs") == expected(ASCIIDOC)


def test_a_section_lasts_to_the_next_heading_of_its_level_or_above() -> None:
    found = outline(lines_of(MARKDOWN), "docs")
    sections = [(b.name, b.start, b.body, b.end, b.depth) for b in found.blocks if b.kind == "section"]
    assert sections == [
        ("Meter", 0, 1, 49, 0),
        ("Install", 6, 8, 22, 1),
        ("Options", 22, 23, 43, 1),
        ("Deep", 37, 38, 43, 2),
        ("Tagged", 43, 44, 49, 1),
        ("Over three lines", 45, 48, 49, 2),
    ]


def test_levels_of_restructured_text_come_in_order_of_appearance() -> None:
    found = outline(lines_of(RESTRUCTURED), "docs")
    assert [(b.name, b.depth) for b in found.blocks if b.kind == "section"] == [
        ("Meter", 0),
        ("Install", 1),
        ("Options", 2),
        ("Licence", 1),
    ]


def test_fences_tables_and_lists_are_whole_blocks() -> None:
    found = outline(lines_of(MARKDOWN), "docs")
    assert [(b.kind, b.start, b.end) for b in found.blocks if b.kind in ("fence", "table", "list", "item")] == [
        ("fence", 9, 16),
        ("fence", 17, 21),
        ("table", 24, 27),
        ("list", 28, 36),
        ("item", 28, 30),
        ("item", 31, 35),
        ("fence", 32, 35),
        ("item", 35, 36),
    ]


def test_directives_and_tables_of_restructured_text_are_whole_blocks() -> None:
    found = outline(lines_of(RESTRUCTURED), "docs")
    assert [(b.kind, b.start, b.end) for b in found.blocks if b.kind in ("fence", "table")] == [
        ("fence", 8, 10),
        ("fence", 14, 20),
        ("table", 24, 29),
        ("table", 30, 33),
    ]


def test_a_fence_tells_its_language() -> None:
    assert block(outline(["```python", "x", "```"], "docs"), "python").kind == "fence"


def test_a_fence_left_open_lasts_to_the_end() -> None:
    found = outline(["```", "# a", "# b"], "docs")
    assert [(b.kind, b.start, b.end) for b in found.blocks] == [("fence", 0, 3)]
    assert not any(found.protected)


def test_front_matter_is_a_block_and_keeps_its_title() -> None:
    lines = ["---", "title: Meter", "tags: [a, b]", "---", "", "# Meter"]
    found = outline(lines, "docs")
    assert found.protected == ("header", "header", "", "header", "", "heading")
    assert found.blocks[0].kind == "front-matter"


def test_a_rule_after_a_blank_line_is_no_heading() -> None:
    assert not any(outline(["text", "", "---", "", "more", "", "***"], "docs").protected)


def test_a_paragraph_of_several_lines_under_a_rule_is_no_heading() -> None:
    assert not any(outline(["one", "two", "---"], "docs").protected)


def test_what_sphinx_documents_is_a_block_headed_by_its_directive() -> None:
    lines = [
        *("API", "===", "", ".. module:: meter", "", ".. class:: Meter", "", "   Reads the meter.", ""),
        *("   .. method:: read(name)", "", "      Return its value.", "", "Text that follows."),
    ]
    found = outline(lines, "docs")

    told = [(b.name, b.start, b.body, b.end) for b in found.blocks if b.kind == "object"]
    assert told == [("meter", 3, 4, 4), ("Meter", 5, 6, 12), ("read(name)", 9, 10, 12)]
    assert [frame.headers for frame in framing(lines, found).frames] == [(0, 1), (5,), (9,)]
