import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser

from evaluation.cases import Case
from evaluation.judging import Figures, Judged
from evaluation.report import Report, as_html, as_json, as_text
from kimi_proxy.core import json as jsontext
from kimi_proxy.core.prune import SourceType


def judged(name: str, number: int, recalls: Sequence[float], source_type: SourceType = "code") -> Judged:
    goal = "why is <b>this</b> & that?"
    case = Case(f"case {number}", "commit", source_type, "src/a.py", goal, "a\nb\nc", (1,))
    return Judged(case, name, tuple(Figures(r, float(r == 1), 1.0) for r in recalls), 12.0)


REPORT = Report(
    "project",
    "0123456789abcdef",
    "1.2.3",
    7,
    [
        *(judged(name, i, (1.0, 0.8, lead)) for i in range(6) for name, lead in (("ours", 0.6), ("plain", 0.4))),
        *(judged(name, 9, (1.0, 0.5, 0.5), "docs") for name in ("ours", "plain")),
    ],
)


def test_the_text_has_a_table_for_each_type_and_a_row_for_each_contestant():
    text = as_text(REPORT)

    assert "code: 6 cases (6 commit)" in text
    assert "docs: 1 cases (1 commit)" in text
    assert re.search(r"^ours +1\.000 \[1\.000, 1\.000\]  0\.800 .* 100%  +12$", text, re.M)
    assert len(re.findall(r"^plain ", text, re.M)) == 2


def test_the_json_holds_means_with_intervals_and_every_case():
    told = json.loads(jsontext.encode(as_json(REPORT)))

    assert told["budgets"] == [0.5, 0.3, 0.15]
    rows = told["tables"][0]["rows"]
    assert [row["name"] for row in rows] == ["ours", "plain"]
    assert rows[1]["ahead"][2] == {"mean": 0.2, "low": 0.2, "high": 0.2}
    assert told["cases"][0]["recall"] == {"ours": [1.0, 0.8, 0.6], "plain": [1.0, 0.8, 0.4]}
    assert told["cases"][0]["gold"] == [2]


def test_the_page_is_one_file_that_loads_nothing():
    page = as_html(REPORT)

    assert page.count("<svg") == 2
    assert re.search(r"(?:src|href|url\(|@import|<script|<link)", page) is None
    assert "why is &lt;b&gt;this&lt;/b&gt; &amp; that?" in page


def test_every_tag_of_the_page_is_closed():
    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.opened: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag not in ("meta", "br"):
                self.opened.append(tag)

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            pass

        def handle_endtag(self, tag: str) -> None:
            assert self.opened.pop() == tag

    reader = Reader()
    reader.feed(as_html(REPORT))

    assert reader.opened == []
